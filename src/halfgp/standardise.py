"""Columns brought to mean zero and variance one, and back; those that say nothing are held."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from halfgp.precision import DOUBLE


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
        """From the columns of (n, d); a constant column keeps its scale, and all do if it is not wanted."""
        values = values.double()
        d = values.shape[1]
        nothing = values.new_zeros(d)
        none = nothing.bool()
        if not wanted:
            return cls(nothing, torch.ones_like(nothing), none, nothing)
        # About the middle and in units of half the range, so that no offset and no magnitude does harm.
        low, high = 0.5 * values.amin(dim=0), 0.5 * values.amax(dim=0)
        origin, unit = low + high, high - low
        relative = (values - origin) / torch.where(unit > 0, unit, 1.0)
        mean = relative.mean(dim=0)
        scale = (relative - mean).square().mean(dim=0).sqrt() * unit
        return cls(origin + mean * unit, torch.where(scale > 0, scale, 1.0), none, nothing)

    def holding(self, values: Tensor) -> Standardisation:
        """With columns of (n, d) that have one value in all of several rows held at it.

        They say nothing about a target, and another value in a row to come would mean what nobody knows.
        Values that differ by rounding alone are one.
        """
        values = values.double()
        if len(values) < 2:
            return self
        low, high = values.amin(dim=0), values.amax(dim=0)
        constant = 0.5 * high - 0.5 * low <= 4 * DOUBLE.eps * torch.maximum(low.abs(), high.abs())
        held = torch.where(constant, self.apply(values[:1])[0], 0.0)
        return replace(self, constant=constant, held=held)

    def of_columns(self, columns: Sequence[int]) -> Standardisation:
        """That of some columns."""
        some = list(columns)
        if len(some) == len(self.mean):
            return self
        return Standardisation(self.mean[some], self.scale[some], self.constant[some], self.held[some])

    def apply(self, values: Tensor) -> Tensor:
        """Standardised columns, float64."""
        return torch.where(self.constant, self.held, (values.double() - self.mean) / self.scale)

    def undo(self, values: Tensor) -> Tensor:
        """Back to the units they came in."""
        return values * self.scale + self.mean
