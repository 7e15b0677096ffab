"""A dense Cholesky factor of K + noise: exact variances, and a preconditioner that leaves CG little to do."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from halfgp.errors import InputError
from halfgp.operators import KernelOperator

BLOCK = 1024  # rows: large enough for matrix products at full speed


@dataclass(frozen=True)
class CholeskyFactor:
    """K + noise = scale L L', with the scale apart, so that another one needs no other factor.

    By blocks, after each of which what is negligible becomes zero. Where lengthscales are short, entries of L
    and of solutions fall off without end, and processors take a hundred times as long over denormals.

    Attributes:
        lower: L (n, n), float32 or float64.
        scale: a factor of the whole matrix.
    """

    lower: Tensor
    scale: float = 1.0
    below: ClassVar[bool] = True

    @classmethod
    def build(cls, operator: KernelOperator, dtype: torch.dtype, scale: float = 1.0) -> CholeskyFactor:
        """Of an operator times a scale; O(n³) time, one n×n matrix of memory.

        Raises:
            InputError: not positive definite in that format.
        """
        precision = "single" if dtype == torch.float32 else "double"
        lower = torch.as_tensor(operator.with_precision(precision).to_dense()).to(dtype)
        negligible = _negligible(lower.diagonal().sqrt())
        for start, stop in _blocks(len(lower)):
            panel = lower[start:, start:stop]  # left-looking: all that earlier columns say about these
            panel.addmm_(lower[start:, :start], lower[start:stop, :start].mT, alpha=-1.0)
            block, failed = torch.linalg.cholesky_ex(panel[: stop - start])
            if int(failed):
                raise InputError(
                    f"K + noise is not positive definite in {dtype} at row {start + int(failed) - 1}: the"
                    " noise is too small for it. Raise `noise_floor`."
                )
            panel[: stop - start] = block
            below = panel[stop - start :]
            below.copy_(torch.linalg.solve_triangular(block.mT, below, upper=True, left=False))
            _drop(panel, negligible)
            lower[start:stop, stop:] = 0.0
        return cls(lower, scale)

    def solve(self, v: Tensor) -> Tensor:
        """(scale L L')^-1 v for (n, t), in float64."""
        # To the format of the factor, column by column scaled: a residual may be far below its range.
        size = v.abs().amax(dim=0).clamp_min(torch.finfo(torch.float64).tiny)
        white = self._forward((v / size).to(self.lower.dtype, copy=True))
        return self._backward(white).double() * (size / self.scale)

    def whiten(self, v: Tensor, transposed: bool = False) -> Tensor:
        """(√scale L)^-1 v, or (√scale L)^-T v, for (n, m), in the format of v."""
        white = v * (1.0 / math.sqrt(self.scale))
        return self._backward(white) if transposed else self._forward(white)

    def _forward(self, white: Tensor) -> Tensor:
        """L^-1 white, in its place."""
        negligible = _negligible(white)
        _drop(white, negligible)
        for start, stop in _blocks(len(white)):
            own = white[start:stop]
            own.addmm_(self._part(start, stop, 0, start, white), white[:start], alpha=-1.0)
            block = self._part(start, stop, start, stop, white)
            own.copy_(torch.linalg.solve_triangular(block, own, upper=False))
            _drop(own, negligible)
        return white

    def _backward(self, solved: Tensor) -> Tensor:
        """L^-T solved, in its place."""
        negligible = _negligible(solved)
        for start, stop in reversed(list(_blocks(len(solved)))):
            own = solved[start:stop]
            own.addmm_(self._part(stop, len(solved), start, stop, solved).mT, solved[stop:], alpha=-1.0)
            block = self._part(start, stop, start, stop, solved)
            own.copy_(torch.linalg.solve_triangular(block.mT, own, upper=True))
            _drop(own, negligible)
        return solved

    def _part(self, top: int, bottom: int, left: int, right: int, like: Tensor) -> Tensor:
        """A part of L in the format of another tensor: wider than its own where more digits are wanted."""
        return self.lower[top:bottom, left:right].to(like.dtype)

    def log_determinant(self) -> float:
        """Of K + noise."""
        return 2.0 * float(self.lower.diagonal().double().log().sum()) + len(self.lower) * math.log(
            self.scale
        )

    def inverse_diagonal(self, rows: Tensor) -> Tensor:
        """Entries (m,) of the diagonal of (K + noise)^-1, float64; O(m n²), of ascending rows a third of it.

        A column of L^-1 is zero above its row.
        """
        found = self.lower.new_empty(len(rows), dtype=torch.float64)
        for start, stop in _blocks(len(rows)):
            some = rows[start:stop]
            first = int(some.min()) // BLOCK * BLOCK
            units = self.lower.new_zeros(len(self.lower) - first, len(some))
            units[some - first, torch.arange(len(some), device=some.device)] = 1.0
            below = replace(self, lower=self.lower[first:, first:])
            found[start:stop] = below.whiten(units).double().square_().sum(dim=0)
        return found

    def scaled(self, scale: float) -> CholeskyFactor:
        """Of the matrix times a number."""
        return replace(self, scale=self.scale * scale)


def _blocks(n: int) -> Iterator[tuple[int, int]]:
    """Bounds of the blocks of n rows."""
    return ((start, min(start + BLOCK, n)) for start in range(0, n, BLOCK))


def _negligible(values: Tensor) -> float:
    """eps² of the largest: far below the rounding of what it stands beside, far above the denormals."""
    return float(torch.finfo(values.dtype).eps ** 2 * values.abs().max()) if values.numel() else 0.0


def _drop(values: Tensor, negligible: float) -> None:
    """Zero for what is smaller."""
    torch.hardshrink(values, negligible, out=values)
