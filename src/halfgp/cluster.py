"""Memory, bytes and hours of a fit on many ranks, before a cluster is rented.

The model, by rank: a pass takes its share of the entries at the rate measured here, sends its rows of every
vector to all others and theirs back, and meets them some times more for sums; what every rank does by itself
is not shared at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from halfgp.choices import RESIDENT, are_compact, usable_memory
from halfgp.errors import InputError, MemoryLimitError
from halfgp.planner import Plan, dense_bytes, subset_seconds
from halfgp.settings import as_bytes

BANDWIDTH = 1.25e9  # bytes a second and rank, of a network of 10 Gbit/s
LATENCY = 2e-4  # seconds of a meeting; 1.5e-4 and 3e-4 were measured with two ranks on loopback
MEETINGS = 12  # of a pass, for sums, beside the two of its vectors: an iteration of CG and its preconditioner
TILE = 256  # rows and columns of a tile, of which a bit is kept, twice
GATHERED = 8 + 8 + 4 + 8  # bytes of a number of a gathered vector: itself, its sums, as packed, and as sent
HOLDER = 8  # bytes of a row: who holds it
# Bytes of a number of a point: as given, standardised, and packed; compact ones as read and held, packed, and
# in double while they are. An array that a caller has beside these is not counted.
POINTS, COMPACT_POINTS = 3 * 8, 4 + 8 + 8


@dataclass(frozen=True)
class ClusterPlan:
    """What a fit on many ranks is expected to take.

    Attributes:
        whole: the fit on one rank like each of these.
        ranks: how many.
        memory: bytes of a rank at its peak.
        memory_limit: bytes of a rank.
        bytes_a_pass: that a rank sends.
        bandwidth: bytes a second that it can send.

    Seconds are by the speed of this machine, which is measured when they are asked for.
    """

    whole: Plan
    ranks: int
    memory: int
    memory_limit: int
    bytes_a_pass: int
    bandwidth: float

    @property
    def computing(self) -> float:
        """Seconds of all that is shared out, mostly of passes."""
        return (self.whole.seconds - self.by_itself) / self.ranks

    @property
    def sending(self) -> float:
        """Seconds of what ranks send, and of their meetings."""
        meetings = (MEETINGS + 2) * LATENCY if self.ranks > 1 else 0.0
        return self.whole.passes * (self.bytes_a_pass / self.bandwidth + meetings)

    @cached_property
    def by_itself(self) -> float:
        """Seconds of what every rank does alone: training on a subset of the rows, or what is dense."""
        settings = self.whole.settings
        if self.whole.method == "cholesky":
            return self.whole.seconds
        subset = settings.training.subset if settings.training.subset_iterations else 0
        if not 0 < subset < self.whole.rows:
            return 0.0
        return min(subset_seconds(subset, settings.threads), self.whole.seconds)

    @property
    def seconds(self) -> float:
        """Of the fit."""
        return self.computing + self.sending + self.by_itself

    @property
    def fits(self) -> bool:
        """Whether the memory of a rank suffices."""
        return self.memory <= self.memory_limit

    @property
    def share_sending(self) -> float:
        """Of the time."""
        return self.sending / self.seconds if self.seconds > 0.0 else 0.0

    def require(self) -> None:
        """Raise unless it fits."""
        if not self.fits:
            raise MemoryLimitError(
                f"A fit of {self.whole.rows:,} rows with {self.whole.features} features on {self.ranks} ranks"
                f" needs about {self.memory / 1e9:.2f} GB on each, and {self.memory_limit / 1e9:.2f} GB are"
                " allowed. Raise `memory_limit`, start more ranks, or take fewer rows."
            )

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        about = {"rows": self.whole.rows, "features": self.whole.features, "passes": self.whole.passes}
        names = ("ranks", "memory", "memory_limit", "bytes_a_pass", "computing", "sending", "by_itself")
        more = ("seconds", "share_sending", "fits")
        return {**about, **{name: getattr(self, name) for name in names + more}}


def make_cluster_plan(whole: Plan, *, ranks: int, bandwidth: float = BANDWIDTH) -> ClusterPlan:
    """For a fit on so many ranks like this machine, with the threads of the settings each.

    Args:
        whole: the plan of that fit on one.
        ranks: P.
        bandwidth: bytes a second that a rank sends.
    """
    if ranks < 1:
        raise InputError(f"`ranks` must be at least 1; got {ranks}.")
    if not bandwidth > 0.0:
        raise InputError(f"`bandwidth` must be positive; got {bandwidth:g} bytes a second.")
    settings, targets = whole.settings, whole.targets
    columns = targets + (settings.training.probes if settings.training.steps else 0)
    to_others = (ranks - 1) / ranks
    return ClusterPlan(
        whole,
        ranks,
        _memory(whole, targets, columns, ranks),
        as_bytes(settings.memory_limit) or usable_memory(),
        round(2 * 8 * whole.rows * columns * to_others),
        bandwidth,
    )


def _memory(whole: Plan, targets: int, columns: int, ranks: int) -> int:
    """Of a rank: of what a fit on one takes its share, or what is dense, whichever is more at its time.

    Points are on every rank, and one gathered block beside them.
    """
    n = whole.rows
    alone = n * (whole.features + targets) * POINTS
    compact = are_compact(whole.settings, n, ranks)
    points = n * (whole.features * (COMPACT_POINTS if compact else POINTS) + targets * POINTS)
    work = max(whole.memory - alone - RESIDENT, 0)
    tiles = 2 * (n / TILE) ** 2 / 2 / 8 / ranks  # two bits for a pair
    gathered = (GATHERED * columns + HOLDER) * n if ranks > 1 else 0
    return round(RESIDENT + points + max(work / ranks, min(work, dense_bytes(whole))) + tiles + gathered)
