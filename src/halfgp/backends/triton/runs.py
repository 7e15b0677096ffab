"""Runs of columns, each of which a program adds up in float32; sums over runs are in float64."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from torch import Tensor

from halfgp.backends.triton.live_tiles import LiveTiles
from halfgp.backends.triton.points import PADDING
from halfgp.backends.triton.runs_kernel import add_kernel
from halfgp.backends.triton.tiles import INTERPRETED, Tile

RUN = 4096  # products that are added in float32; sums of more are in float64
PROGRAMS = 512  # at least so many, where the columns can be shared out, to keep a device busy
LEAST_RUN = 4 * PADDING
PARTIAL_BYTES = 2**28  # of sums before they are added in float64
ADDED = 2**14 if INTERPRETED else 2**9  # numbers that a program adds up


class Region(NamedTuple):
    """Places of rows and columns, and whether their distances have to be exact."""

    rows: range
    columns: range
    exact: bool


@dataclass(frozen=True)
class Runs:
    """What the programs of one launch go over, with one run each for every tile of rows.

    Attributes:
        columns: places.
        length: columns of a run.
        count: how many runs.
        spans: where runs begin and end among the live tiles; None where all columns are gone over. See
            `LiveTiles.spans`.
        tiles: the live ones.
    """

    columns: range
    length: int
    count: int
    spans: Tensor | None = None
    tiles: Tensor | None = None

    @classmethod
    def of(cls, region: Region, tile: Tile, live: LiveTiles | None = None) -> Runs:
        """All runs of a region. Where they begin and end does not depend on which tiles are live."""
        programs = math.ceil(PROGRAMS / math.ceil(len(region.rows) / tile.rows))
        length = min(RUN, max(LEAST_RUN, math.ceil(len(region.columns) / programs)))
        length = math.ceil(length / PADDING) * PADDING
        if live is None:
            return cls(region.columns, length, math.ceil(len(region.columns) / length))
        spans = live.spans(region.rows, region.columns, length)
        return cls(region.columns, length, len(spans), spans, live.tiles)

    def batches(self, numbers: int) -> Iterator[Runs]:
        """Some runs after the other, each of which leaves so many numbers of 4 bytes."""
        at_once = max(1, PARTIAL_BYTES // (4 * numbers))
        for first in range(0, self.count, at_once):
            count = min(at_once, self.count - first)
            columns = self.columns[first * self.length :] if self.spans is None else self.columns
            spans = None if self.spans is None else self.spans[first : first + count]
            yield replace(self, columns=columns, count=count, spans=spans)

    def arguments(self, anything: Tensor) -> tuple[Tensor, Tensor, int, int, int]:
        """For a kernel, which reads no list where there is none, but wants a tensor."""
        spans, tiles = (anything if given is None else given for given in (self.spans, self.tiles))
        return spans, tiles, self.columns.start, self.columns.stop, self.length

    @property
    def listed(self) -> bool:
        """Whether tiles are passed by."""
        return self.spans is not None


def add_runs(sums: Tensor, partial: Tensor) -> None:
    """Add sums of runs (runs, ...), float32, to those before (...), float64, both contiguous.

    In their order, so that runs of zeros change nothing, whether they are there or not.
    """
    size = sums.numel()
    add_kernel[(math.ceil(size / ADDED),)](sums, partial, size, len(partial), ADDED=ADDED)
