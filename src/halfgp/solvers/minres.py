"""Minimal residuals for symmetric, possibly indefinite systems, with many shifts on one Krylov space."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from halfgp.data import ArrayLike, Vectors, as_vectors
from halfgp.errors import ConvergenceWarning, InputError
from halfgp.operators.adapters import as_operator
from halfgp.operators.base import Operator, column_major
from halfgp.precision import Precision
from halfgp.solvers.advice import advice
from halfgp.solvers.base import SolveResult, Status, check_tolerance
from halfgp.solvers.best import Best
from halfgp.solvers.ladder import CONTRACTION, PROGRESS, Ladder
from halfgp.solvers.lanczos import LanczosProcess
from halfgp.solvers.reorthogonalise import window_of


def minres(
    A: Any,
    b: ArrayLike,
    *,
    shifts: float | Sequence[float] = 0.0,
    tol: float = 1e-2,
    max_iterations: int = 1000,
    reorthogonalise: bool | int = True,
    precision: str | Precision = "auto",
) -> SolveResult:
    """Solve (A + s I) x = b for every shift s, A symmetric and possibly indefinite.

    All shifts share the products, for a shift does not change the Krylov space. True residuals are
    computed in double at the end of a round; what is missing is solved for in another round, a rung higher
    where the last one gained less than a digit.

    Args:
        A: as for `cg`.
        b: (n,) or (n, t).
        shifts: one number, or several.
        tol: largest true relative residual of any column and shift.
        max_iterations: in total.
        reorthogonalise: as for `cg`.
        precision: "auto" starts in single and may climb to double; or one to stay on.

    Returns:
        A `SolveResult`. With several shifts the solution is (s, n) or (s, n, t), and residuals and statuses
        are by shift and column. An iteration costs one product and O(n t s) beside it.
    """
    check_tolerance(tol, max_iterations)
    system = as_operator(A)
    vectors = as_vectors(b, "b", system.rows_held, system.device, float("inf"))
    single = isinstance(shifts, int | float)
    values = torch.tensor([shifts] if single else list(shifts), dtype=torch.float64)  # type: ignore[arg-type]
    if not len(values) or not bool(values.isfinite().all()):
        raise InputError(f"`shifts` must be one or more finite numbers; got {shifts!r}.")
    with torch.no_grad():
        solve = _Rounds(Ladder(system, precision), vectors.values, values, tol, max_iterations)
        solve.run(window_of(reorthogonalise))
        result = solve.result(vectors, None if single else tuple(values.tolist()))
    if not result.converged:
        warnings.warn(advice(result, None), ConvergenceWarning, stacklevel=2)
    return result


class ShiftedMinres:
    """MINRES on one Lanczos process for T right-hand sides with S shifts each.

    The QR factorisation of every shifted tridiagonal matrix is updated by one rotation a step.

    Attributes:
        x: (S, T, n).
        residuals: (S, T) norms, by recurrence.
    """

    def __init__(self, system: Operator, b: Tensor, shifts: Tensor, window: int | None) -> None:
        self._system = system
        self._process = LanczosProcess(system, b, window)
        self._shifts = shifts
        self._phi = self._process.norms.expand(shifts.shape).clone()
        self._open = torch.ones_like(shifts, dtype=torch.bool)
        self._cosines = [torch.ones_like(shifts), torch.ones_like(shifts)]
        self._sines = [torch.zeros_like(shifts), torch.zeros_like(shifts)]
        self.x = torch.zeros(*shifts.shape, len(b), dtype=torch.float64, device=b.device)
        self._directions = [torch.zeros_like(self.x), torch.zeros_like(self.x)]

    @property
    def residuals(self) -> Tensor:
        """Norms (S, T) of b - (A + s) x, as the recurrence has them."""
        return self._phi.abs()

    @property
    def alive(self) -> bool:
        """Whether any Krylov space still grows, to the good of any of its columns."""
        return bool((self._process.alive & self._open).any())

    @property
    def is_finite(self) -> bool:
        """Whether the last product was."""
        return bool(self._process.diagonal[-1].isfinite().all())

    def step(self) -> None:
        """One product, one rotation for every shift and column."""
        previous = self._process.off_diagonal[-1] if self._process.off_diagonal else 0.0
        alive = self._process.alive
        q = self._process.step()
        beta = self._process.off_diagonal[-1]
        (c2, c1), (s2, s1) = self._cosines, self._sines
        diagonal = self._process.diagonal[-1] + self._shifts
        outer, middle = s2 * previous, c2 * previous
        inner = c1 * middle + s1 * diagonal
        corner = -s1 * middle + c1 * diagonal
        length = torch.hypot(corner, beta.expand_as(corner))
        usable = alive & self._open & (length > 0)
        safe = torch.where(usable, length, 1.0)
        cosine = torch.where(usable, corner / safe, 1.0)
        sine = torch.where(usable, beta / safe, 0.0)
        direction = q.T - inner[..., None] * self._directions[1] - outer[..., None] * self._directions[0]
        direction = torch.where(usable[..., None], direction / safe[..., None], 0.0)
        # At the least squares of a singular system the next step goes far along its null space: one whose
        # rounding is more than what it gains is not taken, nor is any after it, unless both are nothing.
        reach = cosine.abs() * self._norms(direction)
        gain = (cosine.square() / (1.0 + sine.abs())).clamp_min(math.sqrt(self._process.eps))
        self._open &= ~(reach * self._process.roundoff > gain)
        usable &= self._open
        self.x += torch.where(usable, cosine * self._phi, 0.0)[..., None] * direction
        self._phi = torch.where(usable, -sine * self._phi, self._phi)
        self._directions = [self._directions[1], direction]
        self._cosines, self._sines = [c1, cosine], [s1, sine]

    def _norms(self, direction: Tensor) -> Tensor:
        """Norms (S, T) of directions (S, T, m), whose squares may overflow."""
        here = (
            direction.abs().amax(dim=-1) if direction.shape[-1] else direction.new_zeros(direction.shape[:-1])
        )
        largest = self._system.largest(here).clamp_min(torch.finfo(torch.float64).tiny)
        squares = (direction / largest[..., None]).square().sum(dim=-1)
        return largest * self._system.total(squares).sqrt()


class _Rounds:
    """Rounds of MINRES, each on the true residual that the last one left; a column is a pair (shift, j)."""

    def __init__(self, ladder: Ladder, b: Tensor, shifts: Tensor, tol: float, limit: int) -> None:
        self.ladder, self._limit = ladder, limit
        self._shape = (len(shifts), b.shape[1])
        self._shifts = shifts.to(b.device).repeat_interleave(b.shape[1])
        self._best = Best(ladder, b.repeat(1, len(shifts)), tol, self._shifts)
        self._history: list[Tensor] = []
        self._ending = Status.MAX_ITERATIONS
        ladder.start_at("single")  # shifted systems have no noise to measure rounding by

    def run(self, window: int | None) -> None:
        """Until every column is within the tolerance, or no round helps."""
        best = self._best
        # In the first round all shifts have the same right-hand sides, and so the same Krylov space.
        rest, shape = best.b[:, : self._shape[1]], self._shape
        while bool(best.failing.any()) and len(self._history) < self._limit:
            before = best.relative.clone()
            step, finite = self._round(rest, shape, window)
            best.look(best.x + step)
            rest, shape = best.r, (1, len(self._shifts))
            if not finite:
                if not self.ladder.climb(len(self._history), "nonfinite"):
                    self._ending = Status.NONFINITE
                    return
                continue
            ratio = float((best.relative / before)[best.failing].max()) if bool(best.failing.any()) else 0.0
            if ratio <= CONTRACTION or len(self._history) >= self._limit:
                continue
            if not self.ladder.climb(len(self._history), "gap") and ratio > PROGRESS:
                self._ending = Status.STAGNATED
                return

    def _round(self, rest: Tensor, shape: tuple[int, int], window: int | None) -> tuple[Tensor, bool]:
        """A correction (n, columns) from right-hand sides rest (n, T), each with S shifts; is all finite?"""
        solver = ShiftedMinres(
            self.ladder.system, column_major(rest.double()), self._shifts.reshape(shape), window
        )
        goal = self._best.tol * self._best.norms
        while solver.alive and len(self._history) < self._limit:
            self.ladder.passes[self.ladder.name] += 1
            solver.step()
            residuals = solver.residuals.reshape(-1)
            self._history.append(residuals / torch.where(self._best.norms > 0, self._best.norms, 1.0))
            if not bool((residuals > goal).any()):
                break
        return solver.x.reshape(len(self._shifts), -1).T, solver.is_finite

    def result(self, vectors: Vectors, shifts: tuple[float, ...] | None) -> SolveResult:
        """The outcome; with several shifts, solution and residuals have a leading axis for them."""
        flat = self._best.result(Vectors(vectors.values, False, vectors.dtype), self._ending, self._history)
        if shifts is None:
            return replace(flat, solution=flat.solution[:, 0] if vectors.squeeze else flat.solution)
        n = flat.solution.shape[0]
        solution = flat.solution.T.reshape(*self._shape, n)
        solution = solution[:, 0] if vectors.squeeze else solution.swapaxes(1, 2)
        residuals = flat.residual_norms.reshape(*self._shape)
        return replace(flat, solution=solution, residual_norms=residuals, shifts=shifts)
