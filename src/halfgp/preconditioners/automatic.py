"""The preconditioner that suits a matrix: low rank where that is enough, neighbours elsewhere."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from halfgp.operators import Operator, ShardedKernel, as_operator
from halfgp.operators.bound import BoundKernel
from halfgp.precision import DOUBLE, SINGLE, Format
from halfgp.preconditioners.base import (
    BYTES_OF_PIVOT,
    LowRankPlusNoise,
    automatic_rank,
    check_count,
    check_rank,
    rank_within,
)
from halfgp.preconditioners.partial_cholesky import PartialCholesky, partial_cholesky
from halfgp.preconditioners.pattern import Pattern
from halfgp.preconditioners.pivoted_cholesky import LARGEST_BLOCK, Greedy
from halfgp.preconditioners.shared_neighbours import SharedNeighbours, shared_neighbours
from halfgp.preconditioners.sparse_inverse_cholesky import LandmarksAndNeighbours, conditioned_on

NEIGHBOURS, FEWEST = 50, 8  # of a row; at least, where memory is short
ENOUGH = 0.1  # of the noise: what low rank leaves of rows' variances, and more of it would not repay
ROUNDED = 0.01  # of a row's variance, which is 1 where it is whitened
MEMORY = 2**30  # bytes, of what landmarks explain and of what is kept of neighbours
BYTES_OF_NEIGHBOUR = 28  # of a row: who it is, its entry, and both in the factor by rows and by columns


@dataclass(frozen=True)
class AutomaticPreconditioner:
    """Landmarks first; then low rank if a few more would leave less than the noise, and else neighbours.

    √(2.5 n) pivots are taken, which costs about as much as two products. What they leave of a row's variance,
    beside its noise, is about the condition of the matrix that low rank leaves to CG. It falls like a power
    of the rank. Where that takes it below 1 within 3 √n pivots, low rank of so many is the best there is:
    nothing is above the matrix, and a handful of passes do. They cost some nine products, whatever n is, and
    are taken unless the first ones leave a tenth of the noise at most. Where low rank does not reach so far,
    the pivots become landmarks.

    Attributes:
        rank: of low rank, or landmarks, instead of those; None for them.
        neighbours: of rows that are no landmarks, at most, as far as memory goes.
        seed: of their order.
        memory: bytes that it may take.

    A matrix that does not know its points has low rank.
    """

    rank: int | None = None
    neighbours: int = NEIGHBOURS
    seed: int = 0
    memory: int = MEMORY

    def __post_init__(self) -> None:
        check_rank(self.rank)
        for name in ("neighbours", "seed", "memory"):
            check_count(getattr(self, name), name)

    def build(self, operator: object) -> LowRankPlusNoise | LandmarksAndNeighbours | SharedNeighbours:
        """The preconditioner of a square operator with noise."""
        source = as_operator(operator)
        n = source.size
        first = landmarks_within(n, self.memory) if self.rank is None else min(self.rank, n)
        rule = Greedy(LARGEST_BLOCK)
        found = partial_cholesky(source, first, None, rule, floor_of_noise=True)
        most = pivots_within(n, self.memory) if self.rank is None else first
        if not isinstance(source, BoundKernel | ShardedKernel) or expected(found, most) <= 1.0:
            if excess(found) > ENOUGH and most > first:
                found = partial_cholesky(source, most, None, rule, floor_of_noise=True, earlier=found)
            return found.low_rank_plus_noise()
        neighbours = min(self.neighbours, neighbours_within(n, self.memory))
        if isinstance(source, ShardedKernel):
            kept = entries_in(source, source.summand.variances())
            return shared_neighbours(source, found.pivots, neighbours, self.seed, kept)
        pattern = Pattern.around(source, found.pivots, neighbours, self.seed)
        return conditioned_on(source, pattern, entries_in(source, source.variances()))


def pivots_within(n: int, memory: int) -> int:
    """How many pivots low rank may have, of n rows with so many bytes."""
    return min(3 * math.isqrt(n), rank_within(n, memory))


def neighbours_within(n: int, memory: int) -> int:
    """How many neighbours a row may have, of n rows with so many bytes; some are better than none."""
    return max(FEWEST, min(NEIGHBOURS, memory // (BYTES_OF_NEIGHBOUR * max(n, 1))))


def landmarks_within(n: int, memory: int) -> int:
    """How many landmarks of n rows fit into so many bytes beside neighbours; whole vectors of the engine."""
    left = max(memory - BYTES_OF_NEIGHBOUR * neighbours_within(n, memory) * n, 0)
    count = automatic_rank(n, left // 2)  # held twice while they are built
    return max(count - count % 8, min(n, 8))


def bytes_within(n: int, memory: int) -> int:
    """What it takes at most, with so many bytes; some neighbours and landmarks there always are."""
    near = 2 * 8 * landmarks_within(n, memory) + BYTES_OF_NEIGHBOUR * neighbours_within(n, memory)
    return n * max(near, BYTES_OF_PIVOT * pivots_within(n, memory))


def excess(found: PartialCholesky) -> float:
    """What pivots leave of a row's variance, in the mean, beside the noise."""
    noise = found.source.gathered(found.noise) if found.noise.ndim else found.noise
    return float((found.remaining / noise).mean()) if len(found.remaining) else 0.0


def expected(found: PartialCholesky, rank: int) -> float:
    """What so many pivots would leave beside the noise, from how the second half of those there are fared."""
    k = len(found.pivots)
    if k < 2 or rank <= k:
        return excess(found)
    fall = float(found.traces[-1] / found.traces[k // 2 - 1])  # over one doubling
    return excess(found) * math.pow(fall, math.log2(rank / k))


def entries_in(operator: Operator, variances: Tensor) -> Format:
    """The format of the entries of G: single, unless its rounding would show in G A G', whose diagonal is 1.

    A row g of G has g'A g = 1, and so |g|² is at most the inverse of the least noise. Rounded it is e away,
    |e| <= eps |g|, and e'A e is at most |e|² times the trace of A, with variances (n,) on its diagonal.
    """
    rounded = SINGLE.eps**2 * float(variances.sum())
    return SINGLE if rounded < ROUNDED * operator.least_nugget else DOUBLE
