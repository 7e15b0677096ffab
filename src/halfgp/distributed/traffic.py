"""What ranks send each other, and how long they wait for it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Traffic:
    """Of one rank, since it began.

    Attributes:
        bytes_sent: to other ranks.
        meetings: how often all ranks came together.
        waiting: seconds from coming to a meeting to leaving it: for who is late, and for the network.
        began: when it was, on the clock of `time.perf_counter`.
    """

    bytes_sent: int = 0
    meetings: int = 0
    waiting: float = 0.0
    began: float = field(default_factory=time.perf_counter)

    @property
    def share_waiting(self) -> float:
        """Of the time since it began, what was spent in meetings."""
        return self.waiting / max(time.perf_counter() - self.began, 1e-9)

    @contextmanager
    def meeting(self, bytes_sent: int) -> Iterator[None]:
        """Count what happens within."""
        start = time.perf_counter()
        yield
        self.waiting += time.perf_counter() - start
        self.bytes_sent += bytes_sent
        self.meetings += 1
