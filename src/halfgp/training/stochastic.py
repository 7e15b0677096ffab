"""Steps on all rows: a warm-started solve, a gradient in one pass, and a way back from a step that failed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from halfgp.errors import InputError, TrainingError
from halfgp.hyperparameters import Coordinates, Hyperparameters
from halfgp.likelihood import GradientEstimator
from halfgp.memory import peak_memory
from halfgp.precision import Precision
from halfgp.preconditioners import Preconditioner, has_root
from halfgp.priors import Priors, log_prior
from halfgp.problem import Problem
from halfgp.solvers import log_determinant
from halfgp.threads import paying_threads, torch_threads
from halfgp.training.evaluation import Evaluation, evaluate
from halfgp.training.history import Step, values_of
from halfgp.training.optimisers import make_optimiser
from halfgp.training.settings import Training

RUNGS = ("half", "single", "double")  # what a step that failed climbs through
# With 15 the loss is too high by 0.1 a row at a noise of 1e-3; with 40 by less than its error.
LANCZOS_STEPS = 40
BACKTRACK = 0.5  # of the way to a vector that failed
# How far, on the real line, from where a preconditioner was built it still serves: what it lacks there CG
# makes up for in an iteration, and to build it takes as long as several.
KEPT = 0.3


@dataclass
class State:
    """All that the next step depends on; a checkpoint holds exactly this.

    Attributes:
        vector: where the next step is taken (p,).
        solutions: (m, q + s) of the last good step, or None.
        index: of the next step.
        precision: of the solves; "auto", or a rung once a step has failed.
        before: vector and gradient (p,) of the last good step, or None.
        anchor: vector (p,) for whose matrix the preconditioner is built, or None before the first.
        secant: how far the last good step had moved (p,), and by what its solutions changed (m, q + s).
        optimiser: its state.
        loss: of the last good step.
        loss_error: its standard error.
        history: of this stage.
    """

    vector: Tensor
    solutions: Tensor | None = None
    index: int = 0
    precision: str = "auto"
    before: tuple[Tensor, Tensor] | None = None
    anchor: Tensor | None = None
    secant: tuple[Tensor, Tensor] | None = None
    optimiser: dict[str, Tensor] = field(default_factory=dict)
    loss: float = math.nan
    loss_error: float = math.nan
    history: list[Step] = field(default_factory=list)


class StochasticTraining:
    """The loop over steps on all rows."""

    def __init__(self, start: Hyperparameters, problem: Problem, settings: Training, priors: Priors) -> None:
        # Products keep their threads where the vectors around them are too short for more than one.
        self._problem = replace(problem, threads=problem.threads or torch.get_num_threads())
        self._threads = paying_threads(problem.y.numel() + problem.rows * settings.probes)
        self._settings, self._priors = settings, priors
        self._coordinates = Coordinates(start, softplus=settings.softplus)
        self._estimator = GradientEstimator.draw(
            start,
            self._problem,
            kind=settings.gradient,
            probes=settings.probes,
            priors=priors,
            seed=settings.seed,
        )
        self.state = State(self._coordinates.vector(start), precision=_name(problem.precision))
        self._built: Preconditioner | None = None  # at the state's anchor

    @property
    def hyperparameters(self) -> Hyperparameters:
        """Where the next step is taken."""
        return self._coordinates.hyperparameters(self.state.vector)

    @property
    def weights(self) -> Tensor | None:
        """Of the targets (m, q), as to be expected: where a final solve may start."""
        start = self.warm_start
        return None if start is None else start[:, : self._problem.y.shape[1]]

    @property
    def warm_start(self) -> Tensor | None:
        """Solutions (m, q + s) to expect there: the last ones, carried on as they changed.

        Loose solves that start from the last solutions lag behind: those of the probes grow as the noise
        falls, its trace is taken for too small, and the noise falls too far.
        """
        state = self.state
        if state.solutions is None or state.secant is None or state.before is None:
            return state.solutions
        moved, change = state.secant
        ahead = state.vector - state.before[0]
        if float(moved @ ahead) <= 0.0:
            return state.solutions
        return state.solutions + min(1.0, float(ahead.norm() / moved.norm())) * change

    def run(
        self, observe: Callable[[Step, Hyperparameters], object], save: Callable[[State], object]
    ) -> None:
        """All steps that are left; `save` after each."""
        while self.state.index < (self._settings.steps or 0):
            hyperparameters = self.hyperparameters
            with torch_threads(self._threads):
                step = self._step(hyperparameters)
            self.state.history.append(step)
            save(self.state)
            observe(step, hyperparameters)

    def _step(self, hyperparameters: Hyperparameters) -> Step:
        began = time.perf_counter()
        state = self.state
        try:
            found = self._evaluate(hyperparameters)
        except InputError:
            if state.before is None:  # where training starts is the user's choice, and so is the message
                raise
            found = None
        passes, note = 0 if found is None else found.passes, ""
        norm, residual, precision = math.nan, math.nan, state.precision
        if found is not None:
            slope = self._coordinates.pull_back(state.vector, found.gradient)
            norm, precision, residual = float(slope.abs().max()), found.result.precision, found.residual
        if found is None or not found.finite:
            note = self._roll_back()
        else:
            passes += self._advance(hyperparameters, found, slope)
        return Step(
            "cg", len(state.history), state.loss, state.loss_error, values_of(hyperparameters), norm, passes,
            residual, precision, time.perf_counter() - began, peak_memory(), note,
        )  # fmt: skip

    def _evaluate(self, hyperparameters: Hyperparameters) -> Evaluation:
        state = self.state
        if state.anchor is None or float((state.vector - state.anchor).abs().max()) > KEPT:
            state.anchor, self._built = state.vector, None
        found = evaluate(
            hyperparameters,
            self._problem,
            self._settings,
            self._estimator,
            precision=self._rung,
            start=self.warm_start,
            near=self._coordinates.hyperparameters(state.anchor),
            built=self._built,
        )
        self._built = found.built
        return found

    @property
    def _rung(self) -> str | Precision:
        """Of the solves: as the user has it, or what a step that failed climbed to."""
        given = self._problem.precision
        return given if self.state.precision == _name(given) else self.state.precision

    def _advance(self, hyperparameters: Hyperparameters, found: Evaluation, slope: Tensor) -> int:
        """Take what was found into the state, and go on; returns passes over K that this took.

        Args:
            hyperparameters: where the step was taken.
            found: there.
            slope: the gradient (p,) on the real line.
        """
        state, passes = self.state, 0
        if state.before is None:
            state.loss, state.loss_error, passes = self._loss(hyperparameters, found)
        else:
            # By the trapezoid rule from the last one: the gradients are there, a log-determinant is not.
            origin, before = state.before
            state.loss += float(0.5 * (before + slope) @ (state.vector - origin))
        solutions = found.solutions
        if state.before is not None and state.solutions is not None:
            state.secant = (state.vector - state.before[0], solutions - state.solutions)
        state.solutions = solutions
        state.before = (state.vector, slope)
        optimiser = make_optimiser(self._settings.optimiser, self._settings.learning_rate)
        optimiser.restore(state.optimiser)
        state.vector = optimiser.step(state.vector, slope)
        state.optimiser = optimiser.state()
        state.index += 1
        return passes

    def _roll_back(self) -> str:
        """Half way back to the last good vector, on the next rung; returns a note for the history."""
        state = self.state
        below = state.precision if state.precision in RUNGS else "single"
        if below == RUNGS[-1]:
            raise TrainingError(
                f"Step {state.index} has no finite gradient even in double. Lower `learning_rate`, or raise"
                " `noise_floor`."
            )
        state.precision, self._built = RUNGS[RUNGS.index(below) + 1], None
        if state.before is not None:
            state.vector = state.before[0] + BACKTRACK * (state.vector - state.before[0])
        return f"no finite gradient: rolled back, on in {state.precision}"

    def _loss(self, hyperparameters: Hyperparameters, found: Evaluation) -> tuple[float, float, int]:
        """The loss per row and target, its standard error, by Lanczos quadrature, and the passes it took."""
        n, q = self._problem.y.shape
        r = hyperparameters.centred(self._problem.y[self._problem.held])
        determinant = log_determinant(
            found.operator,
            probes=self._settings.probes,
            steps=LANCZOS_STEPS,
            preconditioner=found.built if has_root(found.built) else None,
            seed=self._settings.seed,
            warn=False,  # its error is that of the loss
        )
        prior = float(log_prior(hyperparameters.named_parameters(), self._priors))
        fit = float(found.operator.dot(r, found.solutions[:, :q]).sum())
        loss = (0.5 * (fit + q * determinant.value) - prior) / (n * q) + 0.5 * math.log(2 * math.pi)
        return loss, 0.5 * determinant.error / n, determinant.passes


def _name(precision: str | Precision) -> str:
    return precision if isinstance(precision, str) else precision.name
