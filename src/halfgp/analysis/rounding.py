"""Errors of products by the way they are summed, and inverses of rounded kernel matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from halfgp.analysis.matrices import Rounding, as_format, kernel_matrix
from halfgp.backends.emulation import BLOCK, emulated_matmul
from halfgp.data import ArrayLike, as_points, as_vectors
from halfgp.errors import InputError
from halfgp.kernels import Kernel
from halfgp.precision import SINGLE, Format

# As the emulation names them; "single" is a plain sum with everything in single, to compare with.
STRATEGIES = ("plain", "block_half", "block_single", "kahan", "single")


@dataclass(frozen=True)
class ProductErrors:
    """Relative errors |approximate - exact| / |exact| of products K v.

    Attributes:
        sizes: columns of K.
        errors: by strategy, one for each size.
        rows: of K that the norms are over.
    """

    sizes: tuple[int, ...]
    errors: dict[str, tuple[float, ...]]
    rows: int


@dataclass(frozen=True)
class RoundedInverse:
    """(K in a format + noise)^-1.

    Attributes:
        inverse: (n, n), float64.
        least_eigenvalue: of the matrix that was inverted; rounding may have taken it below zero.
        format: the name of the format.
    """

    inverse: Tensor
    least_eigenvalue: float
    format: str


def product_errors(
    kernel: Kernel,
    X: ArrayLike,
    sizes: Sequence[int],
    strategies: Sequence[str] = STRATEGIES,
    *,
    fmt: str | Format = "half",
    v: ArrayLike | None = None,
    rows: int = 256,
    block: int = BLOCK,
    seed: int = 0,
) -> ProductErrors:
    """Relative errors of K v by summation strategy and number of columns, against double.

    Entries, vector, products and partial sums are rounded one by one, as the emulation does it.

    Args:
        kernel: the covariance.
        X: points (n, d), of which a random sample is taken for each size, a larger one around a smaller.
        sizes: numbers of columns, at most n.
        strategies: of `STRATEGIES`.
        fmt: the format of all but "single".
        v: (n,), one number for each of `X`; standard normal numbers by default.
        rows: how many random rows of K stand for all. O(rows size) memory.
        block: columns in a block.
        seed: of the sample and of v.
    """
    format, x = as_format(fmt), as_points(X, "X").double()
    unknown = [name for name in strategies if name not in STRATEGIES]
    if unknown:
        raise InputError(f"`strategies` must be of {', '.join(STRATEGIES)}; got {unknown[0]!r}.")
    wrong = [size for size in sizes if not 1 <= size <= len(x)]
    if wrong or not len(sizes):
        raise InputError(f"`sizes` must be from 1 to the rows of `X`, {len(x):,}; got {list(sizes)!r}.")
    if rows < 1:
        raise InputError(f"`rows` must be at least 1; got {rows}.")
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(x), generator=generator)
    if v is None:
        vector = torch.randn(len(x), 1, dtype=torch.float64, generator=generator)
    else:
        vector = as_vectors(v, "v", len(x), x.device, format.max).values.double()
    count = min(rows, *sizes)
    errors: dict[str, list[float]] = {name: [] for name in strategies}
    for size in sizes:
        some, columns, right = x[order[:count]], x[order[:size]], vector[order[:size]]
        with torch.no_grad():
            exact = kernel(some, columns) @ right
        for name in strategies:
            options: dict[str, Any] = (
                {"format": SINGLE} if name == "single" else {"format": format, "summation": name}
            )
            approximate = emulated_matmul(kernel, some, columns, right, block=block, **options)
            errors[name].append(float((approximate - exact).norm() / exact.norm()))
    return ProductErrors(tuple(sizes), {name: tuple(found) for name, found in errors.items()}, count)


def inverse_of_rounded(
    kernel: Kernel, X: ArrayLike, fmt: str | Format, noise: float, *, rounding: Rounding = "evaluation"
) -> RoundedInverse:
    """The inverse, in double, of K as a format has it, plus noise on the diagonal.

    Args:
        kernel: the covariance.
        X: points (n, d).
        fmt: the format.
        noise: variance.
        rounding: what is rounded to the format, as for `kernel_matrix`.
    """
    if not noise >= 0.0:
        raise InputError(f"`noise` must not be negative; got {noise!r}.")
    matrix = kernel_matrix(kernel, X, fmt, rounding=rounding)
    matrix.diagonal().add_(noise)
    # Not by Cholesky: what rounding made indefinite has an inverse all the same.
    inverse, failed = torch.linalg.inv_ex(matrix)
    if bool(failed):
        raise InputError("The rounded matrix is singular. Use more `noise`.")
    return RoundedInverse(inverse, float(torch.linalg.eigvalsh(matrix)[0]), as_format(fmt).name)
