"""Do all ranks do the same? What differs among them is named on every one, before any work."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping

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
    for name in brought[0]:
        for rank, other in enumerate(brought):
            if other.get(name) != brought[0][name]:
                raise RankError(
                    f"All ranks must have the same {name}: rank 0 has {brought[0][name]:.{SHOWN}}, and rank"
                    f" {rank} has {other.get(name, 'none'):.{SHOWN}}. Start them alike, or fit within"
                    " `halfgp.distributed.alone()` for a model of this process."
                )


def environment() -> dict[str, str]:
    """All that decides how a rank rounds: what each computes for itself must come out the same."""
    found = {
        "version of halfgp": __version__,
        "version of torch": torch.__version__,
        "architecture": platform.machine(),
        "instructions of torch": torch.backends.cpu.get_cpu_capability(),
        "number of threads": str(torch.get_num_threads()),
    }
    if is_available("cpu"):
        from halfgp.backends.cpu import chosen_instruction_set

        found["instruction set (HALFGP_INSTRUCTION_SET)"] = chosen_instruction_set()
    return found
