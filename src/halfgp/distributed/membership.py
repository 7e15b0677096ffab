"""Joining the processes that a launcher has started, and leaving them with a word."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from halfgp.distributed.heartbeat import Heartbeat
from halfgp.distributed.ranks import PATIENCE, Ranks, leave, ranks_here
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
    store, rank, count = next(rendezvous("env://", timeout=PATIENCE))
    # A launcher may keep its store when it starts ranks again, with the addresses of those that are gone.
    fresh = PrefixStore(f"halfgp/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    dist.init_process_group(
        "nccl" if gpus else "gloo", store=fresh, rank=rank, world_size=count, timeout=PATIENCE
    )
    ranks = ranks_here()
    with Heartbeat(ranks):
        yield ranks
    leave()
    dist.destroy_process_group()


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
