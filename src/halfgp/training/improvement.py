"""Exact steps: the gradient on all rows corrects what neighbourhoods say, for as long as that pays."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from halfgp.choices import EXACT_STEPS, neighbourhoods
from halfgp.errors import InputError
from halfgp.hyperparameters import Coordinates, Hyperparameters
from halfgp.likelihood import CorrectedLikelihood, GradientEstimator, NeighbourLikelihood
from halfgp.memory import peak_memory
from halfgp.priors import Priors
from halfgp.problem import Problem
from halfgp.threads import paying_threads, torch_threads
from halfgp.training.evaluation import Evaluation, evaluate
from halfgp.training.exact import train_exactly
from halfgp.training.history import Step, values_of
from halfgp.training.judgement import Judgement, judge
from halfgp.training.settings import Training

ITERATIONS = 20  # of the search that follows a gradient
TRUSTED = 0.5  # how far, on the real line, a gradient is followed: a factor of 1.6
SHARES = (0.5, 1.0)  # of the way to where the search ends that are judged: curvatures differ, too
FLAT = 1e-5  # a change of the loss per row that ends the search
logger = logging.getLogger("halfgp")


@dataclass(frozen=True)
class Improved:
    """Hyperparameters, before exact steps and after them.

    Attributes:
        hyperparameters: there.
        judged: how they predict.
        weights: (m, q) of the targets where they were solved for there, or None.
    """

    hyperparameters: Hyperparameters
    judged: Judgement
    weights: Tensor | None = None


def improve(
    start: Improved,
    problem: Problem,
    settings: Training,
    priors: Priors,
    *,
    seed: int,
    observe: Callable[[Step, Hyperparameters], object],
) -> Improved:
    """Take steps on all rows while rows that are left out gain more by them than chance would give.

    A step takes one solve, for the gradient of the whole likelihood, with the factor of neighbours as control
    variate of its trace. That corrects the likelihood of neighbourhoods, whose optimum nearby is searched
    for. The end of that search and the middle of the way there are judged.

    Args:
        start: where, and how that predicts.
        problem: the rows.
        settings: of probes and solves.
        priors: of the hyperparameters.
        seed: of the rows that are left out.
        observe: called with every step.
    """
    here, stepper = start, _Stepper(start.hyperparameters, problem, settings, priors, observe)
    for index in range(EXACT_STEPS):
        try:
            found, ahead = stepper.step(here.hyperparameters, index)
        except InputError as error:  # too little noise for neighbours, or for a solve
            logger.info("exact steps end early: %s", error)
            return here
        here = replace(here, weights=found.solutions[:, : problem.y.shape[1]])
        tried = [Improved(there, judge(there, problem, seed)) for there in ahead]
        best = max(tried, key=lambda there: there.judged.log_density, default=here)
        paid = best.judged.surpasses(here.judged)
        logger.info("exact step %d: %s, then %s%s", index, here.judged, best.judged, "" if paid else "; left")
        if not paid:
            return here
        here = best
    return here


class _Stepper:
    """Everything that steps share; what is random is drawn once."""

    def __init__(
        self,
        start: Hyperparameters,
        problem: Problem,
        settings: Training,
        priors: Priors,
        observe: Callable[[Step, Hyperparameters], object],
    ) -> None:
        # Products keep their threads where the vectors around them are too short for more than one.
        self._problem = replace(problem, threads=problem.threads or torch.get_num_threads())
        self._threads = paying_threads(problem.y.numel() + problem.rows * settings.probes)
        self._settings, self._priors, self._observe = settings, priors, observe
        self._estimator = GradientEstimator.draw(
            start,
            self._problem,
            kind=settings.gradient,
            probes=settings.probes,
            priors=priors,
            seed=settings.seed,
        )
        self._solutions: Tensor | None = None

    def step(self, here: Hyperparameters, index: int) -> tuple[Evaluation, list[Hyperparameters]]:
        """The gradient there, and where it leads: nowhere if it is not finite."""
        began = time.perf_counter()
        with torch_threads(self._threads):
            found = evaluate(
                here,
                self._problem,
                self._settings,
                self._estimator,
                precision=self._problem.precision,
                start=self._solutions,
            )
        coordinates = Coordinates(here)
        origin = coordinates.vector(here)
        norm = float(coordinates.pull_back(origin, found.gradient).abs().max())
        if not found.finite:
            self._tell(here, found, index, torch.nan, norm, began)
            return found, []
        self._solutions = found.solutions
        corrected = self._corrected(here, found)
        self._tell(here, found, index, corrected(here).loss, norm, began)
        end, _ = train_exactly(
            here,
            corrected,
            rows=self._problem.rows,
            stage="neighbours",
            iterations=ITERATIONS,
            flat=FLAT,
            observe=self._observe,
            reach=TRUSTED,
        )
        way = coordinates.vector(end) - origin
        return found, [coordinates.hyperparameters(origin + share * way) for share in SHARES]

    def _corrected(self, here: Hyperparameters, found: Evaluation) -> CorrectedLikelihood:
        rows, neighbours = neighbourhoods(self._problem.features)
        around = NeighbourLikelihood.around(
            here,
            self._problem,
            rows=rows,
            neighbours=neighbours,
            seed=self._settings.seed,
            priors=self._priors,
        )
        return CorrectedLikelihood.at(here, found.gradient, around)

    def _tell(
        self,
        here: Hyperparameters,
        found: Evaluation,
        index: int,
        loss: float,
        norm: float,
        began: float,
    ) -> None:
        """One line of the history; its loss is that of neighbourhoods, for no log-determinant is taken."""
        step = Step(
            "cg", index, loss, torch.nan, values_of(here), norm, found.passes, found.residual,
            found.result.precision, time.perf_counter() - began, peak_memory(),
        )  # fmt: skip
        self._observe(step, here)
