"""Low precision operation by operation: what a product gives on hardware that rounds every step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from halfgp.errors import InputError
from halfgp.kernels import Kernel
from halfgp.precision import Format

Rounding = Literal["nearest", "stochastic"]
Summation = Literal["plain", "block_half", "block_single", "kahan"]
BLOCK = 192  # the paper's CUDA block


def round_to(
    x: Tensor,
    format: Format,
    *,
    rounding: Rounding = "nearest",
    generator: torch.Generator | None = None,
) -> Tensor:
    """`x` (float64, any shape) rounded once to the format, subnormals included, and returned in float64.

    Stochastic rounding takes the upper neighbour with a probability equal to the distance from the lower one,
    so that its mean is `x`; what the format can represent stays as it is. Beyond the largest number lies
    infinity.
    """
    exponent = torch.frexp(x.to(torch.float64)).exponent - 1
    # The spacing of the format around x; constant below the smallest normal number.
    spacing = torch.ldexp(
        torch.ones_like(x, dtype=torch.float64),
        exponent.clamp(min=format.min_exponent) - (format.significand_bits - 1),
    )
    steps = x / spacing  # exact: a power of two
    if rounding == "nearest":
        steps = torch.round(steps)  # ties to even
    else:
        lower = torch.floor(steps)
        steps = lower + (torch.rand(x.shape, generator=generator, dtype=torch.float64) < steps - lower)
    rounded = steps * spacing
    return torch.where(rounded.abs() <= format.max, rounded, rounded * math.inf)


@dataclass(frozen=True)
class Arithmetic:
    """Addition, subtraction and multiplication of tensors held in a format, each result rounded once.

    Rounding to nearest is torch's own: it computes in float32 and rounds, which for two operands of 11 or 8
    bits gives the same as rounding the exact result. Stochastic rounding starts from the float64 result,
    exact but for bfloat16 operands more than 45 binary orders apart.
    """

    format: Format
    rounding: Rounding = "nearest"
    generator: torch.Generator | None = None

    def __post_init__(self) -> None:
        if self.rounding not in ("nearest", "stochastic"):
            raise InputError(f'`rounding` must be "nearest" or "stochastic"; got {self.rounding!r}.')
        if self.rounding == "stochastic" and self.format.bytes != 2:
            raise InputError(f'Stochastic rounding is for "half" and "bfloat16"; got "{self.format.name}".')

    def round(self, x: Tensor) -> Tensor:
        """From float64 to the format."""
        rounded = round_to(x, self.format, rounding=self.rounding, generator=self.generator)
        return rounded.to(self.format.dtype)  # exact

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        """Rounded sum."""
        return a + b if self.rounding == "nearest" else self.round(a.double() + b.double())

    def subtract(self, a: Tensor, b: Tensor) -> Tensor:
        """Rounded difference."""
        return a - b if self.rounding == "nearest" else self.round(a.double() - b.double())

    def multiply(self, a: Tensor, b: Tensor) -> Tensor:
        """Rounded product."""
        return a * b if self.rounding == "nearest" else self.round(a.double() * b.double())


@torch.no_grad()
def emulated_matmul(
    kernel: Kernel,
    x1: Tensor,
    x2: Tensor | None,
    v: Tensor,
    *,
    format: Format,
    summation: Summation = "plain",
    block: int = BLOCK,
    scale: bool = True,
    rounding: Rounding = "nearest",
    generator: torch.Generator | None = None,
    round_inputs: bool = False,
) -> Tensor:
    """K v with entries, products and partial sums each rounded to the format (the paper's Fig. 4).

    Args:
        kernel: evaluated in float64, then rounded.
        x1: points (n1, D).
        x2: points (n2, D), or None for the square matrix with White on its diagonal.
        v: (n2, t).
        format: of entries, vectors, products and partial sums.
        summation: "plain", column after column; "block_half" and "block_single", plain within blocks of
            columns, whose totals are then added in the format or in single; "kahan", compensated in the
            format. The result is rounded to the format in every case.
        block: columns in a block.
        scale: divide each column of v by `column_scales` before it is rounded, and multiply the result.
        rounding: "nearest", or "stochastic" for the 16-bit formats.
        generator: for stochastic rounding.
        round_inputs: also round the points to the format, before the kernel is evaluated.

    Returns:
        (n1, t) in float64. O(n1 n2 (D + t)) time, O(n1 n2) memory: for small experiments.
    """
    arithmetic = Arithmetic(format, rounding, generator)
    columns = x1 if x2 is None else x2
    x1, columns = (x.to(torch.float64) for x in (x1, columns))
    if round_inputs:
        x1, columns = (arithmetic.round(x).double() for x in (x1, columns))
    entries = kernel(columns, x1).clone()  # transposed, so that a column of K is contiguous
    if x2 is None:
        entries.diagonal().copy_(kernel.diagonal(x1))
    scales = column_scales(v) if scale else torch.ones(v.shape[1], dtype=torch.float64)
    # Divided in single and only then cast: the other way round loses what the format cannot hold.
    vectors = arithmetic.round((v.to(torch.float32) / scales.to(torch.float32)).double())
    entries = arithmetic.round(entries)
    if summation == "plain":
        total = _plain(arithmetic, entries, vectors)
    elif summation == "kahan":
        total = _kahan(arithmetic, entries, vectors)
    elif summation in ("block_half", "block_single"):
        total = _blocks(arithmetic, entries, vectors, block, wide=summation == "block_single")
    else:
        raise InputError(
            f'`summation` must be "plain", "block_half", "block_single" or "kahan"; got {summation!r}.'
        )
    return total.double() * scales


def column_scales(v: Tensor) -> Tensor:
    """Powers of two (t,) not below sqrt(n) max|v| of each column of `v` (n, t).

    Divided by it, |K v| <= n a^2 max|v| is at most sqrt(n) a^2, which overflows half beyond n = 4e9 / a^4
    only; being powers of two, they cost no digits.
    """
    if len(v) == 0:
        return torch.ones(v.shape[1], dtype=torch.float64)
    peak = v.abs().amax(dim=0).double() * math.sqrt(len(v))
    power = torch.ldexp(torch.ones_like(peak), torch.frexp(peak).exponent)
    return torch.where(peak > 0, power, 1.0)


def _plain(arithmetic: Arithmetic, entries: Tensor, v: Tensor) -> Tensor:
    """Sums over the first dimension of entries (..., n2, n1) times v (..., n2, t), in order."""
    total = torch.zeros(*entries.shape[:-2], entries.shape[-1], v.shape[-1], dtype=entries.dtype)
    for j in range(entries.shape[-2]):
        product = arithmetic.multiply(entries[..., j, :, None], v[..., j, None, :])
        total = arithmetic.add(total, product)
    return total


def _kahan(arithmetic: Arithmetic, entries: Tensor, v: Tensor) -> Tensor:
    """As `_plain`, carrying along what each addition has lost."""
    total = torch.zeros(entries.shape[-1], v.shape[-1], dtype=entries.dtype)
    lost = torch.zeros_like(total)
    for j in range(len(entries)):
        product = arithmetic.multiply(entries[j, :, None], v[j, None, :])
        term = arithmetic.subtract(product, lost)
        new = arithmetic.add(total, term)
        lost = arithmetic.subtract(arithmetic.subtract(new, total), term)
        total = new
    return total


def _blocks(arithmetic: Arithmetic, entries: Tensor, v: Tensor, block: int, *, wide: bool) -> Tensor:
    """As `_plain` within each block, all blocks at once; then the totals of the blocks, in order."""
    count = -(-len(entries) // block)
    missing = count * block - len(entries)  # rows of zeros, which leave every sum as it is
    entries, v = (
        torch.nn.functional.pad(x, (0, 0, 0, missing)).reshape(count, block, x.shape[1]) for x in (entries, v)
    )
    partial = _plain(arithmetic, entries, v)
    if not wide:
        total = torch.zeros(partial.shape[1:], dtype=partial.dtype)
        for term in partial:
            total = arithmetic.add(total, term)
        return total
    single = torch.zeros(partial.shape[1:], dtype=torch.float32)
    for term in partial:
        single = single + term.float()
    return arithmetic.round(single.double())
