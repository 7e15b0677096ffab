"""What the fit loop is told; a user says it through `Settings`, which has the defaults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from halfgp.preconditioners import PreconditionerConfig
from halfgp.preconditioners.recipes import recipe_named


@dataclass(frozen=True)
class Training:
    """Settings of the fit loop.

    Attributes:
        method: "cholesky" for exact gradients in double, "cg" for stochastic ones, or "auto": Cholesky up to
            `CHOLESKY_ROWS` rows.
        subset: rows of the pre-training before "cg", 0 for none.
        subset_iterations: at most so many iterations of L-BFGS there, and with "cholesky".
        restarts: further starts there, drawn at random.
        search: an optimiser of one's own there, or None for L-BFGS.
        optimiser: of the steps on all rows with "cg": "adam", or "lbfgs" on the frozen probes.
        steps: on all rows, with "cg"; None for exact ones, while they pay.
        learning_rate: of Adam, per step on the real line.
        probes: right-hand sides beside the targets.
        gradient: "neighbours", "pathwise" or "hutchinson".
        preconditioner: "auto", "pivoted_cholesky", "randomly_pivoted_cholesky", "nystrom", None or a recipe.
        rank: of the preconditioner; None is automatic.
        tol: true relative residual of every column of a training solve.
        min_iterations: of a training solve, whatever the tolerance.
        max_iterations: of a training solve.
        softplus: move positive parameters through softplus, as GPyTorch does, instead of exp.
        seed: of everything random.
    """

    method: str
    subset: int
    subset_iterations: int
    restarts: int
    search: Callable[..., Any] | None
    optimiser: str
    steps: int | None
    learning_rate: float
    probes: int
    gradient: str
    preconditioner: str | PreconditionerConfig | None
    rank: int | None
    tol: float
    min_iterations: int
    max_iterations: int
    softplus: bool
    seed: int

    def recipe(self, automatic: int | None = None) -> PreconditionerConfig | None:
        """The preconditioner to build in every step, or with a rank of its own where that is automatic."""
        if isinstance(self.preconditioner, str):
            return recipe_named(self.preconditioner, automatic if self.rank is None else self.rank)
        return self.preconditioner
