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
from halfgp.preconditioners.pattern import SPREAD, Pattern, members_within
from halfgp.preconditioners.pivoted_cholesky import LARGEST_BLOCK, Greedy
from halfgp.preconditioners.shared_neighbours import SharedNeighbours, shared_neighbours
from halfgp.preconditioners.sparse_inverse_cholesky import LandmarksAndNeighbours, conditioned_on

# Neighbours of a row, and rows of a group: as many as are usual, up to so many rows; a power of these beyond;
# at most; and at least, where memory is short.
NEIGHBOURS, USUAL_ROWS, GROWTH, MOST, FEWEST = 30, 40_000, 0.45, 128, 6
TELLING = 32  # pivots: from fewer nobody can tell what more of them would leave
ENOUGH = 0.1  # of the noise: what low rank leaves of rows' variances, and more of it would not repay
ROUNDED = 0.01  # of a row's variance, which is 1 where it is whitened
MEMORY = 2**30  # bytes, of what landmarks explain and of what is kept of neighbours
BYTES_OF_ENTRY = 4  # of a row of a group and one that it is given, in single; double takes twice as much
BYTES_OF_MEMBER = 12  # of a group: who it is, and where it is met
FOR_NEIGHBOURS = 0.75  # of the memory, at most: of the two, neighbours save more passes
BYTES_OF_LANDMARK = 12  # of a row: what it explains, and what it explained in single while it was picked


@dataclass(frozen=True)
class AutomaticPreconditioner:
    """Landmarks first; then low rank if a few more would leave less than the noise, and else neighbours.

    √(n / 1.6) pivots are taken, which costs about as much as a product; of rows of which a product looks at
    some pairs only, as many as of so many fewer. What they leave of a row's variance,
    beside its noise, is about the condition of the matrix that low rank leaves to CG. It falls like a power
    of the rank. Where that takes it below 1 within 3 √n pivots, low rank of so many is the best there is:
    nothing is above the matrix, and a handful of passes do. They cost some nine products, whatever n is, and
    are taken unless the first ones leave a tenth of the noise at most. Where low rank does not reach so far,
    the pivots become landmarks.

    Every other row is given neighbours, and shares them with as many rows that are near. To build its part of
    the factor takes a little more than the square of their number, a pass the number of rows that are not too
    far for it: so they grow with the 0.45th power of that, and building goes on to cost some ten
    passes.

    Attributes:
        rank: of low rank, or landmarks, instead of those; None for them.
        neighbours: of rows that are no landmarks, and rows of a group, as far as memory goes; None for what
            pays.
        seed: of their order.
        memory: bytes that it may take.

    A matrix that does not know its points has low rank.
    """

    rank: int | None = None
    neighbours: int | None = None
    seed: int = 0
    memory: int = MEMORY

    def __post_init__(self) -> None:
        check_rank(self.rank)
        for name in ("seed", "memory"):
            check_count(getattr(self, name), name)
        if self.neighbours is not None:
            check_count(self.neighbours, "neighbours")

    def build(self, operator: object) -> LowRankPlusNoise | LandmarksAndNeighbours | SharedNeighbours:
        """The preconditioner of a square operator with noise."""
        source = as_operator(operator)
        n = source.size
        first, neighbours = self.counts(source)
        rule = Greedy(LARGEST_BLOCK)
        found = partial_cholesky(source, first, None, rule, floor_of_noise=True)
        most = pivots_within(n, self.memory) if self.rank is None else first
        if not isinstance(source, BoundKernel | ShardedKernel) or expected(found, most) <= 1.0:
            if excess(found) > ENOUGH and most > first:
                found = partial_cholesky(source, most, None, rule, floor_of_noise=True, earlier=found)
            return found.low_rank_plus_noise()
        landmarks = found.pivots
        del found  # and its factor, which is large
        if isinstance(source, ShardedKernel):
            kept = entries_in(source, _variances(source))
            return shared_neighbours(source, landmarks, neighbours, group_of(neighbours), self.seed, kept)
        pattern = Pattern.around(source, landmarks, neighbours, group_of(neighbours), self.seed)
        return conditioned_on(source, pattern, entries_in(source, source.variances()))

    def counts(self, source: Operator) -> tuple[int, int]:
        """How many landmarks, and how many neighbours of every other row, a matrix would have."""
        n, met, neighbours = source.size, rows_met(source.size, 1.0 - source.skipped), self.neighbours
        if neighbours is None:
            neighbours = paying_neighbours(met)
        itemsize = BYTES_OF_ENTRY
        if isinstance(source, BoundKernel | ShardedKernel):
            itemsize = entries_in(source, _variances(source)).dtype.itemsize
        neighbours = neighbours_within(n, self.memory, min(neighbours, n), itemsize)
        if self.rank is not None:
            return min(self.rank, n), neighbours
        return landmarks_within(n, self.memory, neighbours, met, itemsize), neighbours


def pivots_within(n: int, memory: int) -> int:
    """How many pivots low rank may have, of n rows with so many bytes."""
    return min(3 * math.isqrt(n), rank_within(n, memory))


def rows_met(n: int, live: float) -> int:
    """How many others a pass looks at for a row, where it looks at a share of all pairs: what it costs."""
    return math.ceil(n * live)


def paying_neighbours(met: int) -> int:
    """How many neighbours a row should have, where a pass looks at so many others for it."""
    return round(min(MOST, NEIGHBOURS * math.pow(max(1.0, met / USUAL_ROWS), GROWTH)))


def group_of(neighbours: int) -> int:
    """How many rows should share so many neighbours each."""
    return max(1, neighbours)


def bytes_of_row(neighbours: int, itemsize: int = BYTES_OF_ENTRY) -> float:
    """What the factor takes of a row, at most, whose group has as many rows as it has neighbours."""
    group = group_of(neighbours)
    members = members_within(neighbours, group)
    return itemsize * (members + SPREAD * group) + BYTES_OF_MEMBER * (1.0 + SPREAD * members / group)


def neighbours_within(n: int, memory: int, wanted: int, itemsize: int = BYTES_OF_ENTRY) -> int:
    """How many neighbours a row may have, of n rows with so many bytes; some are better than none."""
    most = FOR_NEIGHBOURS * memory / max(n, 1)
    return next(
        (k for k in range(wanted, FEWEST, -1) if bytes_of_row(k, itemsize) <= most), min(FEWEST, wanted)
    )


def landmarks_within(n: int, memory: int, neighbours: int, met: int, itemsize: int = BYTES_OF_ENTRY) -> int:
    """How many landmarks pay, and fit into so many bytes beside neighbours; whole vectors of the engine."""
    left = max(memory - round(bytes_of_row(neighbours, itemsize) * n), 0)
    paying = automatic_rank(met, memory)
    paying = max(paying // 2, min(paying, TELLING))
    count = min(paying, left // (BYTES_OF_LANDMARK * max(n, 1)))
    return max(count - count % 8, min(n, 8))


def bytes_within(n: int, memory: int, live: float) -> int:
    """What it takes at most, with so many bytes; some neighbours and landmarks there always are.

    With next to no noise entries are in double, and there are fewer neighbours for it.
    """
    met = rows_met(n, live)
    neighbours = neighbours_within(n, memory, paying_neighbours(met))
    landmarks = landmarks_within(n, memory, neighbours, met)
    near = math.ceil(BYTES_OF_LANDMARK * landmarks + bytes_of_row(neighbours))
    return n * max(near, BYTES_OF_PIVOT * pivots_within(n, memory))


def _variances(source: BoundKernel | ShardedKernel) -> Tensor:
    """Of all rows (n,), whoever holds them."""
    return (source.summand if isinstance(source, ShardedKernel) else source).variances()


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
