"""A whole fit: the method, pre-training, steps on all rows, checkpoints, and what an interruption leaves."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import Tensor

from halfgp.choices import EXACT_STEP_ROWS, FEW_FEATURES, choose_method, neighbourhoods
from halfgp.errors import InputError
from halfgp.hyperparameters import Coordinates, Hyperparameters
from halfgp.likelihood import DenseLikelihood, NeighbourLikelihood, dense_likelihood
from halfgp.priors import Priors
from halfgp.problem import Problem
from halfgp.training.checkpoint import Checkpoint, Reached
from halfgp.training.exact import train_exactly
from halfgp.training.history import Step
from halfgp.training.improvement import Improved, improve
from halfgp.training.judgement import Judgement, judge
from halfgp.training.settings import Training
from halfgp.training.starts import loud_and_quiet, random_starts
from halfgp.training.stochastic import StochasticTraining

SMALLEST = 200  # rows that say anything about hyperparameters
SHORTER, SHORTENINGS = 0.8, 5  # lengthscales, at a time and at most
ROUNDS = (15, 20, 30)  # iterations, each with neighbours in the metric that the last one found
RENEWALS = 4  # of the last round, at most, where features are few
RENEWED = 1e-4  # of the loss per row: a round that gained less has found its neighbours
# Changes of the loss per row that end a search: of all rows; of neighbourhoods among them; of the same where
# features are few, and most rows are heard; of a subset, which knows no better; of a start.
FLAT_WHOLE, FLAT_NEIGHBOURS, FLAT_IN_FEW, FLAT_SUBSET, FLAT_START = 1e-5, 1e-5, 1e-6, 1e-4, 1e-3
Observer = Callable[[Step, Hyperparameters], object]
logger = logging.getLogger("halfgp")


@dataclass(frozen=True)
class Trained:
    """Where training ended.

    Attributes:
        hyperparameters: found.
        history: of all stages.
        method: "cholesky" or "cg".
        weights: (n, q) of the last solve, where a final one may start, or None.
        interrupted: whether it was ended by Ctrl-C.
    """

    hyperparameters: Hyperparameters
    history: list[Step]
    method: str
    weights: Tensor | None
    interrupted: bool


def train(
    start: Hyperparameters,
    problem: Problem,
    settings: Training,
    priors: Priors,
    *,
    checkpoint: Checkpoint | None = None,
    observe: Observer = lambda *_: None,
) -> Trained:
    """Find hyperparameters from `start`; Ctrl-C ends it with the best so far."""
    return _Run(start, problem, settings, priors, checkpoint, observe).run()


class _Run:
    def __init__(
        self,
        start: Hyperparameters,
        problem: Problem,
        settings: Training,
        priors: Priors,
        checkpoint: Checkpoint | None,
        observe: Observer,
    ) -> None:
        self._start, self._problem, self._settings, self._priors = start, problem, settings, priors
        self._checkpoint, self._observer = checkpoint, observe
        self._history: list[Step] = []
        self._best: tuple[float, Hyperparameters] | None = None  # of the exact stage so far
        self._found: Hyperparameters | None = None  # by a stage that is done
        self._judged: Judgement | None = None  # the better of what parts of the rows taught
        self._coordinates = Coordinates(start, softplus=settings.softplus)

    def run(self) -> Trained:
        method = choose_method(self._settings.method, self._problem.rows)
        weights, interrupted = None, False
        stochastic: StochasticTraining | None = None
        try:
            reached = self._refined(self._resume() or self._exactly(method))
            hyperparameters, weights = self._coordinates.hyperparameters(reached.vector), reached.weights
            if method == "cg" and self._settings.steps and len(reached.vector):
                stochastic = StochasticTraining(hyperparameters, self._problem, self._settings, self._priors)
                if reached.state is not None:
                    stochastic.state = reached.state
                    logger.info("resumed at step %d from %s", reached.state.index, self._path)
                stochastic.run(self._observer, lambda state: self._save(replace(reached, state=state)))
        except KeyboardInterrupt:
            if (
                self._problem.ranks is not None
            ):  # others were interrupted elsewhere: a checkpoint is what is left
                raise
            interrupted = True
            logger.warning("interrupted: going on with the hyperparameters found so far")
            hyperparameters = self._start if self._best is None else self._best[1]
            if self._found is not None:
                hyperparameters = self._found
        if stochastic is not None:
            hyperparameters, weights = stochastic.hyperparameters, stochastic.weights
            self._history += stochastic.state.history
        return Trained(hyperparameters.detached(), self._history, method, weights, interrupted)

    @property
    def _from_parts(self) -> bool:
        """Whether hyperparameters come from parts of the rows, and all of them have more to say."""
        training = self._settings
        return 0 < training.subset < self._problem.rows and training.subset_iterations > 0

    @property
    def _few(self) -> bool:
        """Whether features are so few that neighbours say most of a row."""
        return self._problem.features <= FEW_FEATURES

    @property
    def _path(self) -> str:
        return "" if self._checkpoint is None else str(self._checkpoint.path)

    def _exactly(self, method: str) -> Reached:
        """Where the exact stage ends: of all rows with Cholesky, of some before CG."""
        rows, seed = self._problem.rows, self._settings.seed
        size = rows if method == "cholesky" else min(self._settings.subset, rows)
        hyperparameters = self._climb(size, seed)
        if method == "cg" and self._from_parts:
            self._found = hyperparameters
            starts = [self._start, hyperparameters] if self._few else [self._start]
            by_subset = hyperparameters
            hyperparameters = self._better(by_subset, *(self._among_neighbours(start) for start in starts))
            self._found = hyperparameters
            if self._few and hyperparameters is not by_subset:
                hyperparameters = self._renewed(hyperparameters)
        vector = self._problem.of_first(self._coordinates.vector(hyperparameters))
        reached = Reached(vector, refined=size in (0, rows))
        self._save(reached)
        return reached

    @property
    def _judging_seed(self) -> int:
        """Drawn apart from the subset, which may speak well of its own rows."""
        return self._settings.seed + 1

    def _better(self, *candidates: Hyperparameters) -> Hyperparameters:
        """The one from which rows that are left out are predicted best."""
        judged = [judge(candidate, self._problem, self._judging_seed) for candidate in candidates]
        told = "; ".join(map(str, judged))
        logger.info("rows left out, by what a subset and what neighbours taught: %s", told)
        best = max(range(len(candidates)), key=lambda i: judged[i].log_density)
        self._judged = judged[best]
        return candidates[best]

    def _refined(self, reached: Reached) -> Reached:
        """With what all rows have to say of hyperparameters that come from parts of them."""
        if reached.refined or not self._from_parts or not len(reached.vector):
            return reached
        start, seed = self._coordinates.hyperparameters(reached.vector), self._judging_seed
        improved = Improved(start, self._judged or judge(start, self._problem, seed))
        self._found = start
        if self._settings.steps is None and self._problem.rows <= EXACT_STEP_ROWS:
            improved = improve(
                improved,
                self._problem,
                self._settings,
                self._priors,
                seed=seed,
                observe=self._observe_exact,
            )
            self._found = improved.hyperparameters
        if not self._few:
            improved = self._shortened(improved)
        reached = Reached(
            self._coordinates.vector(improved.hyperparameters), refined=True, weights=improved.weights
        )
        self._save(reached)
        return reached

    def _shortened(self, found: Improved) -> Improved:
        """With lengthscales that suit all rows.

        Data are denser than any part of them, and show what is shorter than its spacing: all lengthscales
        together are shortened for as long as predictions gain. Not in few features, where every row that is
        heard has its neighbours among all rows: what is left to gain there is by chance.
        """
        for _ in range(SHORTENINGS):
            shorter = found.hyperparameters.stretched(SHORTER)
            judged = judge(shorter, self._problem, self._judging_seed)
            # Both: a density alone may gain by what it says of the deviation, and lose the function.
            if not (judged.log_density > found.judged.log_density and judged.error < found.judged.error):
                break
            logger.info("with lengthscales times %g: %s", SHORTER, judged)
            found = Improved(shorter, judged)
        return found

    def _among_neighbours(self, hyperparameters: Hyperparameters) -> Hyperparameters:
        """The best for neighbourhoods among all rows, renewed as the lengthscales move, from there.

        From where a subset ended it is not far, where features are few. Of many, some are irrelevant to a
        subset, and have no gradient any more: from the start then.
        """
        for iterations in ROUNDS:
            found = self._round(hyperparameters, iterations)
            if found is None:
                break
            hyperparameters, _ = found
        return hyperparameters

    def _renewed(self, hyperparameters: Hyperparameters) -> Hyperparameters:
        """The last round again, for as long as neighbours in the metric of where it ended teach more.

        Neighbours in the metric of longer lengthscales speak for these: of 100,000 rows of a survey noise
        falls by another two thirds.
        """
        before = self._judged
        renewed = hyperparameters
        for _ in range(RENEWALS):
            found = self._round(renewed, ROUNDS[-1])
            if found is None:
                break
            renewed, gain = found
            if not gain > RENEWED:
                break
        judged = judge(renewed, self._problem, self._judging_seed)
        logger.info("with neighbours found again: %s", judged)
        if before is not None and before.surpasses(judged):
            return hyperparameters
        self._judged = judged
        return renewed

    def _round(self, start: Hyperparameters, iterations: int) -> tuple[Hyperparameters, float] | None:
        """The best for neighbourhoods in the metric of the start, and what the loss per row gained by it.

        None where neighbours of that metric are too close for the noise.
        """
        rows, neighbours = neighbourhoods(self._problem.features, iterations == ROUNDS[-1])
        likelihood = NeighbourLikelihood.around(
            start,
            self._problem,
            rows=rows,
            neighbours=neighbours,
            seed=self._settings.seed,
            priors=self._priors,
        )
        began = len(self._history)
        try:
            found, loss = train_exactly(
                start,
                likelihood,
                rows=self._problem.rows,
                stage="neighbours",
                iterations=min(iterations, self._settings.subset_iterations),
                flat=FLAT_IN_FEW if self._few else FLAT_NEIGHBOURS,
                observe=self._observe_exact,
            )
        except InputError as error:
            logger.info("neighbourhoods end early: %s", error)
            return None
        return found, self._history[began].loss - loss

    def _climb(self, wanted: int, seed: int) -> Hyperparameters:
        """The best hyperparameters that so many rows, drawn by a seed, know."""
        # A quarter of the rows costs a hundredth of the time, and leaves little to do for the others.
        sizes = [size for size in (wanted // 4, wanted) if size >= SMALLEST or size == wanted > 0]
        starts = [*loud_and_quiet(self._start), *random_starts(self._start, self._settings.restarts, seed)]
        for size in sizes:
            found = [self._climb_from(start, size, seed, last=size == wanted) for start in starts]
            starts = [min(found, key=lambda pair: pair[1])[0]]
        return starts[0]

    def _climb_from(
        self, start: Hyperparameters, size: int, seed: int, last: bool
    ) -> tuple[Hyperparameters, float]:
        """The best hyperparameters that so many rows know from there, and their loss."""
        problem = self._problem
        some = problem if size == problem.rows else problem.subset(size, seed)

        def likelihood(hyperparameters: Hyperparameters) -> DenseLikelihood:
            return dense_likelihood(
                hyperparameters,
                some.x,
                some.y,
                fixed_noise=some.fixed_noise,
                priors=self._priors,
                prior_weight=some.rows / problem.rows,
            )

        flat = FLAT_WHOLE if size == problem.rows else FLAT_SUBSET
        return train_exactly(
            start,
            likelihood,
            rows=problem.rows,
            stage="cholesky" if size == problem.rows else "subset",
            iterations=self._settings.subset_iterations,
            flat=flat if last else FLAT_START,
            observe=self._observe_exact,
            optimise=self._settings.search,
        )

    def _observe_exact(self, step: Step, hyperparameters: Hyperparameters) -> None:
        self._history.append(step)
        if self._best is None or step.loss < self._best[0]:
            self._best = (step.loss, hyperparameters)
        self._observer(step, hyperparameters)

    def _resume(self) -> Reached | None:
        found = None if self._checkpoint is None else self._checkpoint.read()
        if found is None:
            return None
        reached, self._history = found
        return reached

    def _save(self, reached: Reached) -> None:
        if self._checkpoint is not None:
            self._checkpoint.write(reached, self._history)
