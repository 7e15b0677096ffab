"""Which tiles of a kernel matrix have entries that are not zero: found on the device, by boxes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from halfgp.backends.part import Part
from halfgp.backends.triton.boxes import Boxes, boxes_of
from halfgp.backends.triton.points import PADDING, Packed
from halfgp.backends.triton.support import Support

LEAST_SKIPPED = 1 / 16  # of all entries; below that a list costs about what it saves
MOST_TILES = 2**28  # of a list, which takes 4 bytes for each
PAIRS = 2**21  # of boxes that are looked at together


@dataclass(frozen=True)
class LiveTiles:
    """Tiles of PADDING rows and columns, row after row.

    Attributes:
        rows: places that are multiplied: of a part of a matrix those that make a fair share of the tiles.
        width: how many tiles a row of the matrix has.
        tiles: (live,) int32, the columns of those that are not zero, in ascending order in each row.
        starts: (tiles of `rows` + 1,) int64, where each row begins among them.
        skipped: of all entries of the matrix, the share in tiles of zeros.
    """

    rows: range
    width: int
    tiles: Tensor
    starts: Tensor
    skipped: float
    _spans: dict[tuple[range, range, int], Tensor] = field(default_factory=dict)

    @classmethod
    def find(cls, support: Support, left: Packed, right: Packed, part: Part) -> LiveTiles | None:
        """Those of a part of a matrix, or None where a list would not pay; O(n1 n2 f / PADDING²) time."""
        rows, columns = (boxes_of(side, support.form) for side in (left, right))
        counts, seen = _survey(support, rows, columns)
        live, looked_at = torch.stack([counts.sum().double(), seen]).tolist()
        entries = len(left.place) * len(right.place)
        skipped = 1.0 - looked_at / entries if entries else 0.0
        if skipped < LEAST_SKIPPED or live > MOST_TILES * part.count:
            return None
        own = _share(counts, int(live), part)
        tiles = [some.nonzero()[:, 1].int() for some in _bands(support, rows[own], columns)]
        counted = counts[own].cumsum(0)
        return cls(
            range(own.start * PADDING, own.stop * PADDING),
            len(columns),
            torch.cat(tiles) if tiles else counts[:0].int(),
            torch.cat([counted.new_zeros(1), counted]),
            skipped,
        )

    def turned(self) -> LiveTiles:
        """Those of the transposed matrix, all of whose rows this has."""
        height = len(self.starts) - 1
        order = torch.argsort(self.tiles, stable=True)
        counted = torch.bincount(self.tiles, minlength=self.width).cumsum(0)
        return LiveTiles(
            range(self.width * PADDING),
            height,
            self._row_of_each()[order].int(),
            torch.cat([counted.new_zeros(1), counted]),
            self.skipped,
        )

    def spans(self, rows: range, columns: range, run: int) -> Tensor:
        """Where runs of columns begin and end among the tiles: (runs, tiles of rows, 2), int64.

        Runs without a tile are left out: of each row those that have some come first, in their order, and
        then empty ones, up to the most that a row has.

        Args:
            rows: places, some of `rows`, whole tiles.
            columns: places, whole tiles.
            run: how many columns a run has, whole tiles.
        """
        key = (rows, columns, run)
        if key not in self._spans:
            self._spans[key] = self._found(rows, columns, run)
        return self._spans[key]

    def _found(self, rows: range, columns: range, run: int) -> Tensor:
        device = self.tiles.device
        first = (rows.start - self.rows.start) // PADDING
        own = torch.arange(first, first + len(rows) // PADDING, device=device)
        edges = [*columns[::run], columns.stop]
        edge_tiles = torch.tensor(edges, device=device) // PADDING
        numbered = self._row_of_each() * self.width + self.tiles  # all of them in ascending order
        bounds = torch.searchsorted(numbered, own[:, None] * self.width + edge_tiles)
        begins, ends = bounds[:, :-1], bounds[:, 1:]
        kept, order = (ends > begins).long().sort(dim=1, descending=True, stable=True)
        order = order[:, : int(kept.sum(dim=1).max())]
        return (
            torch.stack([begins.gather(1, order), ends.gather(1, order)], dim=2).transpose(0, 1).contiguous()
        )

    def _row_of_each(self) -> Tensor:
        """(live,) int64."""
        rows = torch.arange(len(self.starts) - 1, device=self.tiles.device)
        return torch.repeat_interleave(rows, self.starts.diff(), output_size=len(self.tiles))


def _bands(support: Support, rows: Boxes, columns: Boxes) -> Iterator[Tensor]:
    """Which tiles (r, c) are not zero, some rows after the other."""
    step = max(1, PAIRS // max(len(columns), 1))
    for start in range(0, len(rows), step):
        yield ~support.apart(rows[start : start + step], columns)


def _survey(support: Support, rows: Boxes, columns: Boxes) -> tuple[Tensor, Tensor]:
    """How many live tiles each row has (tiles,), and how many entries there are in all of them."""
    counts, points = [], []
    for live in _bands(support, rows, columns):
        counts.append(live.sum(dim=1))
        points.append(live.double() @ columns.counts)
    return torch.cat(counts), torch.cat(points) @ rows.counts


def _share(counts: Tensor, live: int, part: Part) -> slice:
    """Rows of tiles that are a part of the work; those of all parts have no gap."""
    if part.is_whole:
        return slice(0, len(counts))
    before = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    wanted = [live * k // part.count for k in (part.index, part.index + 1)]
    first, last = torch.searchsorted(before, torch.tensor(wanted, device=counts.device)).tolist()
    return slice(first, last)
