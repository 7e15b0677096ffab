"""One sentence on why a solve ended above its tolerance, and one on what to do."""

from __future__ import annotations

import numpy as np

from halfgp.preconditioners import Preconditioner
from halfgp.solvers.base import SolveResult, Status


def advice(result: SolveResult, preconditioner: Preconditioner | None) -> str:
    """The warning for a result that did not converge: outcome, likely cause, remedy."""
    residual = float(np.max(np.asarray(result.residual_norms)))
    outcome = (
        f"{result.status} after {result.iterations} iterations in {result.precision}: true relative residual"
        f" {residual:.2e}, tolerance {result.tol:.0e}"
    )
    errors = np.asarray([] if result.errors is None else result.errors)
    if np.isfinite(errors).any():
        outcome += f", error {float(np.max(errors[np.isfinite(errors)])):.2e} deviations"
    outcome += "."
    return f"{outcome} {_cause(result, preconditioner)}"


def _cause(result: SolveResult, preconditioner: Preconditioner | None) -> str:
    if result.precision != "double" and result.status is not Status.MAX_ITERATIONS:
        if result.status in (Status.BREAKDOWN, Status.NONFINITE):
            return (
                f"The noise is too small for {result.precision}: rounding made the matrix indefinite or a sum"
                ' overflowed. Use precision="auto", which climbs, or a larger noise.'
            )
        return (
            f"The tolerance is below what {result.precision} allows for this noise. Use"
            ' precision="auto" or a wider one, or a larger `tol`.'
        )
    if result.status is Status.MAX_ITERATIONS:
        rank = getattr(preconditioner, "rank", 0)
        return (
            f"The rank of the preconditioner, {rank}, is too low for this noise, or `max_iterations` is."
            f" Try PivotedCholesky(rank={max(100, 4 * int(rank))}), or more iterations."
        )
    if result.status is Status.BREAKDOWN:
        return "The matrix is not positive definite: add noise to its diagonal, or use `minres`."
    if result.status is Status.NONFINITE:
        return "A product was not finite: check the matrix, or rescale it."
    return "The tolerance is below what double precision allows for this matrix. Use a larger `tol`."
