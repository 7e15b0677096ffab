"""What every preconditioner gives, and the one form all of ours take: low rank plus the noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeGuard, runtime_checkable

import torch
from torch import Tensor

from halfgp.errors import InputError
from halfgp.operators import Operator, as_operator
from halfgp.precision import DOUBLE

MEMORY = 2**30  # bytes for the factor of a preconditioner of automatic rank
BYTES_OF_PIVOT = 16  # of a row: in single, before the factor is continued too, and in double
CHUNK = 4096  # rows at a time


@runtime_checkable
class Preconditioner(Protocol):
    """P, a symmetric positive definite matrix near A whose inverse is cheap."""

    def solve(self, v: Tensor) -> Tensor:
        """P^-1 v for (n, t), in float64."""
        ...


@runtime_checkable
class Multiplier(Preconditioner, Protocol):
    """One that P itself can be had from, so that a solve keeps its space where a residual is replaced."""

    def matmul(self, v: Tensor) -> Tensor:
        """P v for (n, t), in float64."""
        ...


@runtime_checkable
class Root(Preconditioner, Protocol):
    """P = C C' with a root C, whose inverse is cheap too.

    Attributes:
        below: whether P is not above A, but for rounding: then r' P^-1 r bounds r' A^-1 r.
    """

    below: bool

    def whiten(self, v: Tensor, transposed: bool = False) -> Tensor:
        """C^-1 v, or C^-T v, for (n, t), in float64."""
        ...

    def log_determinant(self) -> float:
        """The logarithm of det P."""
        ...


def is_below(preconditioner: Preconditioner) -> bool:
    """Whether P is known not to be above A; of a stranger's nothing is known."""
    return isinstance(preconditioner, Root) and preconditioner.below


def has_root(preconditioner: Preconditioner | None) -> TypeGuard[Root]:
    """Whether it has a root and a determinant, as all of ours do."""
    return isinstance(preconditioner, Root)


@runtime_checkable
class PreconditionerConfig(Protocol):
    """A recipe: frozen, without data."""

    def build(self, operator: object) -> Preconditioner:
        """The preconditioner of that operator."""
        ...


def build_preconditioner(
    preconditioner: Preconditioner | PreconditionerConfig | None, operator: Operator
) -> Preconditioner | None:
    """The preconditioner itself, or what a recipe makes of the operator."""
    if preconditioner is None or isinstance(preconditioner, Preconditioner):
        return preconditioner
    if isinstance(preconditioner, PreconditionerConfig):
        return preconditioner.build(operator)
    raise InputError(
        "`preconditioner` must be None, a recipe such as `PivotedCholesky()`, or have a method `solve`; got"
        f" {type(preconditioner).__name__}."
    )


@dataclass(frozen=True)
class LowRankPlusNoise:
    """P = L L' + D with D the noise, held as D^1/2 (I + U diag(gains) U') D^1/2 with orthonormal U.

    The inverse in the paper's Eq. 6, σ^-2 - σ^-4 L (...)^-1 L', subtracts two numbers that agree in their
    first log10(|L|²/σ²) digits. Here the factor is taken apart once, in double, and every function of P is
    a function of `gains` on the span of U and the identity beside it: nothing cancels.

    Attributes:
        vectors: U (n, k), float64, with its columns contiguous, as those of the vectors it meets.
        gains: (k,) eigenvalues of D^-1/2 L L' D^-1/2, float64, descending not required.
        scale: D^1/2, () or (n,), float64.
        remaining_trace: trace of A - P, what the rank left out.
        rows_evaluated: rows of A that building it cost.
        log_noise: the logarithm of det D, of all rows.
        gram: Gram matrices summed over all rows, from the operator, so that rows may be shared out.

    Applying it to (n, t) takes O(n k t) time.
    """

    vectors: Tensor
    gains: Tensor
    scale: Tensor
    remaining_trace: float
    rows_evaluated: int
    log_noise: float
    gram: Callable[[Tensor, Tensor], Tensor]
    below: ClassVar[bool] = True

    @property
    def rank(self) -> int:
        """Columns of U."""
        return self.vectors.shape[1]

    def solve(self, v: Tensor) -> Tensor:
        """P^-1 v for v (n, t), float64."""
        return self._scaled(self._apply(self._scaled(v, -1), -self.gains / (1 + self.gains)), -1)

    def matmul(self, v: Tensor) -> Tensor:
        """P v for v (n, t), float64."""
        return self._scaled(self._apply(self._scaled(v, 1), self.gains), 1)

    def whiten(self, v: Tensor, transposed: bool = False) -> Tensor:
        """C^-1 v, or C^-T v, where P = C C'; C^-1 A C^-T is the preconditioned matrix, symmetric.

        Args:
            v: (n, t), float64.
            transposed: C^-T instead of C^-1.
        """
        weights = torch.rsqrt(1 + self.gains) - 1
        if transposed:
            return self._scaled(self._apply(v.double(), weights), -1)
        return self._apply(self._scaled(v, -1), weights)

    def log_determinant(self) -> float:
        """The logarithm of det P."""
        return float(self.gains.log1p().sum()) + self.log_noise

    def _scaled(self, v: Tensor, power: int) -> Tensor:
        scale = self.scale if power > 0 else 1 / self.scale
        return v.double() * (scale[:, None] if scale.ndim else scale)

    def _apply(self, v: Tensor, weights: Tensor) -> Tensor:
        """(I + U diag(weights) U') v."""
        if self.rank == 0:
            return v
        inner = weights[:, None] * self.gram(self.vectors, v)
        return torch.addmm(v.T, inner.T, self.vectors.T).T  # columns contiguous, as solvers want them


def low_rank_plus_noise(
    factor: Tensor, noise: Tensor, operator: Operator, trace: float, rows: int
) -> LowRankPlusNoise:
    """Take L L' + D apart into orthonormal vectors and gains, in double, by the Gram matrix of the factor.

    The Gram matrix squares the condition of L; the gains it blurs are those below eps times the largest,
    whose share of P is below the round-off of the rest, and they are dropped.

    Args:
        factor: L (m, k).
        noise: D, () or (m,), positive.
        operator: that it is for, which adds up over rows.
        trace: what L L' left of A - D.
        rows: how many rows of A were evaluated.
    """
    gram, scale = operator.gram, noise.double().sqrt()
    # By rows of length n, as factors are held: to turn them over costs more than all that is done here.
    scaled = factor.T.to(torch.float64, copy=True).div_(scale)
    gains, rotation = torch.linalg.eigh(gram(scaled.T, scaled.T))
    keep = gains > DOUBLE.eps * max(len(gains), 1) * gains.abs().max() if len(gains) else gains > 0
    gains, rotation = gains[keep], rotation[:, keep]
    vectors = _in_place((rotation / gains.sqrt()).T, scaled)
    # Vectors of gains near 1 are orthonormal to eps times the largest gain, which P^-1 multiplies by it.
    if len(gains) and float(gains.max()) > 1.0 / (8.0 * math.sqrt(DOUBLE.eps)):
        lengths, rotation = torch.linalg.eigh(gram(vectors.T, vectors.T))
        vectors = _in_place((rotation * lengths.rsqrt()) @ rotation.T, vectors)
        off = gram(vectors.T, vectors.T) - torch.eye(len(gains), dtype=torch.float64, device=gains.device)
        # (1 - off * gain) / (1 + gain) is the least eigenvalue of what is inverted: positive, or P^-1 is not.
        gains = gains.clamp_max(0.5 / max(float(off.norm()), DOUBLE.eps))
    logs = noise.double().log()
    log_noise = float(operator.total(logs.sum())) if noise.ndim else operator.size * float(logs)
    return LowRankPlusNoise(vectors.T, gains, scale, trace, rows, log_noise, gram)


def _in_place(matrix: Tensor, rows: Tensor) -> Tensor:
    """A matrix (j, k) times long rows (k, n), in the first j of these: there is no room for both."""
    count = len(matrix)
    for start in range(0, rows.shape[1], CHUNK):
        some = slice(start, start + CHUNK)
        rows[:count, some] = matrix @ rows[:, some]
    return rows[:count]


def kernel_part(operator: object, own_noise: float | None) -> tuple[Operator, Tensor, Tensor]:
    """The operator to take rows from, its noise D, () or (m,), and the diagonal (m,) of A - D.

    The White part of a kernel is noise under another name. Rows are wanted in single at least, for on a
    16-bit rung the preconditioner would be that of the rounding.

    Args:
        operator: square, with rows; anything that `as_operator` takes.
        own_noise: what of the diagonal is noise, for a matrix that does not say.

    Raises:
        InputError: without rows, or without noise, for then L L' alone is singular.
    """
    source = as_operator(operator)
    if source.precision.is_sixteen_bit:
        source = source.with_precision("single")
    least = source.least_nugget if own_noise is None else own_noise
    if not least > 0:
        raise InputError(
            f"A low-rank preconditioner needs positive noise; got {least:g}. Give the operator a"
            " `noise`, or tell the preconditioner what of the diagonal is: `PivotedCholesky(noise=0.1)`."
        )
    diagonal = source.diagonal().double()
    noise = source.nugget if own_noise is None else torch.tensor(own_noise, dtype=torch.float64)
    noise = noise.to(diagonal.device)
    return source, noise, (diagonal - noise).clamp_min(0.0)


def kernel_rows(operator: Operator, noise: Tensor, indices: Tensor) -> Tensor:
    """Rows (b, m) of A - D, in the format that the operator's rows are in."""
    rows = operator.rows(indices)
    here, columns = operator.here(indices)
    own = noise[columns] if noise.ndim else noise
    rows[here, columns] = (rows[here, columns].double() - own).to(rows.dtype)
    return rows


def check_rank(rank: int | None) -> None:
    """Raise unless the rank is None or a count."""
    if rank is not None and (isinstance(rank, bool) or not isinstance(rank, int) or rank < 0):
        raise InputError(f"`rank` must be a non-negative integer, or None for automatic; got {rank!r}.")


def check_count(value: object, name: str, least: int = 0) -> None:
    """Raise unless the value is a count of at least so many."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        wanted = "a positive integer" if least else "a non-negative integer"
        raise InputError(f"`{name}` must be {wanted}; got {value!r}.")


def automatic_rank(n: int, memory: int) -> int:
    """A rank whose building costs about as much as one product with the matrix.

    Building takes O(n k²) multiply-adds and a product O(n²) covariances, each worth some tens of those, so
    k = √(2.5 n), at most what fits `memory`, at least 1.
    """
    return max(1, min(math.isqrt(5 * n // 2), rank_within(n, memory)))


def rank_within(n: int, memory: int) -> int:
    """How many pivots of n rows fit into so many bytes."""
    return min(n, memory // (BYTES_OF_PIVOT * max(n, 1)))
