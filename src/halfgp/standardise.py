"""Columns brought to mean zero and variance one, and back."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Standardisation:
    """(values - mean) / scale, column by column.

    Attributes:
        mean: (d,), float64.
        scale: (d,), positive, float64.
    """

    mean: Tensor
    scale: Tensor

    @classmethod
    def of(cls, values: Tensor, wanted: bool = True) -> Standardisation:
        """From the columns of (n, d); a constant column keeps its scale, and all do if it is not wanted."""
        values = values.double()
        d = values.shape[1]
        if not wanted:
            return cls(torch.zeros(d, dtype=torch.float64), torch.ones(d, dtype=torch.float64))
        # About the middle and in units of half the range, so that no offset and no magnitude does harm.
        low, high = 0.5 * values.amin(dim=0), 0.5 * values.amax(dim=0)
        origin, unit = low + high, high - low
        relative = (values - origin) / torch.where(unit > 0, unit, 1.0)
        mean = relative.mean(dim=0)
        scale = (relative - mean).square().mean(dim=0).sqrt() * unit
        return cls(origin + mean * unit, torch.where(scale > 0, scale, 1.0))

    def apply(self, values: Tensor) -> Tensor:
        """Standardised columns, float64."""
        return (values.double() - self.mean) / self.scale

    def undo(self, values: Tensor) -> Tensor:
        """Back to the units they came in."""
        return values * self.scale + self.mean
