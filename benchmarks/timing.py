"""Fair timing of several candidates on one machine that is not quite quiet."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass
class Timing:
    """The durations of one candidate, in seconds."""

    seconds: list[float] = field(default_factory=list)

    @property
    def best(self) -> float:
        return min(self.seconds)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def as_dict(self) -> dict[str, float | int]:
        return {"best": self.best, "median": self.median, "runs": len(self.seconds)}


def round_robin(
    candidates: Mapping[str, Callable[[], object]],
    *,
    rounds: int,
    turn_seconds: float = 0.4,
    pause_seconds: float = 0.3,
) -> dict[str, Timing]:
    """Time every candidate in every round, so that a slow minute of the machine hits them all.

    A turn lasts at least `turn_seconds`: a fast candidate runs several times in it, a slow one once. Before
    each turn the machine rests for `pause_seconds`: the threads of an OpenMP runtime spin for up to 0.2 s
    after their last loop and would take a core from whoever comes next.
    """
    timings = {name: Timing() for name in candidates}
    for _ in range(rounds):
        for name, run in candidates.items():
            time.sleep(pause_seconds)
            turn_ends = time.perf_counter() + turn_seconds
            while True:
                start = time.perf_counter()
                run()
                stop = time.perf_counter()
                timings[name].seconds.append(stop - start)
                if stop >= turn_ends:
                    break
    return timings
