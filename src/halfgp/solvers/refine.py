"""Iterative refinement: cheap solves on one rung, around residuals that are true."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from halfgp.data import ArrayLike, Vectors, as_vectors
from halfgp.errors import ConvergenceWarning, InputError
from halfgp.operators.adapters import as_operator
from halfgp.precision import Precision
from halfgp.preconditioners import Preconditioner, PreconditionerConfig, build_preconditioner
from halfgp.solvers.advice import advice
from halfgp.solvers.base import SolveResult, Status, check_tolerance
from halfgp.solvers.best import Best
from halfgp.solvers.gap import GapMonitor
from halfgp.solvers.ladder import PROGRESS, Ladder
from halfgp.solvers.recurrence import Arithmetic, Recurrence


def contraction(ladder: Ladder) -> float:
    """The factor rho / (1 - rho) that a round of refinement is expected to gain; inf where rho >= 1.

    rho = |E| / noise, E being the error of the matrix on its rung, is read off a sample of rows; NaN where
    there are none to read, or no noise.
    """
    noise = ladder.wide.least_nugget if ladder.wide.size else 0.0
    if noise <= 0.0 or not ladder.wide.has_rows:
        return float("nan")
    nothing = torch.zeros(ladder.wide.rows_held, 1, dtype=torch.float64, device=ladder.wide.device)
    rho = GapMonitor(ladder.wide, nothing).perturbation(ladder.system) / noise
    return rho / (1.0 - rho) if rho < 1.0 else float("inf")


def refine(
    A: Any,
    b: ArrayLike,
    *,
    precision: str | Precision = "half",
    preconditioner: Preconditioner | PreconditionerConfig | None = None,
    tol: float = 1e-2,
    inner_tol: float = 0.1,
    max_iterations: int = 1000,
) -> SolveResult:
    """Solve A x = b by rounds of conjugate gradients on one low rung, each on the last true residual.

    Converges where rho / (1 - rho) < 1, that is rho < 1/2: each round contracts by that or by `inner_tol`,
    whichever is worse. `cg` does the same without losing its Krylov space, and climbs where this would
    stall; this is for hardware on which the low rung is several times as fast as any other.

    Args:
        A: as for `cg`.
        b: (n,) or (n, t).
        precision: the rung of the inner solves.
        preconditioner: as for `cg`.
        tol: largest true relative residual of any column.
        inner_tol: relative residual at which an inner solve ends.
        max_iterations: of all inner solves together.

    Raises:
        InputError: the contraction is known not to be below one.
    """
    check_tolerance(tol, max_iterations)
    check_tolerance(inner_tol, max_iterations)
    system = as_operator(A)
    vectors = as_vectors(b, "b", system.rows_held, system.device, float("inf"))
    ladder = Ladder(system, precision)
    factor = contraction(ladder)
    if factor >= 1.0:
        raise InputError(
            f"Refinement in {ladder.name} would not converge: rho / (1 - rho) is {factor:.2g} and must be"
            ' below 1. The noise is too small for the format; use `cg` with precision="auto".'
        )
    built = build_preconditioner(preconditioner, system)
    with torch.no_grad():
        rounds = _Refinement(ladder, built, vectors.values, tol)
        rounds.run(inner_tol, max_iterations)
        result = rounds.result(vectors)
    if not result.converged:
        warnings.warn(advice(result, built), ConvergenceWarning, stacklevel=2)
    return result


class _Refinement:
    """Rounds of inner solves, and why they ended."""

    def __init__(self, ladder: Ladder, built: Preconditioner | None, b: Tensor, tol: float) -> None:
        self._ladder, self._built = ladder, built
        self._best = Best(ladder, b, tol)
        self._history: list[Tensor] = []
        self._ending = Status.MAX_ITERATIONS

    def run(self, inner_tol: float, limit: int) -> None:
        """Until all columns are within the tolerance, iterations are used up, or a round gains nothing."""
        best = self._best
        while bool(best.failing.any()) and len(self._history) < limit:
            before, failed = best.relative.clone(), best.failing
            x, broken = self._inner_solve(inner_tol, limit)
            best.look(x)
            if broken or bool((best.relative > PROGRESS * before)[failed].any()):
                self._ending = Status.BREAKDOWN if broken else Status.STAGNATED
                return

    def _inner_solve(self, inner_tol: float, limit: int) -> tuple[Tensor, bool]:
        """The iterate (n, t) after a round, and whether curvature was not positive."""
        best = self._best
        inner = Recurrence(
            self._ladder.system,
            self._built,
            arithmetic=Arithmetic.of(self._ladder.system.precision),
            inner_product="direct",
            window=None,
            x=best.x.clone(),
            r=best.r.clone(),
        )
        goal = (inner_tol * best.relative).clamp_min(0.5 * best.tol)
        active = best.failing
        while bool(active.any()) and len(self._history) < limit:
            self._ladder.passes[self._ladder.name] += 1
            if bool(inner.step(active).any()):
                return inner.x, True
            self._history.append(best.size(inner.r))
            active = active & (self._history[-1] > goal)
        return inner.x, False

    def result(self, vectors: Vectors) -> SolveResult:
        """The outcome."""
        return self._best.result(vectors, self._ending, self._history)
