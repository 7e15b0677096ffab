"""How far the recurrence's residual has drifted from the true one, read off a few rows of A."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from halfgp.operators.base import Operator

SAMPLED_ROWS = 64  # the relative standard deviation of a norm from so many rows is about a tenth
SAMPLED_ENTRIES = 2**24  # at most, however long the rows


class GapMonitor:
    """Estimates |b - A x - r| from a fixed random sample of rows of A in double.

    A pass over A in double costs several cheap ones, so that a check must be rare; a sample of 64 rows costs
    64/n of it, once, and then O(64 n t) an estimate. It notices what the recurrence cannot: the error of the
    products themselves.
    """

    def __init__(self, wide: Operator, b: Tensor) -> None:
        n = wide.size
        count = max(1, min(n, SAMPLED_ROWS, SAMPLED_ENTRIES // max(n, 1)))
        order = torch.randperm(n, generator=torch.Generator().manual_seed(0))
        self._sample = order[:count].to(b.device)
        self._wide = wide
        self.rows = wide.rows(self._sample).double()
        self._b = wide.at(b, self._sample)
        self._stretch = math.sqrt(n / count)

    def gap(self, x: Tensor, r: Tensor, columns: Tensor) -> Tensor:
        """Estimates (t,) of the gap's norm for these columns of b, with x and r (n, t)."""
        missing = self._b[:, columns] - self._wide.total(self.rows @ x) - self._wide.at(r, self._sample)
        return missing.square().sum(dim=0).sqrt() * self._stretch

    def perturbation(self, system: Operator) -> float:
        """An estimate of the norm of A on that rung minus A: 2 √n times the root mean square of an entry.

        Exact for independent errors, as of rounded entries; for the coherent ones of rounded inputs low.
        """
        error = system.rows(self._sample).double() - self.rows
        mean_square = system.total(error.square().sum()) / (len(self._sample) * system.size)
        return 2.0 * math.sqrt(system.size) * float(mean_square.sqrt())
