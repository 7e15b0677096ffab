"""A file that the first rank reads for all of them: others need not see its disk."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from halfgp.distributed.ranks import Ranks
from halfgp.errors import FileError
from halfgp.persistence import Kind, Stored, read_file


def read_for_all(ranks: Ranks | None, path: Path, kind: Kind) -> Stored | None:
    """What a file holds, the same on every rank, or None where there is none.

    Raises:
        FileError: something is wrong with it; on all ranks alike.
    """
    if ranks is None:
        return read_file(path, kind) if path.exists() else None
    stored, told = None, ""
    if ranks.is_first and path.exists():
        try:
            stored = read_file(path, kind)
            told = json.dumps(
                {
                    "version": stored.version,
                    "header": stored.header,
                    "tensors": {
                        name: [str(t.dtype).removeprefix("torch."), list(t.shape)]
                        for name, t in stored.tensors.items()
                    },
                }
            )
        except FileError as error:
            told = json.dumps({"error": str(error)})
    first = ranks.texts(told)[0]
    if not first:
        return None
    known = json.loads(first)
    if "error" in known:
        raise FileError(known["error"])
    tensors = {
        name: ranks.of_first(
            torch.empty(shape, dtype=getattr(torch, dtype)) if stored is None else stored.tensors[name]
        )
        for name, (dtype, shape) in known["tensors"].items()
    }
    return Stored(kind, known["version"], known["header"], tensors)
