"""How a fit went, in figures."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from halfgp.memory import peak_memory
from halfgp.prediction import Outcome, Posterior
from halfgp.training import Step


@dataclass(frozen=True)
class FitReport:
    """How a fit went; of targets with rows of their own, see `joined`.

    Attributes:
        method: "cholesky" or "cg".
        variance: "cholesky" or "local".
        rows: used.
        dropped: rows without a target.
        steps: evaluations of the likelihood.
        passes: over K, of training and the final solve.
        skipped: of the covariances of all pairs of rows, the share that a pass of the final solve left out
            because they are zero.
        residual: true relative residual of the final solve.
        route: to its solution: "double factor", "single factor" or "products".
        error: that it leaves in means, in predictive deviations: 99 % of rows are below, by an estimate.
        solved: whether that is small enough.
        scale: what leave-one-out residuals on all rows multiplied outputscale and noise by.
        seconds: of the whole fit.
        memory: peak of the process, bytes.
        interrupted: whether Ctrl-C ended the training.
    """

    method: str
    variance: str
    rows: int
    dropped: int
    steps: int
    passes: int
    skipped: float
    residual: float
    route: str
    error: float
    solved: bool
    scale: float
    seconds: float
    memory: int
    interrupted: bool

    @classmethod
    def of(
        cls,
        posterior: Posterior,
        history: Sequence[Step],
        *,
        method: str,
        dropped: int,
        scale: float,
        began: float,
        interrupted: bool = False,
    ) -> FitReport:
        """On a fit that is done now, and began at that `time.perf_counter`."""
        outcome = posterior.outcome
        return cls(
            method=method,
            variance=outcome.variance,
            rows=posterior.problem.rows,
            dropped=dropped,
            steps=len(history),
            passes=sum(step.passes for step in history) + outcome.passes,
            skipped=posterior.skipped,
            residual=outcome.residual,
            route=outcome.route,
            error=outcome.error,
            solved=outcome.solved,
            scale=scale,
            seconds=time.perf_counter() - began,
            memory=peak_memory(),
            interrupted=interrupted,
        )

    @classmethod
    def joined(cls, reports: Sequence[FitReport], *, rows: int, dropped: int) -> FitReport:
        """On several fits, one after the other: sums of what they took, and the worst of how they came out.

        Args:
            reports: on each.
            rows: that any of them used.
            dropped: rows that none did.
        """

        def named(name: str) -> str:
            return ", ".join(dict.fromkeys(getattr(report, name) for report in reports))

        return cls(
            method=named("method"),
            variance=named("variance"),
            rows=rows,
            dropped=dropped,
            steps=sum(report.steps for report in reports),
            passes=sum(report.passes for report in reports),
            skipped=min(report.skipped for report in reports),
            residual=max(report.residual for report in reports),
            route=named("route"),
            error=max(report.error for report in reports),
            solved=all(report.solved for report in reports),
            scale=max((report.scale for report in reports), key=lambda scale: abs(math.log(scale))),
            seconds=sum(report.seconds for report in reports),
            memory=max(report.memory for report in reports),
            interrupted=any(report.interrupted for report in reports),
        )

    def with_outcome(self, outcome: Outcome) -> FitReport:
        """The same fit, with another word on how exact it came out; passes stay as they were counted."""
        return replace(
            self,
            variance=outcome.variance,
            residual=outcome.residual,
            route=outcome.route,
            error=outcome.error,
            solved=outcome.solved,
        )
