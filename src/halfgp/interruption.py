"""Ctrl-C while modules are imported: an exception in the middle of that would come out as something else."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def leaving_at_once() -> Iterator[None]:
    """Within, Ctrl-C ends the process in one line; unless whoever started it wants it ignored."""
    handler = signal.getsignal(signal.SIGINT)
    ours = handler is signal.default_int_handler and threading.current_thread() is threading.main_thread()
    if ours:
        signal.signal(signal.SIGINT, _leave)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGINT, handler)


def _leave(*_: object) -> None:
    os.write(2, b"Interrupted: nothing was written.\n")
    os._exit(130)
