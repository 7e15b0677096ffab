"""Solves on real data at trained hyperparameters: residuals by solver, preconditioner, tolerance, kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from halfgp.analysis import history
from halfgp.backends.storage import rounding_to_noise
from halfgp.operators import KernelOperator
from halfgp.paper.frame.context import Context
from halfgp.paper.frame.drawing import REFERENCE, SERIES
from halfgp.paper.frame.part import Data
from halfgp.paper.studies.trained import Trained, trained
from halfgp.precision import HALF
from halfgp.report import words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TOL = 0.5  # the paper's residual
ITERATIONS = 50  # the paper's
LOW = 0.05  # a lower one, to see who goes on
DRAWN_TOL = 0.01  # lines end here
RANK = 15
PROBES = 10


@dataclass(frozen=True)
class Case:
    """A set with a trained kernel.

    Attributes:
        name: of the set.
        x: (n, d).
        y: (n,).
        found: kernel and noise.
    """

    name: str
    x: Tensor
    y: Tensor
    found: Trained

    @classmethod
    def load(
        cls,
        context: Context,
        name: str,
        *,
        quick: int,
        full: int | None,
        kernel: str = "rbf",
        ard: bool = True,
        training: str | None = None,
    ) -> Case:
        """So many rows of a set, and what `trained` has for it."""
        rows = context.rows(name, most=context.pick(quick=quick, full=full))
        return cls(name, rows.x, rows.y, trained(name, kernel, ard=ard, training=training))

    def half(self) -> KernelOperator:
        """With entries held in half, as the paper has them."""
        return KernelOperator(
            self.found.kernel, self.x, noise=self.found.noise, precision="half", storage="stored"
        )

    def single(self) -> KernelOperator:
        """With entries in single, computed on the fly."""
        return KernelOperator(self.found.kernel, self.x, noise=self.found.noise, precision="single")

    def rho(self) -> float:
        """An estimate of the norm of the rounding errors of entries in half, over the noise."""
        noise = torch.tensor(self.found.noise, dtype=torch.float64)
        return rounding_to_noise(self.found.kernel, self.x, noise, HALF)

    def probes(self, seed: int) -> Tensor:
        """Gaussian right-hand sides (n, 10), as gradients need."""
        generator = torch.Generator().manual_seed(seed + 1)
        return torch.randn(len(self.y), PROBES, dtype=torch.float64, generator=generator)

    @property
    def size(self) -> str:
        """Rows and features, in words."""
        return f"{words.count(len(self.y))} rows of {self.name}, {self.x.shape[1]} features"


def solve(operator: KernelOperator, b: Tensor, solver: str, rank: int, label: str) -> Data:
    """The residual by iteration, and what was reached at the paper's tolerance.

    `history` goes on to a lower tolerance than that, and `ending` tells how. `iterations` is None where the
    paper's was not reached. `residual` is the true one of the iterate at which the recurrence first was
    within the tolerance, or lowest. `low` is the iteration at which the recurrence was within the lower
    tolerance, or None.
    """
    drawn = history(
        operator, b, solver=solver, rank=rank, tol=DRAWN_TOL, max_iterations=ITERATIONS, label=label
    )
    reached = history(operator, b, solver=solver, rank=rank, tol=TOL, max_iterations=ITERATIONS)
    return {
        "label": label,
        "rank": rank,
        "history": [1.0, *drawn.history],  # that of x = 0
        "ending": drawn.status,
        "status": reached.status,
        "iterations": reached.iterations if reached.status == "converged" else None,
        "ended": reached.iterations,
        "residual": reached.residual,
        "low": next((k for k, value in enumerate(drawn.history, start=1) if value <= LOW), None),
    }


def converged(run: Data) -> bool:
    """Whether the true residual got below the paper's tolerance in time."""
    return run["iterations"] is not None


def outcome(run: Data) -> str:
    """How a solve went, in words."""
    reached = f"true residual {words.number(run['residual'], 3)}"
    if converged(run):
        return f"{reached} after {words.plural(run['iterations'], 'iteration')}"
    endings = {
        "max_iterations": f"not in {ITERATIONS} iterations",
        "nonfinite": f"overflow after {words.plural(run['ended'], 'iteration')}",
        "breakdown": f"breakdown after {words.plural(run['ended'], 'iteration')}",
        "stagnated": f"the recurrence says so after {words.plural(run['ended'], 'iteration')}, wrongly",
    }
    return f"{endings[run['status']]}, {reached}"


def listed(runs: Sequence[Data]) -> str:
    """How each of several solves went."""
    return "; ".join(f"{run['label']}: {outcome(run)}" for run in runs)


def listed_low(runs: Sequence[Data]) -> str:
    """When the recurrence of each came to the lower tolerance."""
    taken = ", ".join("–" if run["low"] is None else str(run["low"]) for run in runs)
    return f"To {LOW:g} the recurrence takes {taken} iterations (a dash: more than {ITERATIONS})"


def counts(runs: Sequence[Data]) -> list[list[float]]:
    """Iterations of each to either tolerance, infinite where it was not reached; none that nobody reached."""
    both = ([math.inf if run[key] is None else run[key] for run in runs] for key in ("iterations", "low"))
    return [taken for taken in both if min(taken) < math.inf]


def draw_runs(runs: Sequence[Data], axes: Axes) -> None:
    """One line for each solve, with a cross where it broke down."""
    for run, colour in zip(runs, SERIES, strict=False):
        values = [value for value in run["history"] if value is not None]
        axes.semilogy(range(len(values)), values, color=colour, linewidth=2, label=run["label"])
        if run["ending"] in ("nonfinite", "breakdown"):
            axes.semilogy(len(values) - 1, values[-1], "x", color=colour, markersize=8, markeredgewidth=2)
    axes.axhline(TOL, color=REFERENCE, linestyle=":", linewidth=1.5)
    axes.set(xlabel="iteration", ylabel="relative residual")
