"""A square kernel matrix whose rows are shared out over ranks."""

from __future__ import annotations

import torch
from torch import Tensor

from halfgp.backends.part import Part
from halfgp.distributed.ranks import Ranks
from halfgp.operators.base import Operator
from halfgp.operators.bound import BoundKernel
from halfgp.precision import Precision


class ShardedKernel(Operator):
    """K(x, x) + diag(noise), of which every rank computes one summand.

    A rank knows all points, and of every vector the rows that it `held`, which lie near one another. A
    product gathers the vector, multiplies it with the rank's summand, pairs of tiles that are its share of
    the work, and sends each rank its rows of that: 2 n t numbers over the network for 1/P of the entries. So
    symmetry is not lost, and a rank that has few tiles that are not zero gets more of them. Tiles of its own
    rows need nobody, and are multiplied while the vector is gathered.

    Args:
        summand: K + noise, bound as the rank's part.
        ranks: who share it.
        part: that the summand is bound as, with the order in which rows are held.

    Results are the same for the same number of ranks, to the bit, and for another one but for rounding.
    """

    def __init__(self, summand: BoundKernel, ranks: Ranks, part: Part) -> None:
        self.summand, self.ranks, self._part = summand, ranks, part
        self.shape, self.device, self.precision = summand.shape, summand.device, summand.precision

    def matmul(self, v: Tensor) -> Tensor:
        """K v (m, t) of the rows held here, column-major as v."""
        arrival = self.ranks.gathering(v, self.size, self._part.order)
        own = self.summand.within(v)
        return self.scattered(self.summand.matmul(arrival()), own)

    def with_precision(self, precision: str | Precision) -> ShardedKernel:
        """On another rung."""
        other = self.summand.with_precision(precision)
        return self if other is self.summand else ShardedKernel(other, self.ranks, self._part)

    def rungs(self) -> tuple[Precision, ...]:
        """As of the whole matrix."""
        return self.summand.rungs()

    @property
    def nugget(self) -> Tensor:
        """Noise and White, () or (m,)."""
        nugget = self.summand.nugget
        return nugget[self.held] if nugget.ndim else nugget

    @property
    def skipped(self) -> float:
        """Of all entries, the share that is zero and that no rank looks at."""
        return self.summand.skipped

    @property
    def has_rows(self) -> bool:
        """Yes."""
        return True

    def rows(self, i: Tensor) -> Tensor:
        """Rows i, numbered among all, in the columns that are held here: (len(i), m), noise included."""
        return self.summand.rows(i, self.numbers)

    def diagonal(self) -> Tensor:
        """Of the rows held here (m,), noise included."""
        return self.summand.diagonal()[self.held]

    def bilinear_gradient(
        self, u: Tensor, v: Tensor, inputs: bool = False
    ) -> tuple[dict[str, Tensor], Tensor | None, Tensor | None]:
        """The gradient of sum_c u_c' K v_c, for (m, t) held here, in every hyperparameter.

        In the points, where wanted, of the rows held here.
        """
        whole = self.gathered(torch.cat([u, v], dim=1))
        found, in_points, _ = self.summand.bilinear_gradient(
            whole[:, : u.shape[1]], whole[:, u.shape[1] :], inputs
        )
        own = None if in_points is None else self.scattered(in_points)
        return dict(zip(found, self.ranks.totals(list(found.values())), strict=True)), own, None

    # How shares come together.

    @property
    def is_shared(self) -> bool:
        """Yes."""
        return True

    @property
    def held(self) -> slice | Tensor:
        """Which of all rows are here."""
        return self._part.held(self.size)

    @property
    def most_held(self) -> int:
        """Rows of the largest share."""
        return -(-self.size // self.ranks.count)

    def total(self, partial: Tensor) -> Tensor:
        """A sum over all rows from one over the rows held here."""
        return self.ranks.total(partial)

    def largest(self, partial: Tensor) -> Tensor:
        """The largest number of all rows from that of the rows held here."""
        return self.ranks.largest(partial)

    def gathered(self, v: Tensor) -> Tensor:
        """All rows (n, ...) of v (m, ...)."""
        return self.ranks.gathering(v, self.size, self._part.order)()

    def scattered(self, partial: Tensor, own: Tensor | None = None) -> Tensor:
        """The rows held here (m, t) of the sum over ranks of (n, t), and of what is of these alone."""
        return self.ranks.scattered(partial, self._part.order, own)
