"""Who is still there: a side thread of every rank tells the others, and ends a job that has lost one.

It talks to the group's store, and not in meetings: a rank is heard while its product lasts, however long. Who
asks a store whose host stalls may wait for an answer for ever: a second thread looks at the clock alone.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import sys
import threading
import time
from datetime import timedelta
from types import TracebackType
from typing import Any, ClassVar

import torch.distributed as dist

from halfgp.distributed.ranks import Ranks
from halfgp.errors import RankError

INTERVAL = 2.0  # seconds between two signs of life
SILENCE = 30.0  # seconds without one from a rank that is taken for lost
ARRIVAL = 1800.0  # seconds until the first one of a rank, which may read its data for longer than others
GRACE = 5.0  # seconds for this rank to find out by itself what another has failed at
POLL = 0.05  # seconds between two looks at who has heard of a failure
LOST = 70  # exit code of a rank that ends because another one did
DONE, ENDED, FAILED = "done", "ended", "failed: "
_fits = itertools.count()  # each has signs of its own; ranks come to the same fits in the same order


class Heartbeat:
    """Within it, the process ends with a message as soon as another rank dies, stalls or fails.

    A process that waits for a rank that is gone, or computes for it, can be ended by nothing gentler: it is
    left by `os._exit`, with the code `LOST`. A rank that fails stays until others have had the time to hear
    why: once it is gone, they would only see that.

    Args:
        ranks: those of the job; None for a process that is alone, and needs no signs, or within another
            heartbeat, which has them.
    """

    _beats: ClassVar[bool] = False  # whether there is one around

    def __init__(self, ranks: Ranks | None) -> None:
        self._ranks = None if Heartbeat._beats else ranks
        self._over, self._left = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._watch, name="halfgp heartbeat", daemon=True)
        self._guard = threading.Thread(target=self._require_store, name="halfgp store", daemon=True)

    def __enter__(self) -> Heartbeat:
        if self._ranks is not None:
            self._store, self._fit = _own_store(), next(_fits)
            self._reached, self._refused = time.monotonic(), ""  # the store: when, and why not since
            self._guard.start()
            try:
                self._tell("0")
            except RuntimeError:
                self._left.set()
                raise
            Heartbeat._beats = True
            self._thread.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _where: TracebackType | None,
    ) -> None:
        if self._ranks is None:
            return
        Heartbeat._beats = False
        try:
            self._over.set()
            self._thread.join()
            self._tell(DONE if error is None else f"{FAILED}{type(error).__name__}: {error}")
            if error is not None and not isinstance(error, RankError):  # of which others know
                self._await_listeners()
        except RuntimeError:  # the store is gone, and with it who could read
            return
        finally:
            self._left.set()
            self._guard.join()

    def _await_listeners(self) -> None:
        """Until all others are over too, or have had the time to hear of it and to end."""
        until = time.monotonic() + INTERVAL + GRACE + INTERVAL
        while time.monotonic() < until and not all(map(self._is_over, self._others)):
            time.sleep(POLL)

    @property
    def _others(self) -> list[int]:
        assert self._ranks is not None
        return [rank for rank in range(self._ranks.count) if rank != self._ranks.index]

    def _is_over(self, rank: int) -> bool:
        said = self._sign(rank).partition(" ")[2]
        return said in (DONE, ENDED) or said.startswith(FAILED)

    def _key(self, rank: int) -> str:
        return f"halfgp/heartbeat/{self._fit}/{rank}"

    def _tell(self, sign: str) -> None:
        assert self._ranks is not None
        self._store.set(self._key(self._ranks.index), f"{socket.gethostname()} {sign}")
        self._reached = time.monotonic()

    def _require_store(self) -> None:
        """End a rank whose store does not answer: a thread that asks it may wait for ever."""
        while not self._left.wait(INTERVAL):
            silence = time.monotonic() - self._reached
            if silence > SILENCE:
                refused = f" ({self._refused})" if self._refused else ""
                said = f"the store of the job has not been reached for {silence:.0f} s{refused}"
                self._end(f"{said}: its host died or stalls", heard=False)

    def _watch(self) -> None:
        others = self._others
        signs = dict.fromkeys(others, "")
        heard = dict.fromkeys(others, time.monotonic())
        for beat in itertools.count(1):
            if self._over.wait(INTERVAL):
                return
            try:
                self._tell(str(beat))
                now = {rank: self._sign(rank) for rank in others}
            except RuntimeError as error:
                self._refused = str(error)
                continue
            for rank, sign in now.items():
                if sign != signs[rank]:
                    signs[rank], heard[rank] = sign, time.monotonic()
                self._judge(rank, sign, time.monotonic() - heard[rank])

    def _sign(self, rank: int) -> str:
        """The last one of a rank, or none before its first."""
        key = self._key(rank)
        sign = str(self._store.get(key).decode()) if self._store.check([key]) else ""
        self._reached = time.monotonic()
        return sign

    def _judge(self, rank: int, sign: str, silence: float) -> None:
        host, _, said = sign.partition(" ")
        if said.startswith(FAILED) and not self._over.wait(GRACE):
            self._end(f"rank {rank} on {host} {said}")
        if said == DONE or self._over.is_set():
            return
        if not sign and silence > ARRIVAL:
            self._end(f"rank {rank} has not come to it for {silence:.0f} s: it died, stalls, or never fits")
        if sign and silence > SILENCE:
            self._end(
                f"rank {rank} on {host} has not been heard of for {silence:.0f} s: it died, was killed, or"
                " stalls"
            )

    def _end(self, why: str, heard: bool = True) -> None:
        """Leave with a message, and a sign for others where the store can be told."""
        assert self._ranks is not None
        what = f"Error: rank {self._ranks.index} of {self._ranks.count} ends the fit: {why}."
        remedy = " Start the job again with the same `checkpoint`: it goes on where it was."
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, f"{what}{remedy}\n".encode())
        if heard:
            with contextlib.suppress(RuntimeError):  # the store may be lost with who was
                self._tell(ENDED)
                time.sleep(10 * POLL)  # for who failed to say so itself, before a launcher ends it for this
        os._exit(LOST)


def _own_store() -> Any:
    """The store of the group over a connection of its own, so that no other thread's wait is in the way."""
    store = dist.distributed_c10d._get_default_store()
    own = store.clone() if hasattr(store, "clone") else store
    own.set_timeout(timedelta(seconds=SILENCE))
    return own
