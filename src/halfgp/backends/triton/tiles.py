"""How large the tiles of a kernel are: the fastest of a few, timed once and remembered."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import triton
from triton.runtime.errors import OutOfResources

from halfgp.backends.triton import dot
from halfgp.backends.triton.description import Form
from halfgp.errors import FileError
from halfgp.replacement import write_whole

logger = logging.getLogger("halfgp")

INTERPRETED: bool = dot.INTERPRETED.value


class Tile(NamedTuple):
    """Rows and columns of entries that a program holds at a time, and how many warps share them."""

    rows: int
    columns: int
    warps: int


# The interpreter takes as long for a large tile as for a small one.
INTERPRETER_TILE = Tile(128, 128, 4)
# By the most columns of right-hand sides; the first of each is what code is judged by.
EXPANSION_TILES = {
    32: (Tile(128, 64, 4), Tile(128, 32, 4), Tile(64, 64, 4), Tile(128, 64, 8)),
    64: (Tile(128, 64, 8), Tile(64, 64, 4), Tile(128, 32, 8)),
    128: (Tile(64, 64, 8), Tile(128, 64, 8), Tile(64, 32, 8)),
    256: (Tile(64, 32, 8), Tile(64, 64, 8), Tile(32, 64, 4)),
}
# Of features in several chunks: their loop holds tiles of points beside the sums, and larger ones spill.
WIDE_TILES = {
    32: (Tile(64, 64, 4), Tile(128, 32, 4), Tile(128, 64, 8)),
    64: (Tile(64, 32, 4), Tile(128, 32, 8), Tile(128, 64, 8)),
    128: (Tile(64, 32, 4), Tile(32, 64, 4), Tile(64, 64, 8)),
    256: (Tile(32, 32, 4), Tile(64, 32, 8)),
}
# Of distances by differences, and of many leaves, whose values are held at once.
SMALL_TILES = {
    64: (Tile(64, 32, 4), Tile(64, 64, 4), Tile(64, 64, 8)),
    256: (Tile(32, 32, 4), Tile(64, 32, 8)),
}
FEW_LEAVES = 2
GRADIENT_TILES = (Tile(64, 32, 4), Tile(64, 64, 8), Tile(32, 32, 4))
SMALL_GRADIENT_TILES = (Tile(32, 16, 4), Tile(32, 32, 4))


def product_tiles(form: Form, columns: int, exact: bool) -> Sequence[Tile]:
    """Candidates for so many right-hand sides, with distances by differences or by expansion."""
    if INTERPRETED:
        return (INTERPRETER_TILE,)
    wide = any(leaf.expanded and leaf.width > leaf.chunk for leaf in form.leaves)
    small = exact or len(form.leaves) > FEW_LEAVES
    tiles = SMALL_TILES if small else WIDE_TILES if wide else EXPANSION_TILES
    return next(some for most, some in tiles.items() if columns <= most)


def gradient_tiles(form: Form) -> Sequence[Tile]:
    """Candidates for a gradient pass."""
    if INTERPRETED:
        return (INTERPRETER_TILE,)
    return SMALL_GRADIENT_TILES if len(form.leaves) > FEW_LEAVES else GRADIENT_TILES


class TileChoices:
    """What was found to be fastest, by a key that says all that the time depends on.

    Held by the process, and in a file beside Triton's compiled kernels for the next one.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: dict[str, Tile] = {}

    def best(self, key: str, candidates: Sequence[Tile], milliseconds: Callable[[Tile], float]) -> Tile:
        """The fastest candidate; the first call with a key compiles and times each of them, in seconds.

        Args:
            key: what a choice is remembered by.
            candidates: a few.
            milliseconds: of a launch with a tile; infinite where the device cannot hold it.
        """
        if len(candidates) == 1:
            return candidates[0]
        if key not in self._found:
            kept = self._read().get(key)
            if kept is None:
                logger.warning(
                    "Compiling %d candidates of a GPU kernel, some seconds, once.", len(candidates)
                )
                self._found[key] = min(candidates, key=milliseconds)
                self._write()
            else:
                self._found[key] = Tile(*kept)
        return self._found[key]

    def _read(self) -> dict[str, list[int]]:
        try:
            kept: dict[str, list[int]] = json.loads(self._path.read_text())
        except (OSError, ValueError):  # none yet, or half of one: it is timed again
            return {}
        return kept

    def _write(self) -> None:
        """Best effort: where the file cannot be written, the next process times again."""
        kept = self._read() | {key: list(tile) for key, tile in self._found.items()}
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._path, json.dumps(kept))
        except (OSError, FileError) as error:
            logger.warning("Tile sizes are not remembered: %s", error)


CHOICES = TileChoices(Path(os.fspath(triton.knobs.cache.dir)) / "halfgp_tiles.json")


def launch_time(launch: Callable[[], Any]) -> float:
    """Milliseconds of a launch on the current device, infinite where it cannot be made."""
    try:
        launch()  # compiles
        return float(triton.testing.do_bench(launch, warmup=5, rep=20, return_mode="median"))
    except OutOfResources:
        return float("inf")


def tile_key(device: torch.device, rows: range, columns: range, *parts: object) -> str:
    """All that the time of a launch depends on, as text; sizes by their powers of two, for rows may grow."""
    sizes = (len(rows).bit_length(), len(columns).bit_length())
    return repr((torch.cuda.get_device_name(device), triton.__version__, *sizes, *parts))
