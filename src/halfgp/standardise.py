"""Columns brought to mean zero and variance one, and back; those that say nothing are held."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from halfgp.precision import DOUBLE

BLOCK_ROWS = 2**16  # that are in double at a time, whatever they are held in


@dataclass(frozen=True)
class Standardisation:
    """(values - mean) / scale, column by column.

    Attributes:
        mean: (d,), float64.
        scale: (d,), positive, float64.
        constant: (d,) which columns have one standardised value whatever comes.
        held: (d,) that value, 0 for the others.
    """

    mean: Tensor
    scale: Tensor
    constant: Tensor
    held: Tensor

    @classmethod
    def of(cls, values: Tensor, wanted: bool = True) -> Standardisation:
        """From the columns of (n, d); a constant column keeps its scale, and all do if it is not wanted.

        One column after the other: what it is does not depend, by a bit, on those that it stands beside.
        """
        nothing = torch.zeros(values.shape[1], dtype=torch.float64, device=values.device)
        none = nothing.bool()
        if not wanted:
            return cls(nothing, torch.ones_like(nothing), none, nothing)
        moments = [_moments(column.double().contiguous()) for column in values.unbind(dim=1)]
        mean, scale = torch.stack(moments, dim=1)
        return cls(mean, torch.where(scale > 0, scale, 1.0), none, nothing)

    def holding(self, values: Tensor) -> Standardisation:
        """With columns of (n, d) that have one value in all of several rows held at it.

        They say nothing about a target, and another value in a row to come would mean what nobody knows.
        Values that differ by rounding alone are one.
        """
        if len(values) < 2:
            return self
        low, high = values.amin(dim=0).double(), values.amax(dim=0).double()
        constant = 0.5 * high - 0.5 * low <= 4 * DOUBLE.eps * torch.maximum(low.abs(), high.abs())
        held = torch.where(constant, self.apply(values[:1])[0], 0.0)
        return replace(self, constant=constant, held=held)

    def of_columns(self, columns: Sequence[int]) -> Standardisation:
        """That of some columns."""
        some = list(columns)
        if len(some) == len(self.mean):
            return self
        return Standardisation(self.mean[some], self.scale[some], self.constant[some], self.held[some])

    @classmethod
    def beside(cls, each: Sequence[Standardisation]) -> Standardisation:
        """That of columns from those of some after others."""
        parts = zip(*((one.mean, one.scale, one.constant, one.held) for one in each), strict=True)
        return cls(*(torch.cat(part) for part in parts))

    def apply(self, values: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
        """Standardised columns, rounded once from float64; some rows at a time, so that no copy is wider."""
        found = torch.empty(values.shape, dtype=dtype, device=values.device)
        for start in range(0, len(values), BLOCK_ROWS):
            some = slice(start, start + BLOCK_ROWS)
            standardised = (values[some].double() - self.mean) / self.scale
            found[some] = torch.where(self.constant, self.held, standardised)
        return found

    def undo(self, values: Tensor) -> Tensor:
        """Back to the units they came in."""
        return values * self.scale + self.mean


def _moments(column: Tensor) -> Tensor:
    """Mean and deviation (2,) of a column (n,), about its middle and in units of half its range.

    So no offset and no magnitude does harm.
    """
    low, high = 0.5 * column.amin(), 0.5 * column.amax()
    origin, unit = low + high, high - low
    relative = (column - origin) / torch.where(unit > 0, unit, 1.0)
    mean = relative.mean()
    return torch.stack([origin + mean * unit, (relative - mean).square().mean().sqrt() * unit])
