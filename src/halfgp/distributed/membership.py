"""Joining the processes that a launcher has started, and leaving them with a word."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from halfgp.distributed.heartbeat import ARRIVAL, POLL, Heartbeat
from halfgp.distributed.ranks import Ranks, leave, ranks_here
from halfgp.errors import RankError
from halfgp.launcher import is_launched

ENDED = 128 + signal.SIGTERM


@contextmanager
def joined() -> Iterator[Ranks | None]:
    """Within it, this process is in the group that its launcher started it for, if there is one.

    Ranks hear of each other all the while. On GPUs each takes the one of its local rank, and NCCL.
    """
    if not is_launched():
        yield None
        return
    _say_who_ends_it()
    gpus = torch.cuda.is_available()
    if gpus:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    _meet("nccl" if gpus else "gloo")
    ranks = ranks_here()
    with Heartbeat(ranks):
        yield ranks
    leave()
    dist.destroy_process_group()


def _meet(backend: str) -> None:
    """Join the group as soon as all others do, who are waited for as long as for a fit.

    Raises:
        RankError: some did not come.
    """
    patience = timedelta(seconds=ARRIVAL)
    try:
        store, rank, count = next(rendezvous("env://", timeout=patience))
        fresh = PrefixStore(_name_of_all(store, rank, count), store)
        dist.init_process_group(backend, store=fresh, rank=rank, world_size=count, timeout=patience)
    except RuntimeError as error:  # what stores and backends say of who is not there
        mine, of, host = (os.environ[name] for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR"))
        raise RankError(
            f"Rank {mine} of {of} waited for the others at {host} for up to {ARRIVAL:.0f} s, and not all"
            " came: one died at its start, or never started, and its own output or the launcher's says why."
            f" ({' '.join(str(error).split()):.200})"
        ) from error


def _name_of_all(store: Store, rank: int, count: int) -> str:
    """A name that only those know who are here now, and that all of them know.

    A launcher keeps its store when it starts ranks again, with the addresses of those that are gone, and
    launchers of several machines count their starts differently. So each rank leaves a word that nobody said
    before, and goes on once every rank has seen the same words. A word of one that is gone is replaced by
    that of the one started for it, and until then it is seen by others but confirmed by nobody.

    Raises:
        RuntimeError: some did not come.
    """
    store.set(f"halfgp/here/{rank}", uuid.uuid4().hex)
    here = [f"halfgp/here/{other}" for other in range(count)]
    until = time.monotonic() + ARRIVAL
    while time.monotonic() < until:
        if store.check(here):
            name = "halfgp/" + hashlib.sha256(b" ".join(store.multi_get(here))).hexdigest()
            store.set(f"{name}/seen/{rank}", "")
            if store.check([f"{name}/seen/{other}" for other in range(count)]):
                return name
        time.sleep(POLL)
    missing = [str(other) for other in range(count) if not store.check([here[other]])]
    raise RuntimeError(f"not seen: rank {', '.join(missing)}" if missing else "some are gone again")


def _say_who_ends_it() -> None:
    """A word before a launcher ends this process, as it does when it has lost another one.

    In a thread that waits for the signal: the main one may be in a meeting, where no handler would run.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # threads that are made from now on, too

    def wait() -> None:
        signal.sigwait({signal.SIGTERM})
        rank, count = os.environ["RANK"], os.environ["WORLD_SIZE"]
        said = (
            f"Error: rank {rank} of {count} was told to end (SIGTERM): its launcher has lost another rank, or"
            " the job was cancelled. Started again with the same checkpoint it goes on where it was.\n"
        )
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, said.encode())
        os._exit(ENDED)

    threading.Thread(target=wait, name="halfgp launcher", daemon=True).start()
