"""Products and dense blocks: attention without the softmax."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import triton.language as tl
from torch import Tensor

from halfgp.backends.triton.description import Form
from halfgp.backends.triton.live_tiles import LiveTiles
from halfgp.backends.triton.points import PADDING, Packed
from halfgp.backends.triton.product_kernel import block_kernel, product_kernel
from halfgp.backends.triton.runs import RUN, Region, Runs, add_runs
from halfgp.backends.triton.tiles import CHOICES, Tile, launch_time, product_tiles, tile_key

BLOCK_TILE = Tile(PADDING, PADDING, 8)  # of dense entries
TUNING_TILES = 64  # rows of tiles that a tile size is timed on


class Terms(NamedTuple):
    """Of how many numbers each is the sum: points, entries, and vectors."""

    points: int
    entries: int
    vectors: int


@dataclass(frozen=True)
class Products:
    """What is launched for one matrix.

    Attributes:
        form: of the program.
        numbers: of the program.
        left: the rows.
        right: the columns.
        square: whether they are the same points.
        rows: places of the rows that are multiplied; sums of others are zero.
        terms: what is split in how many.
        dtype: of entries and vectors, as they meet.
        live: the tiles that are looked at; None for all.
    """

    form: Form
    numbers: Tensor
    left: Packed
    right: Packed
    square: bool
    rows: range
    terms: Terms
    dtype: torch.dtype
    live: LiveTiles | None = None

    def multiply(self, vectors: Tensor) -> Tensor:
        """Sums (places, T) in float64 with packed vectors (terms, places, T)."""
        sums = torch.zeros(self.left.total, vectors.shape[2], dtype=torch.float64, device=vectors.device)
        for region in self._regions():
            tile = self._tile(region, vectors)
            rows = sums[region.rows.start : region.rows.stop]
            for runs in Runs.of(region, tile, self.live).batches(rows.numel()):
                add_runs(rows, self._launch(region, tile, vectors, runs))
        return sums

    def block(self) -> Tensor:
        """Entries (places, places), float32, off the diagonal."""
        out = torch.empty(self.left.total, self.right.total, device=self.numbers.device)
        tile = BLOCK_TILE
        block_kernel[(self.left.total // tile.rows, self.right.total // tile.columns)](
            self.left.side,
            self.right.side,
            self.numbers,
            out,
            FORM=self.form,
            TERMS=self.terms,
            DTYPE=TRITON_TYPES[self.dtype],
            I=tile.rows,
            J=tile.columns,
            num_warps=tile.warps,
            enable_fp_fusion=True,
        )
        return out

    def _regions(self) -> Iterator[Region]:
        """Pairs that tensor cores take, and those that need differences: all together, every pair once."""
        expanded = any(leaf.expanded for leaf in self.form.leaves)
        near, columns = (self.left.near, self.right.near) if expanded else (0, 0)
        first, last = self.rows.start, self.rows.stop
        rows = range(first, min(near, last))
        parts = (
            Region(rows, range(columns), False),
            Region(rows, range(columns, self.right.total), True),
            Region(range(max(near, first), last), range(self.right.total), True),
        )
        yield from (part for part in parts if part.rows and part.columns)

    def _tile(self, region: Region, vectors: Tensor) -> Tile:
        candidates = product_tiles(self.form, vectors.shape[2], region.exact)
        if len(candidates) == 1:
            return candidates[0]
        rows = region.rows[: TUNING_TILES * PADDING]
        sample = Region(rows, region.columns[:RUN], region.exact)

        def milliseconds(tile: Tile) -> float:
            runs = Runs(sample.columns, len(sample.columns), 1)
            return launch_time(lambda: self._launch(sample, tile, vectors, runs))

        form = (self.form, self.terms, region.exact, self.square, vectors.shape[2], str(self.dtype))
        key = tile_key(vectors.device, sample.rows, sample.columns, "product", *form)
        return CHOICES.best(key, candidates, milliseconds)

    def _launch(self, region: Region, tile: Tile, vectors: Tensor, runs: Runs) -> Tensor:
        """Sums (runs, rows, T) in float32."""
        height = len(region.rows)
        out = torch.empty(runs.count, height, vectors.shape[2], device=vectors.device)
        options: dict[str, Any] = {"num_warps": tile.warps, "num_stages": 2, "enable_fp_fusion": True}
        product_kernel[(height // tile.rows, runs.count)](
            self.left.side,
            self.right.side,
            self.numbers,
            vectors,
            out,
            *runs.arguments(self.numbers),
            region.rows.start,
            height,
            FORM=self.form,
            TERMS=self.terms,
            EXACT=region.exact,
            SQUARE=self.square,
            LISTED=runs.listed,
            I=tile.rows,
            J=tile.columns,
            T=vectors.shape[2],
            **options,
        )
        return out


TRITON_TYPES = {torch.float16: tl.float16, torch.bfloat16: tl.bfloat16, torch.float32: tl.float32}
