"""Residuals by iteration, for the paper's solvers and for ours."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch

from halfgp.data import ArrayLike
from halfgp.errors import ConvergenceWarning, InputError
from halfgp.preconditioners import PivotedCholesky
from halfgp.solvers import cg

_STANDARD: dict[str, Any] = {"inner_product": "direct", "reorthogonalise": False}
# What each is of `cg`. "standard" in 16 bits holds everything in 16 bits; "stable" is the paper's method.
# Those with the name of a precision alone are the default method on that rung.
SOLVERS: dict[str, dict[str, Any]] = {
    "standard": {"method": "paper", "precision": "half", **_STANDARD},
    "stable": {"method": "paper", "precision": "half"},
    "half": {"precision": "half"},
    "standard bfloat16": {"method": "paper", "precision": "bfloat16", **_STANDARD},
    "stable bfloat16": {"method": "paper", "precision": "bfloat16"},
    "bfloat16": {"precision": "bfloat16"},
    "standard single": {"precision": "single", **_STANDARD},
    "single": {"precision": "single"},
    "log single": {"precision": "single", "inner_product": "log"},
    "standard double": {"precision": "double", **_STANDARD},
    "double": {"precision": "double"},
    "default": {},
}


@dataclass(frozen=True)
class Residuals:
    """How a solve went.

    Attributes:
        label: for a legend.
        history: the recurrence's relative residual after each iteration, of the worst column; what is not
            finite stands as it is.
        residual: true relative residual in the end, of the worst column.
        status: in a word, such as "converged" or "breakdown".
        iterations: how many.
        passes: products with the matrix.
        precision: the rung in the end.
    """

    label: str
    history: tuple[float, ...]
    residual: float
    status: str
    iterations: int
    passes: int
    precision: str


def history(
    operator: Any,
    b: ArrayLike,
    *,
    solver: str = "default",
    rank: int = 0,
    tol: float = 1e-2,
    max_iterations: int = 1000,
    label: str | None = None,
    **options: Any,
) -> Residuals:
    """Solve operator x = b and tell the residual after every iteration.

    Args:
        operator: as for `cg`. For entries in 16 bits, as the paper has them, a `KernelOperator` with
            `precision="half", storage="stored"`.
        b: (n,) or (n, t).
        solver: one of `SOLVERS`.
        rank: of the pivoted Cholesky preconditioner; 0 for none.
        tol: as for `cg`.
        max_iterations: as for `cg`.
        label: by default the solver and the rank.
        options: more of `cg`, over those of the solver.
    """
    if solver not in SOLVERS:
        raise InputError(f"`solver` must be one of {', '.join(SOLVERS)}; got {solver!r}.")
    recipe = PivotedCholesky(rank=rank) if rank else None
    chosen = {"preconditioner": recipe, "tol": tol, "max_iterations": max_iterations}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the status says it
        result = cg(operator, b, **{**chosen, **SOLVERS[solver], **options})
    # A solve may overflow before its first iteration, and leave a history of no rows.
    columns = len(result.column_status)
    worst = torch.as_tensor(result.history).double().reshape(result.iterations, columns).amax(dim=1)
    return Residuals(
        label=label or f"{solver}, rank {rank}",
        history=tuple(worst.tolist()),
        residual=float(torch.as_tensor(result.residual_norms).max()),
        status=str(result.status),
        iterations=result.iterations,
        passes=result.passes,
        precision=result.precision,
    )
