"""What every preconditioner gives, and the one form all of ours take: low rank plus the noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeGuard

import torch
from torch import Tensor

from halfgp.errors import InputError
from halfgp.precision import DOUBLE


class RowSource(Protocol):
    """What a preconditioner asks of a matrix: rows, a diagonal, and Gram matrices over its rows."""

    @property
    def noise(self) -> Tensor:
        """Variances on the diagonal beside the kernel's, () or (n,)."""
        ...

    def rows(self, i: Tensor) -> Tensor:
        """Dense rows (len(i), n), noise included."""
        ...

    def diagonal(self) -> Tensor:
        """The diagonal (n,), noise included."""
        ...

    def gram(self, u: Tensor, v: Tensor) -> Tensor:
        """The products u' v (s, t), summed over all rows."""
        ...


class Preconditioner(Protocol):
    """P, a symmetric positive definite matrix near A whose inverse is cheap."""

    def solve(self, v: Tensor) -> Tensor:
        """P^-1 v for (n, t), in float64."""
        ...


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
    return bool(getattr(preconditioner, "below", False))


def has_root(preconditioner: Preconditioner | None) -> TypeGuard[Root]:
    """Whether it has a root and a determinant, as all of ours do."""
    return hasattr(preconditioner, "whiten") and hasattr(preconditioner, "log_determinant")


class PreconditionerConfig(Protocol):
    """A recipe: frozen, without data."""

    def build(self, operator: object) -> Preconditioner:
        """The preconditioner of that operator."""
        ...


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
        gram: Gram matrices summed over all rows, from the operator, so that rows may be sharded.

    Applying it to (n, t) takes O(n k t) time.
    """

    vectors: Tensor
    gains: Tensor
    scale: Tensor
    remaining_trace: float
    rows_evaluated: int
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
        n = self.vectors.shape[0]
        noise = 2 * self.scale.log()
        return float(self.gains.log1p().sum() + (noise.sum() if noise.ndim else n * noise))

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
    factor: Tensor, noise: Tensor, gram: Callable[[Tensor, Tensor], Tensor], trace: float, rows: int
) -> LowRankPlusNoise:
    """Take L L' + D apart into orthonormal vectors and gains, in double, by the Gram matrix of the factor.

    The Gram matrix squares the condition of L; the gains it blurs are those below eps times the largest,
    whose share of P is below the round-off of the rest, and they are dropped.

    Args:
        factor: L (n, k).
        noise: D, () or (n,), positive.
        gram: Gram matrices from the operator.
        trace: what L L' left of A - D.
        rows: how many rows of A were evaluated.
    """
    scale = noise.double().sqrt()
    # By rows of length n, as factors are held: to turn them over costs more than all that is done here.
    scaled = factor.T.to(torch.float64, copy=True).div_(scale)
    gains, rotation = torch.linalg.eigh(gram(scaled.T, scaled.T))
    keep = gains > DOUBLE.eps * max(len(gains), 1) * gains.abs().max() if len(gains) else gains > 0
    gains, rotation = gains[keep], rotation[:, keep]
    vectors = (rotation / gains.sqrt()).T @ scaled
    # Vectors of gains near 1 are orthonormal to eps times the largest gain, which P^-1 multiplies by it.
    if len(gains) and float(gains.max()) > 1.0 / (8.0 * math.sqrt(DOUBLE.eps)):
        lengths, rotation = torch.linalg.eigh(gram(vectors.T, vectors.T))
        vectors = (rotation * lengths.rsqrt()) @ rotation.T @ vectors
        off = gram(vectors.T, vectors.T) - torch.eye(len(gains), dtype=torch.float64, device=gains.device)
        # (1 - off * gain) / (1 + gain) is the least eigenvalue of what is inverted: positive, or P^-1 is not.
        gains = gains.clamp_max(0.5 / max(float(off.norm()), DOUBLE.eps))
    return LowRankPlusNoise(vectors.T, gains, scale, trace, rows, gram)


def kernel_part(operator: RowSource, own_noise: float | None) -> tuple[RowSource, Tensor, Tensor]:
    """The operator to take rows from, its noise D, () or (n,), and the diagonal (n,) of A - D.

    The White part of a kernel is noise under another name. Rows are wanted in single at least, for on a
    16-bit rung the preconditioner would be that of the rounding.

    Args:
        operator: square, with rows and diagonal.
        own_noise: what of the diagonal is noise, for a matrix that does not say.

    Raises:
        InputError: without rows, or without noise, for then L L' alone is singular.
    """
    if not all(hasattr(operator, name) for name in ("rows", "diagonal", "noise", "gram")):
        raise InputError(
            "A preconditioner is built from an operator with rows, a diagonal and noise, such as a"
            f" `KernelOperator`; got {type(operator).__name__}. Pass arrays to `cg` together with the recipe,"
            " as in `cg(A, b, preconditioner=PivotedCholesky(noise=0.1))`."
        )
    precision = getattr(operator, "precision", None)
    if precision is not None and precision.is_sixteen_bit:
        operator = operator.with_precision("single")  # type: ignore[attr-defined]
    told = getattr(operator, "nugget", operator.noise) if own_noise is None else own_noise
    noise = torch.as_tensor(told, dtype=torch.float64)
    if not bool((noise > 0).all()):
        raise InputError(
            f"A low-rank preconditioner needs positive noise; got {float(noise.min()):g}. Give the operator a"
            " `noise`, or tell the preconditioner what of the diagonal is: `PivotedCholesky(noise=0.1)`."
        )
    diagonal = torch.as_tensor(operator.diagonal(), dtype=torch.float64)
    return operator, noise.to(diagonal.device), (diagonal - noise).clamp_min(0.0)


def kernel_rows(operator: RowSource, noise: Tensor, indices: Tensor) -> Tensor:
    """Rows (b, n) of A - D, in the format that the operator's rows are in."""
    rows = torch.as_tensor(operator.rows(indices))
    own = noise[indices] if noise.ndim else noise
    at = torch.arange(len(indices), device=rows.device), indices
    rows[at] = (rows[at].double() - own).to(rows.dtype)
    return rows


def check_rank(rank: int | None) -> None:
    """Raise unless the rank is None or a count."""
    if rank is not None and (isinstance(rank, bool) or not isinstance(rank, int) or rank < 0):
        raise InputError(f"`rank` must be a non-negative integer, or None for automatic; got {rank!r}.")


def automatic_rank(n: int, memory: int) -> int:
    """A rank whose building costs about as much as one product with the matrix.

    Building takes O(n k²) multiply-adds and a product O(n²) covariances, each worth some tens of those, so
    k = √(2.5 n), at most what fits `memory` (two n×k factors of doubles), at least 1.
    """
    return max(1, min(n, math.isqrt(5 * n // 2), memory // (16 * max(n, 1))))


MEMORY = 2**30  # bytes for the factor of a preconditioner of automatic rank
