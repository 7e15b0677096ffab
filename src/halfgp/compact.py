"""Points of a table that no rank need have as a whole in float64: standardised, and rounded to single."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from halfgp.standardise import Standardisation

COMPACT = torch.float32  # has what single, the rung that most products are on, sees of standardised points


@dataclass(frozen=True, eq=False)
class CompactPoints:
    """Points (n, d), where `fit` would have them in the user's units.

    Attributes:
        values: (n, d), standardised, finite.
        scale: what standardised them, in float64, by all rows that are to be learned from.
    """

    values: Tensor
    scale: Standardisation

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: Tensor) -> CompactPoints:
        return replace(self, values=self.values[rows])

    @property
    def device(self) -> torch.device:
        """Where they are."""
        return self.values.device

    @property
    def shape(self) -> torch.Size:
        """(n, d)."""
        return self.values.shape

    def to(self, device: str) -> CompactPoints:
        """On a device that is named; "auto" leaves them where they are."""
        if device == "auto":
            return self
        scale = self.scale
        there = Standardisation(
            *(t.to(device) for t in (scale.mean, scale.scale, scale.constant, scale.held))
        )
        return CompactPoints(self.values.to(device), there)

    def double(self) -> Tensor:
        """In the user's units, float64, as far as they are still known: a copy."""
        return self.scale.undo(self.values)
