"""Whether `torchrun`, or whatever sets the same variables, has started other processes beside this one."""

from __future__ import annotations

import os

NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def is_launched() -> bool:
    """Whether the environment tells of other ranks."""
    return all(name in os.environ for name in NEEDED) and int(os.environ["WORLD_SIZE"]) > 1


def is_first() -> bool:
    """Whether this process is the one that prints and writes: alone, or of rank 0."""
    return not is_launched() or int(os.environ["RANK"]) == 0
