"""A part of a kernel matrix: one of some summands, each computed by somebody else."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True)
class Part:
    """Which summand of a square matrix a backend is to bind; all of them add up to the matrix.

    Its entries are whatever the backend finds to be a fair share of the work: of a symmetric matrix pairs of
    tiles, each once; otherwise rows. Where vectors are shared out as well, a backend may see to it that some
    of the work needs the rows that are held here alone: it can be done while others are on their way.

    Attributes:
        index: which.
        count: of how many.
        order: (n,) the rows of vectors by who holds them, those of one part ascending; None where they are
            held in their own order.
    """

    index: int = 0
    count: int = 1
    order: Tensor | None = field(default=None, compare=False)

    @property
    def is_whole(self) -> bool:
        """Whether there is no other."""
        return self.count == 1

    def of(self, size: int) -> slice:
        """Its run of `size` things: those of all parts have no gap, and differ by one in length at most."""
        return slice(size * self.index // self.count, size * (self.index + 1) // self.count)

    def held(self, size: int) -> slice | Tensor:
        """Which of `size` rows of a vector are held: its run of the order."""
        run = self.of(size)
        return run if self.order is None else self.order[run]

    def only(self, values: Tensor) -> Tensor:
        """Values (n, ...) with zeros but for its run: what of a diagonal is its own."""
        if self.is_whole:
            return values
        own, run = torch.zeros_like(values), self.of(len(values))
        own[run] = values[run]
        return own


def shared_out(order: Tensor, count: int) -> Tensor:
    """The order (n,) of a `Part` whose rows are those of its run of another order."""
    runs = [order[Part(index, count).of(len(order))].sort().values for index in range(count)]
    return torch.cat(runs)


WHOLE = Part()
