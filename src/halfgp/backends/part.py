"""A part of a kernel matrix: one of some summands, each computed by somebody else."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Part:
    """Which summand of a square matrix a backend is to bind; all of them add up to the matrix.

    Its entries are whatever the backend finds to be a fair share of the work: of a symmetric matrix pairs of
    tiles, each once; otherwise rows.

    Attributes:
        index: which.
        count: of how many.
    """

    index: int = 0
    count: int = 1

    @property
    def is_whole(self) -> bool:
        """Whether there is no other."""
        return self.count == 1

    def of(self, size: int) -> slice:
        """Its run of `size` things: those of all parts have no gap, and differ by one in length at most."""
        return slice(size * self.index // self.count, size * (self.index + 1) // self.count)

    def only(self, values: Tensor) -> Tensor:
        """Values (n, ...) with zeros but for its run: what of a diagonal is its own."""
        if self.is_whole:
            return values
        own, run = torch.zeros_like(values), self.of(len(values))
        own[run] = values[run]
        return own


WHOLE = Part()
