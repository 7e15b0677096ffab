"""Floating-point formats with their true constants, and which of them each part of a product is held in."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from halfgp.errors import InputError


@dataclass(frozen=True)
class Format:
    """A binary floating-point format.

    Attributes:
        name: "half", "bfloat16", "single" or "double".
        dtype: the torch type that holds it.
        significand_bits: with the hidden bit.
        min_exponent: the smallest normal number is `2**min_exponent`.
        max: the largest finite number.
    """

    name: str
    dtype: torch.dtype
    significand_bits: int
    min_exponent: int
    max: float

    @property
    def eps(self) -> float:
        """Spacing of the numbers just above 1."""
        return 2.0 ** (1 - self.significand_bits)

    @property
    def unit_roundoff(self) -> float:
        """Largest relative error of rounding a number in the normal range to nearest."""
        return self.eps / 2

    @property
    def smallest_normal(self) -> float:
        """Smallest positive number with a full significand."""
        return 2.0**self.min_exponent

    @property
    def smallest_subnormal(self) -> float:
        """Smallest positive number."""
        return 2.0 ** (self.min_exponent - self.significand_bits + 1)

    @property
    def vanishing_exponent(self) -> int:
        """Base-2 logarithm of the largest number that rounds to zero: half the smallest subnormal, a tie."""
        return self.min_exponent - self.significand_bits

    @property
    def vanishing_fall(self) -> float:
        """Minus the natural logarithm of the largest number that rounds to zero."""
        return -self.vanishing_exponent * math.log(2.0)

    @property
    def bytes(self) -> int:
        """Size of one number in memory."""
        return self.dtype.itemsize


HALF = Format("half", torch.float16, 11, -14, 65504.0)
BFLOAT16 = Format("bfloat16", torch.bfloat16, 8, -126, 2.0**128 - 2.0**120)
SINGLE = Format("single", torch.float32, 24, -126, 2.0**128 - 2.0**104)
DOUBLE = Format("double", torch.float64, 53, -1022, torch.finfo(torch.float64).max)


@dataclass(frozen=True)
class Precision:
    """What a kernel product holds in which format.

    Attributes:
        name: the preset it came from: "half", "bfloat16", "single" or "double".
        inputs: the points, scaled by the lengthscales and relative to a centre.
        entries: the entries of K as they meet the vector.
        vectors: the right-hand sides.
        products: entry times vector.
        sums: the accumulation over a whole row.
    """

    name: str
    inputs: Format
    entries: Format
    vectors: Format
    products: Format
    sums: Format

    @classmethod
    def resolve(cls, precision: str | Precision) -> Precision:
        """The preset of that name; "auto" is single, until somebody who knows the tolerance chooses."""
        if isinstance(precision, Precision):
            return precision
        if precision == "auto":
            return PRESETS["single"]
        if precision not in PRESETS:
            known = ", ".join(f'"{name}"' for name in (*PRESETS, "auto"))
            raise InputError(f"`precision` must be one of {known}, or a `Precision`; got {precision!r}.")
        return PRESETS[precision]

    def with_entries(self, entries: Format) -> Precision:
        """The same precision with the entries held in another format."""
        return replace(self, entries=entries)

    @property
    def is_sixteen_bit(self) -> bool:
        """Whether points are held in 16 bits: covariances that the format rounds to zero are then zero."""
        return self.inputs.bytes == 2


PRESETS = {
    "half": Precision("half", HALF, HALF, SINGLE, SINGLE, DOUBLE),
    "bfloat16": Precision("bfloat16", BFLOAT16, BFLOAT16, SINGLE, SINGLE, DOUBLE),
    "single": Precision("single", SINGLE, SINGLE, SINGLE, SINGLE, DOUBLE),
    "double": Precision("double", DOUBLE, DOUBLE, DOUBLE, DOUBLE, DOUBLE),
}
