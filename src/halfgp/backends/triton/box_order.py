"""Points in the order of a tree of boxes, in which neighbours share a tile: in torch, on their device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

# So many entries take as long as putting one more row in order, by an estimate: a rectangle, which is mostly
# multiplied once, is worth it from so many rows and columns on. A square is multiplied again and again.
ORDERING_ENTRIES = 2**14


def pays(shape: tuple[int, int], square: bool) -> bool:
    """Whether products with a matrix of this shape may gain what the order of its points costs."""
    return square or min(shape) >= ORDERING_ENTRIES


def in_boxes(points: Tensor, groups: Tensor, tiles: Sequence[int], tile: int) -> Tensor:
    """An order (n,) of points (n, f) by groups and, within each, by a tree of boxes; O(n f log n).

    A box is halved along its widest feature, at a whole number of tiles, until it is one tile. All boxes of
    a level are halved at once.

    Args:
        points: coordinates, float64.
        groups: (n,) the number of the group that each is in.
        tiles: how many each group takes, the last of which may have room left.
        tile: how many points a tile takes.
    """
    device = points.device
    sizes = torch.tensor(tiles, device=device)
    starts = sizes.cumsum(0) - sizes  # of the boxes of this level, in tiles
    order = torch.argsort(groups, stable=True)
    counts = torch.bincount(groups, minlength=len(tiles))
    firsts = counts.cumsum(0) - counts
    own = torch.repeat_interleave(torch.arange(len(tiles), device=device), counts, output_size=len(points))
    within = torch.arange(len(points), device=device) - firsts[own]
    tile_of = starts[own] + within // tile  # of each place; halving moves points and not places
    for _ in range((max(tiles, default=0) - 1).bit_length()):
        box = torch.searchsorted(starts, tile_of, right=True) - 1
        at = points[order]
        order = order[torch.argsort(_along_the_widest(at, box, tile_of, starts, sum(tiles)), stable=True)]
        left = sizes // 2
        starts = torch.stack([starts, starts + left], dim=1).flatten()
        sizes = torch.stack([left, sizes - left], dim=1).flatten()
    return order


def _along_the_widest(points: Tensor, box: Tensor, tile_of: Tensor, starts: Tensor, tiles: int) -> Tensor:
    """Keys (n,) that sort points by their box and within it along the feature in which that is widest."""
    low, high = (_extreme(points, tile_of, tiles, reduction) for reduction in ("amin", "amax"))
    # By way of the tiles: on a GPU all points at once would wait for one number.
    of_tile = torch.searchsorted(starts, torch.arange(tiles, device=points.device), right=True) - 1
    low = _extreme(low, of_tile, len(starts), "amin")
    high = _extreme(high, of_tile, len(starts), "amax")
    width, widest = (high - low).max(dim=1)
    first = low.gather(1, widest[:, None])[:, 0]
    along = points.gather(1, widest[box][:, None])[:, 0] - first[box]
    # Below 1, so that boxes stay apart; where two points come to the same key, any order will do.
    return box + along / width[box].clamp_min(torch.finfo(along.dtype).tiny) * (1.0 - 2.0**-20)


def _extreme(values: Tensor, into: Tensor, count: int, reduction: str) -> Tensor:
    """The least or the largest (count, f) of those rows of values (n, f) that go into each."""
    start = torch.inf if reduction == "amin" else -torch.inf
    out = values.new_full((count, values.shape[1]), start)
    return out.scatter_reduce(0, into[:, None].expand_as(values), values, reduction)
