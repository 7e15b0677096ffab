"""How many threads torch takes, for the length of a block, and how many pay."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

# Numbers below which torch itself gives an elementwise operation to one thread. The BLAS beside it has no
# such limit: it wakes a team for microseconds of work, which spins at every barrier; and where other work has
# the core of one of them, each of those thousands of barriers lasts a time slice.
GRAIN = 2**15


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
