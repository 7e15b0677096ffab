"""Right-hand sides as the kernels read them: sums of a few numbers of the format, relative to a largest."""

from __future__ import annotations

import torch
from torch import Tensor

from halfgp.backends.triton.points import Packed, split
from halfgp.precision import HALF, Format

LEAST_COLUMNS = 16  # of a tensor core's product
MOST_COLUMNS = 256  # in one launch
# The largest number of a column becomes this power of two, so that numbers 2^18 below it keep all 22 bits.
PEAK_EXPONENT = 14


def columns_of(t: int) -> int:
    """The padded number of columns for t of them."""
    return max(LEAST_COLUMNS, 1 << (t - 1).bit_length())


def peak_units(v: Tensor, fmt: Format) -> Tensor:
    """Powers of two (t,) in units of which the largest of each column of v (n, t) is near the top of half.

    Half alone needs them: the others have the range of single.
    """
    ones = torch.ones(v.shape[1], dtype=torch.float64, device=v.device)
    if fmt is not HALF or not v.numel():
        return ones
    largest = v.abs().amax(dim=0)
    exponent = torch.frexp(largest).exponent.double() - PEAK_EXPONENT
    return torch.where(largest > 0.0, torch.exp2(exponent), ones)


def pack_vectors(v: Tensor, on: Packed, fmt: Format, terms: int) -> Tensor:
    """Vectors (n, t), float64, as parts (terms, places, T)."""
    padding = columns_of(v.shape[1]) - v.shape[1]
    wide = torch.nn.functional.pad(on.spread(v), (0, padding))
    return split(wide, fmt.dtype, terms).contiguous()
