"""Distinct places of rows: copies of a row say together what one row with less noise would say alone."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Sites:
    """Rows of which no two are at the same place.

    Attributes:
        first: (s,) the first row at each site.
        of_row: (n,) the site of each row.
        noise: (s,) variances of what the rows of a site say together, the inverse of the sum of inverses.
        targets: (s, q) means of theirs, weighted so.
        of_rows: (n,) noise of each row alone.
        targets_of_rows: (n, q).
    """

    first: Tensor
    of_row: Tensor
    noise: Tensor
    targets: Tensor
    of_rows: Tensor
    targets_of_rows: Tensor

    @classmethod
    def of(cls, x: Tensor, noise: Tensor, targets: Tensor) -> Sites:
        """The sites of rows (n, d) with noise (n,) above zero and targets (n, q); O(n (d + log n))."""
        first, of_row = distinct(x)
        weight = 1.0 / noise
        total = weight.new_zeros(len(first)).index_add_(0, of_row, weight)
        mean = targets.new_zeros(len(first), targets.shape[1])
        mean.index_add_(0, of_row, targets * weight[:, None])
        return cls(first, of_row, 1.0 / total, mean / total[:, None], noise, targets)

    def without(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Noise (m,) and targets (m, q) of the sites of rows (m,), each without that row.

        Noise is infinite where nothing else is there, or nothing that counts beside the row.
        """
        site, own = self.of_row[rows], 1.0 / self.of_rows[rows]
        total = 1.0 / self.noise[site]
        left = total - own
        # What rounding leaves of a difference of two equal numbers is none.
        counts = left > 4.0 * torch.finfo(left.dtype).eps * total
        noise = torch.where(counts, 1.0 / left, torch.inf)
        others = self.targets[site] * total[:, None] - self.targets_of_rows[rows] * own[:, None]
        return noise, torch.where(counts[:, None], others / left[:, None], 0.0)


def distinct(x: Tensor) -> tuple[Tensor, Tensor]:
    """The first row (s,) of every distinct one of (n, d), ascending, and which of those each row is (n,)."""
    bits = (x.double() + 0.0).view(torch.int64)  # a zero has one sign
    seed = 0
    while True:
        # Whole numbers that wrap around add up to the same in any order, as numbers with a point do not.
        generator = torch.Generator().manual_seed(seed)
        odd = torch.randint(-(2**62), 2**62, (x.shape[1],), generator=generator).to(x.device) * 2 + 1
        mixed = (bits ^ (bits >> 29)) * odd
        label = (mixed ^ (mixed >> 32)).sum(dim=1)
        _, group = torch.unique(label, return_inverse=True)
        numbers = torch.arange(len(x), device=x.device)
        least = torch.full((int(group.max()) + 1 if len(x) else 0,), len(x), device=x.device)
        least.scatter_reduce_(0, group, numbers, reduce="amin")
        leader = least[group]
        if bool((bits == bits[leader]).all()):
            break
        seed += 1  # two places with one label, which no two seeds do
    first, of_row = torch.unique(leader, return_inverse=True)
    return first, of_row
