"""Lanczos tridiagonalisation of many starting vectors at once, re-orthogonalised, in any precision."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import torch
from numpy.typing import NDArray
from torch import Tensor

from halfgp.data import ArrayLike, as_vectors
from halfgp.errors import InputError
from halfgp.operators.adapters import as_operator
from halfgp.operators.base import Operator, column_major, rung_name
from halfgp.precision import DOUBLE, Precision
from halfgp.solvers.recurrence import rounded
from halfgp.solvers.reorthogonalise import Basis, window_of

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class LanczosResult:
    """A Q = Q T + remainder, for each of t starting vectors.

    Attributes:
        diagonal: (steps, t) of T, float64.
        off_diagonal: (steps, t) of T; the last row is the norm of the remainder.
        lengths: (t,) steps before a column's space was exhausted; T beyond it is zero.
        norms: (t,) of the starting vectors.
        basis: (t, steps, n) in the format of the rung's vectors, or None if it was not asked for.
        passes: products with A.
        precision: the rung.
    """

    diagonal: Tensor
    off_diagonal: Tensor
    lengths: Tensor
    norms: Tensor
    basis: Tensor | None
    passes: int
    precision: str

    @property
    def is_finite(self) -> bool:
        """Whether every product was."""
        return bool(self.diagonal.isfinite().all())

    def tridiagonal(self, column: int = 0) -> Tensor:
        """T (k, k) of a column, as far as its space goes."""
        k = int(self.lengths[column])
        off = self.off_diagonal[: max(k - 1, 0), column]
        return torch.diag(self.diagonal[:k, column]) + torch.diag(off, 1) + torch.diag(off, -1)

    def ritz(self, column: int = 0) -> tuple[Tensor, Tensor]:
        """Ritz values (k,) ascending, and the squared first components (k,) of their vectors.

        With them, f(A)_vv ≈ |v|² Σ weight f(value): Gauss quadrature.
        """
        k = int(self.lengths[column])
        diagonal, off = self.diagonal[:k, column], self.off_diagonal[: max(k - 1, 0), column]
        values, weights = quadrature(diagonal.cpu().numpy(), off.cpu().numpy())
        return torch.from_numpy(values), torch.from_numpy(weights)


def quadrature(diagonal: Doubles, off_diagonal: Doubles) -> tuple[Doubles, Doubles]:
    """Nodes (k,) ascending and weights (k,) of a tridiagonal matrix: eigenvalues, first components squared.

    As a full matrix it would cost far more, for every probe at every look.
    """
    if not len(diagonal):
        return np.zeros(0), np.zeros(0)
    values, vectors = scipy.linalg.eigh_tridiagonal(diagonal, off_diagonal, check_finite=False)
    return np.asarray(values, dtype=np.float64), np.asarray(vectors[0] ** 2, dtype=np.float64)


def lanczos(
    A: Any,
    start: ArrayLike,
    *,
    steps: int = 50,
    reorthogonalise: bool | int = True,
    precision: str | Precision = "auto",
    keep_basis: bool = False,
) -> LanczosResult:
    """Tridiagonalise a symmetric A from each starting vector.

    Args:
        A: as for `cg`.
        start: (n,) or (n, t).
        steps: products with A; fewer where the space of a vector is exhausted.
        reorthogonalise: as for `cg`; without it Ritz values repeat.
        precision: of the products; "auto" is single. Vectors are normalised in double and rounded once
            to what the rung takes.
        keep_basis: return Q.

    Returns:
        A `LanczosResult`. Costs `steps` passes, O(n t steps²) beside them, memory 4 n t steps bytes, in
        double 8.

    Raises:
        InputError: a product was not finite.
    """
    if steps < 1:
        raise InputError(f"`steps` must be at least 1; got {steps}.")
    system = as_operator(A)
    rung = Precision.resolve(precision) if precision != "auto" else Precision.resolve("single")
    system = system.with_precision(rung)
    vectors = as_vectors(start, "start", system.rows_held, system.device, float("inf"))
    if not system.size or not vectors.values.shape[1]:
        raise InputError(f"`start` must hold a vector; got shape {tuple(vectors.values.shape)}.")
    window = None if keep_basis else window_of(reorthogonalise)
    with torch.no_grad():
        process = LanczosProcess(system, column_major(vectors.values.double()), window)
        for _ in range(min(steps, system.size)):
            process.step()
            if not bool(process.alive.any()):
                break
        result = process.result(keep_basis)
    if not result.is_finite:
        raise InputError(
            f"A product with `A` was not finite in {result.precision}. Check the matrix, rescale it, or use a"
            " wider `precision`."
        )
    return result


class LanczosProcess:
    """The recurrence, one product a step.

    Attributes:
        q: the newest vectors (n, t), normalised; zero in columns whose space is exhausted.
        alive: (t,) which columns still grow.
        diagonal: rows (t,) of T so far.
        off_diagonal: rows (t,), the norms of what came after.
    """

    def __init__(self, system: Operator, start: Tensor, window: int | None) -> None:
        self._system = system
        self._basis = None if window == 0 else Basis(system, window, system.precision.vectors)
        self.norms = system.dot(start, start).sqrt()
        self.alive = self.norms > 0
        self._lengths = torch.zeros(len(self.norms), dtype=torch.long)
        self._size = torch.zeros_like(self.norms)  # of T, for telling a remainder from round-off
        self._previous = torch.zeros_like(start)
        self.q = self._normalised(start, self.norms)
        self.diagonal: list[Tensor] = []
        self.off_diagonal: list[Tensor] = []

    def step(self) -> Tensor:
        """Multiply, and append a row to T; returns the vectors (n, t) that were multiplied."""
        q = self.q
        w = self._system.matmul(q)
        alpha = self._system.dot(q, w)
        w = w.addcmul(q, alpha, value=-1.0)
        if self.off_diagonal:
            w = w.addcmul(self._previous, self.off_diagonal[-1], value=-1.0)
        if self._basis is not None:
            self._basis.append(q)
            for _ in range(2):  # classical Gram-Schmidt is as good as modified, if done twice
                w = w - self._basis.combine(self._basis.coefficients(w))
        size = self._system.binary_scale(w)  # the square of a norm may be beyond double where the norm is not
        scaled = w / size
        beta = self._system.dot(scaled, scaled).sqrt() * size
        self._lengths += self.alive.cpu()
        self._size = torch.maximum(self._size, alpha.abs() + beta)
        self.alive = self.alive & (beta > self.roundoff) & beta.isfinite()
        beta = torch.where(self.alive, beta, 0.0)
        self._previous, self.q = q, self._normalised(w, beta)
        self.diagonal.append(alpha)
        self.off_diagonal.append(beta)
        return q

    def keep(self, columns: slice) -> None:
        """Go on with these columns alone."""
        self.q, self._previous = self.q[:, columns], self._previous[:, columns]
        self.norms, self.alive = self.norms[columns], self.alive[columns]
        self._lengths, self._size = self._lengths[columns], self._size[columns]
        self.diagonal = [row[columns] for row in self.diagonal]
        self.off_diagonal = [row[columns] for row in self.off_diagonal]
        if self._basis is not None:
            self._basis.keep(columns)

    @property
    def roundoff(self) -> Tensor:
        """(t,) What a number of T that is zero may come out as."""
        return self.eps * math.sqrt(self._system.size) * self._size

    @property
    def precision(self) -> Precision:
        """Of the products."""
        return self._system.precision

    @property
    def eps(self) -> float:
        """Of the products."""
        return self._system.precision.products.eps

    def result(self, keep_basis: bool) -> LanczosResult:
        """What has been found so far."""
        basis = self._basis.stacked() if keep_basis and self._basis is not None else None
        return LanczosResult(
            torch.stack(self.diagonal),
            torch.stack(self.off_diagonal),
            self._lengths.clone(),
            self.norms,
            basis,
            len(self.diagonal),
            rung_name(self._system.precision),
        )

    def _normalised(self, v: Tensor, norm: Tensor) -> Tensor:
        """Unit vectors, rounded once to what the rung takes; zero where the column has ended."""
        safe = torch.where(norm > 0, norm, 1.0)
        unit = torch.where(self.alive, v / safe, 0.0)
        fmt = self._system.precision.vectors
        return unit if fmt == DOUBLE else rounded(unit, fmt)
