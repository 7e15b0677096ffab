"""Small kernel matrices as a format sees them: its entries, its points, or all of the evaluation rounded."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from halfgp.backends.reference import scaled_features
from halfgp.data import ArrayLike, as_points
from halfgp.errors import InputError
from halfgp.kernels import Kernel, Leaf
from halfgp.precision import BFLOAT16, DOUBLE, HALF, SINGLE, Format

Rounding = Literal["entries", "inputs", "evaluation"]
FORMATS = {fmt.name: fmt for fmt in (HALF, BFLOAT16, SINGLE, DOUBLE)}


def as_format(fmt: str | Format) -> Format:
    """A format by its name, or itself."""
    if isinstance(fmt, Format):
        return fmt
    if fmt not in FORMATS:
        known = ", ".join(f'"{name}"' for name in FORMATS)
        raise InputError(f"A format must be one of {known}, or a `Format`; got {fmt!r}.")
    return FORMATS[fmt]


@torch.no_grad()
def kernel_matrix(
    kernel: Kernel, X: ArrayLike, precision: str | Format = "double", *, rounding: Rounding = "entries"
) -> Tensor:
    """The dense K(X, X), without White, as a format has it.

    Args:
        kernel: the covariance.
        X: points (n, d).
        precision: the format.
        rounding: "entries": computed in double, then each entry rounded once. "inputs": the points, in units
            of the lengthscales and relative to their mean, are rounded, and nothing else, so that the matrix
            is the exact one of points moved a little. "evaluation": the points as they are given and the
            result of every operation are rounded, as where a kernel is evaluated in that dtype; distances
            are sums of squared differences.

    Returns:
        (n, n) in float64, of values of the format where entries were rounded. O(n² d) time, O(n²) memory.

    Raises:
        InputError: something overflows the format.
    """
    fmt = as_format(precision)
    x = as_points(X, "X").double()
    kernel.check_columns(x.shape[1])
    if rounding == "entries":
        entries = kernel(x, x).to(fmt.dtype)
    elif rounding == "inputs":
        entries = _of_rounded_points(kernel, x, fmt)
    elif rounding == "evaluation":
        entries = _evaluated(kernel, x, fmt)
    else:
        raise InputError(f'`rounding` must be "entries", "inputs" or "evaluation"; got {rounding!r}.')
    if not bool(entries.isfinite().all()):
        raise InputError(
            f"The kernel matrix overflows {fmt.name}. Scale the points or the outputs, or use a wider format."
        )
    return entries.double()


def _of_rounded_points(kernel: Kernel, x: Tensor, fmt: Format) -> Tensor:
    program = kernel.program()
    values = []
    for leaf in program.leaves:
        z = scaled_features(leaf, [x])[0].to(fmt.dtype).double()
        values.append(leaf.between(z, z))
    return program.evaluate(values, (len(x), len(x)))


def _evaluated(kernel: Kernel, x: Tensor, fmt: Format) -> Tensor:
    program = kernel.program()
    values = [_leaf_in(leaf, x.to(fmt.dtype)) for leaf in program.leaves]
    return program.evaluate(values, (len(x), len(x))).to(fmt.dtype)


def _leaf_in(leaf: Leaf, x: Tensor) -> Tensor:
    """One leaf with every operation in the dtype of the points."""
    z = leaf.scaled(x)
    if not leaf.is_stationary:
        return z @ z.T
    squared = x.new_zeros(len(x), len(x))
    for column in z.T:
        squared = squared + (column[:, None] - column).square()
    return leaf.covariance(squared)
