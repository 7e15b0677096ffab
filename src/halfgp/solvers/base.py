"""What every solver returns: the solution, how it ended, what it cost, and its true residual."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np

from halfgp.data import Array
from halfgp.errors import InputError

EARLIER = 4.0


class Status(str, Enum):
    """How a solve, or one column of it, ended."""

    CONVERGED = "converged"
    MAX_ITERATIONS = "max_iterations"
    STAGNATED = "stagnated"
    BREAKDOWN = "breakdown"
    NONFINITE = "nonfinite"

    def __str__(self) -> str:
        return self.value


# The first of these that any column has is the status of the whole.
SEVERITY = (Status.NONFINITE, Status.BREAKDOWN, Status.STAGNATED, Status.MAX_ITERATIONS, Status.CONVERGED)


@dataclass(frozen=True)
class Climb:
    """One step up the ladder of precisions.

    Attributes:
        iteration: after which it happened.
        source: the rung left.
        target: the rung taken.
        reason: "curvature", "gap", "stagnation", "divergence" or "nonfinite".
    """

    iteration: int
    source: str
    target: str
    reason: str


@dataclass(frozen=True)
class SolveResult:
    """The outcome of a solve, with t columns.

    Attributes:
        solution: (n,) or (n, t), in the library of the right-hand side and in float64 whatever that is in: to
            round it would add up to eps |A| |x| to a residual that is reported without.
        status: of the worst column.
        column_status: of each column.
        iterations: until the last column stopped.
        passes: products with the matrix, residual checks included, each counted once.
        passes_by_precision: the same by the name of the rung.
        residual_norms: (t,) true relative residuals |b - A x| / |b|, with A in double as given.
        history: (iterations, t) relative residuals of the recurrence.
        precision: the rung at the end.
        climbs: when the solve changed rungs, and why.
        tol: what was asked for; of several the loosest.
        earlier: iterates, of the shape of the solution, where the recurrence first was within `EARLIER` times
            the tolerances: what changed since then tells how exact the solution is. None if not kept.
        residual: b - A x, of the shape of the solution, true as its norms are. None if not kept.
        errors: (t,) estimates of |x - A^-1 b|_A / √n; NaN where no `error_tol` asked. None if not kept.
        shifts: (s,) of a multi-shift solve, whose solution is (s, n, t) and whose residuals (s, t); or None.
        advice: why it failed and what to do, where `cg` did.
    """

    solution: Array
    status: Status
    column_status: tuple[Status, ...]
    iterations: int
    passes: int
    passes_by_precision: dict[str, int]
    residual_norms: Array
    history: Array
    precision: str
    climbs: tuple[Climb, ...]
    tol: float
    earlier: Array | None = None
    residual: Array | None = None
    errors: Array | None = None
    shifts: tuple[float, ...] | None = None
    advice: str = ""

    @property
    def converged(self) -> bool:
        """Whether every column is within the tolerance."""
        return self.status is Status.CONVERGED

    def columns(self, count: int) -> SolveResult:
        """The outcome of the first so many columns alone; iterations and passes served all of them."""
        statuses = self.column_status[:count]
        return replace(
            self,
            solution=self.solution[:, :count],
            status=worst(statuses),
            column_status=statuses,
            residual_norms=self.residual_norms[:count],
            history=self.history[:, :count],
            earlier=None if self.earlier is None else self.earlier[:, :count],
            residual=None if self.residual is None else self.residual[:, :count],
            errors=None if self.errors is None else self.errors[:count],
        )

    def __str__(self) -> str:
        largest = float(np.max(np.asarray(self.residual_norms), initial=0.0))
        passes = ", ".join(f"{count} {name}" for name, count in self.passes_by_precision.items())
        lines = [
            f"{self.status}: true residual {largest:.2e} (worst of {len(self.column_status)}),"
            f" tolerance {self.tol:.0e}",
            f"{self.iterations} iterations, {self.passes} passes" + (f" ({passes})" if passes else ""),
        ]
        lines += [
            f"climbed from {step.source} to {step.target} after {step.iteration} iterations: {step.reason}"
            for step in self.climbs
        ]
        counts = Counter(self.column_status)
        if len(counts) > 1:
            lines.append(", ".join(f"{count} {status}" for status, count in counts.items()))
        return "\n".join(lines)

    def plot(self, axes: Any = None) -> Any:
        """Draw the recurrence history, the tolerance, the climbs and the true residuals; needs matplotlib.

        Args:
            axes: matplotlib axes to draw into; new ones if None.

        Returns:
            The axes.
        """
        import matplotlib.pyplot as plt

        axes = plt.subplots()[1] if axes is None else axes
        history = np.asarray(self.history)
        axes.semilogy(np.arange(1, len(history) + 1), history, lw=1)
        axes.axhline(self.tol, color="0.6", ls="--", label="tolerance")
        for step in self.climbs:
            axes.axvline(step.iteration, color="0.8", label=f"to {step.target}")
        ends = np.full(len(np.ravel(self.residual_norms)), len(history))
        axes.semilogy(ends, np.ravel(self.residual_norms), "k_", label="true residual")
        axes.set_xlabel("iteration")
        axes.set_ylabel("relative residual")
        axes.legend()
        return axes


def worst(statuses: Sequence[Status]) -> Status:
    """The status of a whole from those of its columns."""
    return next((status for status in SEVERITY if status in statuses), Status.CONVERGED)


def check_tolerance(tol: float, max_iterations: int, min_iterations: int = 0) -> None:
    """Raise unless the tolerance is a positive number and the iterations a count."""
    if not 0.0 < tol < float("inf"):
        raise InputError(f"`tol` must be a positive finite number; got {tol!r}. It is relative: 1e-2, say.")
    for name, count in (("max_iterations", max_iterations), ("min_iterations", min_iterations)):
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise InputError(f"`{name}` must be a non-negative integer; got {count!r}.")
