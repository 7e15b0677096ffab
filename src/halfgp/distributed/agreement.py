"""Do all ranks do the same? What differs among them is named on every one, before any work."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy
import scipy
import torch

from halfgp.backends import is_available
from halfgp.distributed.ranks import Ranks
from halfgp.errors import RankError
from halfgp.version import __version__

SHOWN = 80  # characters of a value


def require_agreement(ranks: Ranks | None, items: Mapping[str, str]) -> None:
    """Raise, on every rank, unless all of them bring the same items.

    Args:
        ranks: who; None for a process that agrees with itself.
        items: by names that mean something to the user.

    Raises:
        RankError: naming the first item that differs, and the ranks.
    """
    if ranks is None:
        return
    brought = [json.loads(text) for text in ranks.texts(json.dumps(dict(items)))]
    for name in dict.fromkeys(name for one in brought for name in one):
        first, *others = (one.get(name, "none") for one in brought)
        for rank, other in enumerate(others, start=1):
            if other != first:
                raise RankError(
                    f"All ranks must have the same {name}: rank 0 has {first:.{SHOWN}}, and rank {rank} has"
                    f" {other:.{SHOWN}}. Start them alike, or fit within `halfgp.distributed.alone()` for a"
                    " model of this process."
                )


@contextmanager
def together(ranks: Ranks | None) -> Iterator[None]:
    """Within it, every rank does something by itself, and meets nobody; where one cannot, none goes on.

    Args:
        ranks: who; None for a process that is alone.

    Raises:
        RankError: another rank could not, with its words. Who could not raises what it met.
    """
    if ranks is None:
        yield
        return
    try:
        yield
    except Exception as error:
        ranks.texts(f"{type(error).__name__}: {error}")
        raise
    for rank, said in enumerate(ranks.texts("")):
        if said:
            raise RankError(f"Rank {rank} of {ranks.count} could not go on, and so none can. {said}")


def environment() -> dict[str, str]:
    """All that decides how a rank rounds: what each computes for itself must come out the same.

    SciPy among it: every rank climbs by its L-BFGS, and all have to evaluate as often.
    """
    found = {
        "version of halfgp": __version__,
        "version of torch": torch.__version__,
        "version of NumPy": numpy.__version__,
        "version of SciPy": scipy.__version__,
        "architecture": platform.machine(),
        "instructions of torch": torch.backends.cpu.get_cpu_capability(),
        "number of threads": str(torch.get_num_threads()),
    }
    if is_available("cpu"):
        from halfgp.backends.cpu import chosen_instruction_set

        found["instruction set (HALFGP_INSTRUCTION_SET)"] = chosen_instruction_set()
    return found
