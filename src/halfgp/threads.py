"""How many threads torch and SciPy take, for the length of a block, and how many pay."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

import torch
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

# Numbers below which torch itself gives an elementwise operation to one thread. The BLAS beside it has no
# such limit: it wakes a team for microseconds of work, which spins at every barrier; and where other work has
# the core of one of them, each of those thousands of barriers lasts a time slice.
GRAIN = 2**15

_openblas = Lock()  # of whoever has set the threads of OpenBLAS


def paying_threads(numbers: int) -> int | None:
    """For dense algebra on vectors of so many numbers: one where they are few, None for all there are."""
    return 1 if numbers < GRAIN else None


@contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """Within, so many threads for dense algebra, as kernel products have them; None leaves it as it is."""
    before = torch.get_num_threads()
    if count is None or count == before:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def one_thread_of_openblas() -> Iterator[None]:
    """Within, the OpenBLAS of NumPy and SciPy has one thread.

    A step of L-BFGS on ten numbers wakes a team of them, which then spins for longer than the step takes: two
    thirds of what a fit of 150 rows computed. Their number is the process's: of several threads that are
    within at once, the first sets it, and sets it back when it leaves.
    """
    if not _openblas.acquire(blocking=False):
        yield
        return
    try:
        with _libraries().select(internal_api="openblas").limit(limits=1):
            yield
    finally:
        _openblas.release()


@functools.cache
def _libraries() -> ThreadpoolController:
    """Those that are loaded at the first call; NumPy's and SciPy's are."""
    import scipy.linalg  # noqa: F401

    return ThreadpoolController()
