"""A whole fit: the method, pre-training, steps on all rows, checkpoints, and what an interruption leaves."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import Tensor

from halfgp.hyperparameters import Coordinates, Hyperparameters
from halfgp.planner import choose_method
from halfgp.priors import Priors
from halfgp.problem import Problem
from halfgp.training.checkpoint import Checkpoint
from halfgp.training.exact import train_exactly
from halfgp.training.history import Step
from halfgp.training.judgement import judge
from halfgp.training.settings import Training
from halfgp.training.stochastic import State, StochasticTraining

SMALLEST = 200  # rows that say anything about hyperparameters
QUIET = 1e-3  # of the noise, for a second start
SUBSETS = 3  # at most, where one does not speak for all rows
# Changes of the loss per row that end a search: of all rows; of a subset, which knows no better; of a start.
FLAT_WHOLE, FLAT_SUBSET, FLAT_START = 1e-5, 1e-4, 1e-3
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


def _starts(start: Hyperparameters) -> list[Hyperparameters]:
    """Where to begin: as given, and with a thousandth of the noise.

    What varies quickly can be noise or function, and a likelihood often has an optimum for either.
    """
    noise = start.noise
    if noise is None or float(noise.value) * QUIET <= noise.lower:
        return [start]
    return [start, replace(start, noise=noise.with_value(noise.value * QUIET))]


def train(
    start: Hyperparameters,
    problem: Problem,
    settings: Training,
    priors: Priors,
    *,
    checkpoint: Checkpoint | None = None,
    observe: Observer = lambda step, point: None,
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
        self._best: tuple[float, Hyperparameters] | None = None  # of the exact stage
        self._coordinates = Coordinates(start, softplus=settings.softplus)

    def run(self) -> Trained:
        method = choose_method(self._settings.method, self._problem.rows)
        point, weights, interrupted = self._start, None, False
        stochastic: StochasticTraining | None = None
        try:
            pretrained, state = self._resume() or (self._exactly(method), None)
            point = self._coordinates.point(pretrained)
            if method == "cg" and self._settings.steps:
                stochastic = StochasticTraining(point, self._problem, self._settings, self._priors)
                if state is not None:
                    stochastic.state = state
                    logger.info("resumed at step %d from %s", state.index, self._path)
                stochastic.run(self._observer, lambda state: self._save(pretrained, state))
        except KeyboardInterrupt:
            interrupted = True
            logger.warning("interrupted: going on with the hyperparameters found so far")
            if stochastic is None and self._best is not None:
                point = self._best[1]
        if stochastic is not None:
            point, weights = stochastic.hyperparameters, stochastic.weights
            self._history += stochastic.state.history
        return Trained(point.detached(), self._history, method, weights, interrupted)

    @property
    def _path(self) -> str:
        return "" if self._checkpoint is None else str(self._checkpoint.path)

    def _exactly(self, method: str) -> Tensor:
        """The point (p,) where the exact stage ends: all of it with Cholesky, a subset before CG."""
        rows, seed = self._problem.rows, self._settings.seed
        size = rows if method == "cholesky" else min(self._settings.subset, rows)
        point = self._climb(size, seed)
        if 0 < size < rows and self._settings.subset_iterations:
            point = self._that_holds_for_all(point, size)
        vector = self._coordinates.vector(point)
        self._save(vector, None)
        return vector

    def _that_holds_for_all(self, point: Hyperparameters, size: int) -> Hyperparameters:
        """This point, or another subset's, where all rows say that this one is far too sure of itself."""
        seed = self._settings.seed
        unseen = seed + SUBSETS  # drawn apart from every subset, which may speak well of its own rows
        best, found = point, judge(point, self._problem, unseen)
        for another in range(seed + 1, seed + SUBSETS):
            if not found.too_sure:
                break
            logger.info(
                "squared leave-one-out residuals are %.1f times their variances: training on another subset",
                found.excess,
            )
            point = self._climb(size, another)
            judged = judge(point, self._problem, unseen)
            if judged.log_density > found.log_density:
                best, found = point, judged
        return best

    def _climb(self, wanted: int, seed: int) -> Hyperparameters:
        """The best point that so many rows, drawn by a seed, know."""
        # A quarter of the rows costs a hundredth of the time, and leaves little to do for the others.
        sizes = [size for size in (wanted // 4, wanted) if size >= SMALLEST or size == wanted > 0]
        starts = _starts(self._start)
        for size in sizes:
            found = [self._climb_from(start, size, seed, last=size == wanted) for start in starts]
            starts = [min(found, key=lambda pair: pair[1])[0]]
        return starts[0]

    def _climb_from(
        self, start: Hyperparameters, size: int, seed: int, last: bool
    ) -> tuple[Hyperparameters, float]:
        """The best point that so many rows know from there, and its loss."""
        problem = self._problem
        some = problem if size == problem.rows else problem.subset(size, seed)
        flat = FLAT_WHOLE if size == problem.rows else FLAT_SUBSET
        return train_exactly(
            start,
            some.x,
            some.y,
            fixed_noise=some.fixed_noise,
            priors=self._priors,
            prior_weight=some.rows / problem.rows,
            stage="cholesky" if size == problem.rows else "subset",
            iterations=self._settings.subset_iterations,
            flat=flat if last else FLAT_START,
            observe=self._observe_exact,
        )

    def _observe_exact(self, step: Step, point: Hyperparameters) -> None:
        self._history.append(step)
        if self._best is None or step.loss < self._best[0]:
            self._best = (step.loss, point)
        self._observer(step, point)

    def _resume(self) -> tuple[Tensor, State | None] | None:
        found = None if self._checkpoint is None else self._checkpoint.read()
        if found is None:
            return None
        pretrained, self._history, state = found
        return pretrained, state

    def _save(self, pretrained: Tensor, state: State | None) -> None:
        if self._checkpoint is not None:
            self._checkpoint.write(pretrained, self._history, state)
