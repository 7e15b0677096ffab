"""A dense Cholesky factor of K + noise: exact variances, and a preconditioner that leaves CG little to do."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from halfgp.errors import InputError
from halfgp.operators import KernelOperator

CHUNK = 1024  # rows


@dataclass(frozen=True)
class CholeskyFactor:
    """K + noise = L L'.

    Attributes:
        lower: L (n, n), float32 or float64.
    """

    lower: Tensor

    @classmethod
    def build(cls, operator: KernelOperator, dtype: torch.dtype) -> CholeskyFactor:
        """O(n³) time, two n×n matrices of memory.

        Raises:
            InputError: not positive definite in that format.
        """
        precision = "single" if dtype == torch.float32 else "double"
        dense = torch.as_tensor(operator.with_precision(precision).to_dense()).to(dtype)
        for start in range(0, len(dense), CHUNK):
            some = dense[start : start + CHUNK]
            some.copy_(without_denormals(some, float(dense[0, 0])))
        lower, failed = torch.linalg.cholesky_ex(dense)
        if int(failed):
            raise InputError(
                f"K + noise is not positive definite in {dtype} at row {int(failed) - 1}: the noise is too"
                ' small for it. Raise `noise_floor`, or use `variance="local"`.'
            )
        return cls(lower)

    def solve(self, v: Tensor) -> Tensor:
        """(L L')^-1 v for (n, t), in float64."""
        # To the format of the factor, column by column scaled: a residual may be far below its range.
        scale = v.abs().amax(dim=0).clamp_min(torch.finfo(torch.float64).tiny)
        return torch.cholesky_solve((v / scale).to(self.lower.dtype), self.lower).double() * scale

    def whiten(self, cross: Tensor) -> Tensor:
        """L^-1 cross for (n, m), in the factor's format."""
        given = without_denormals(cross.to(self.lower.dtype), float(self.lower[0, 0]) ** 2)
        white: Tensor = torch.linalg.solve_triangular(self.lower, given, upper=False)
        return white

    def solve_whitened(self, white: Tensor) -> Tensor:
        """L^-T white for (n, m), in the factor's format: with `whiten` before it, a whole solve."""
        solved: Tensor = torch.linalg.solve_triangular(self.lower.mT, white, upper=True)
        return solved

    def log_determinant(self) -> float:
        """Of K + noise."""
        return 2.0 * float(self.lower.diagonal().double().log().sum())

    def inverse_diagonal(self) -> Tensor:
        """The diagonal (n,) of (K + noise)^-1, float64; O(n³)."""
        return self.whiten(torch.eye(len(self.lower))).double().square_().sum(dim=0)


def without_denormals(values: Tensor, largest: float) -> Tensor:
    """Zero for whatever is below eps² of the largest, where products with it would be denormal, and slow."""
    return torch.hardshrink(values, torch.finfo(values.dtype).eps ** 2 * largest)
