"""What ranks send each other, and how long they wait for it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass
class Traffic:
    """Of one rank, since it began.

    Attributes:
        ranks: how many there are.
        bytes_sent: to other ranks.
        bytes_hidden: of these, those of meetings that were over before anybody here asked for what came of
            them: they passed while tiles were multiplied.
        meetings: how often all ranks came together.
        waiting: seconds from coming to a meeting to leaving it, for who is late, and for the network; where
            tiles are multiplied meanwhile, from the end of that.
        began: when it was, on the clock of `time.perf_counter`.
        seconds: from then to its end; None before.
    """

    ranks: int
    bytes_sent: int = 0
    bytes_hidden: int = 0
    meetings: int = 0
    waiting: float = 0.0
    began: float = field(default_factory=time.perf_counter)
    seconds: float | None = None

    @property
    def share_waiting(self) -> float:
        """Of its time, what was spent in meetings."""
        seconds = time.perf_counter() - self.began if self.seconds is None else self.seconds
        return self.waiting / seconds if seconds > 0.0 else 0.0

    def ended(self) -> Traffic:
        """As it stands now."""
        return replace(self, seconds=time.perf_counter() - self.began)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "ranks": self.ranks,
            "bytes_sent": self.bytes_sent,
            "bytes_hidden": self.bytes_hidden,
            "meetings": self.meetings,
            "share_waiting": self.share_waiting,
        }

    @contextmanager
    def meeting(self, bytes_sent: int) -> Iterator[None]:
        """Count what happens within."""
        start = time.perf_counter()
        yield
        self.waiting += time.perf_counter() - start
        self.bytes_sent += bytes_sent
        self.meetings += 1
