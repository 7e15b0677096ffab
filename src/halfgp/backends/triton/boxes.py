"""Boxes around the points of each tile, as the kernels see these."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from halfgp.backends.triton.description import Form, LeafForm
from halfgp.backends.triton.points import PADDING, Packed


@dataclass(frozen=True)
class LeafBoxes:
    """In psi of one leaf.

    Attributes:
        low: (tiles, f) the least of each feature, float64; infinite in a tile without points.
        high: (tiles, f) the largest.
        squares: (tiles,) the largest |psi|².
    """

    low: Tensor
    high: Tensor
    squares: Tensor


@dataclass(frozen=True)
class Boxes:
    """Of one side of a matrix.

    Attributes:
        leaves: by leaf.
        units: (tiles,) the largest of `Side.units`.
        near: (tiles,) whether distances come from the expansion, where the other side is near too.
        counts: (tiles,) how many points there are, float64.
    """

    leaves: tuple[LeafBoxes, ...]
    units: Tensor
    near: Tensor
    counts: Tensor

    def __len__(self) -> int:
        return len(self.counts)

    def __getitem__(self, some: slice) -> Boxes:
        """Those of some tiles."""
        leaves = tuple(LeafBoxes(b.low[some], b.high[some], b.squares[some]) for b in self.leaves)
        return Boxes(leaves, self.units[some], self.near[some], self.counts[some])


def boxes_of(packed: Packed, form: Form) -> Boxes:
    """Boxes of all tiles, O(n f): around the points in float32, and around the sums of their parts."""
    side, device = packed.side, packed.place.device
    taken = torch.zeros(packed.total, dtype=torch.bool, device=device)
    taken[packed.place] = True
    tiles = packed.total // PADDING
    near = torch.arange(tiles, device=device) < packed.near // PADDING
    leaves = []
    for leaf in form.leaves:
        psi = side.features[leaf.first : leaf.first + leaf.features].T.double()
        boxes = _around(psi, taken)
        if leaf.expanded:
            boxes = _both(boxes, _around(_parts(packed, leaf), taken), near)
        leaves.append(boxes)
    units = torch.where(taken, side.units, 0.0).view(tiles, PADDING).amax(dim=1).double()
    return Boxes(tuple(leaves), units, near, taken.view(tiles, PADDING).sum(dim=1).double())


def _parts(packed: Packed, leaf: LeafForm) -> Tensor:
    """Psi (places, f) of the points that tensor cores see."""
    return packed.side.parts[:, :, leaf.column : leaf.column + leaf.features].double().sum(dim=0)


def _around(psi: Tensor, taken: Tensor) -> LeafBoxes:
    tiles = (-1, PADDING, psi.shape[1])
    low = torch.where(taken[:, None], psi, torch.inf).view(tiles).amin(dim=1)
    high = torch.where(taken[:, None], psi, -torch.inf).view(tiles).amax(dim=1)
    squares = torch.where(taken, psi.square().sum(dim=1), 0.0).view(-1, PADDING).amax(dim=1)
    return LeafBoxes(low, high, squares)


def _both(a: LeafBoxes, b: LeafBoxes, near: Tensor) -> LeafBoxes:
    """Around both where tiles are near, and otherwise the first: far points have no parts."""
    return LeafBoxes(
        torch.where(near[:, None], torch.minimum(a.low, b.low), a.low),
        torch.where(near[:, None], torch.maximum(a.high, b.high), a.high),
        torch.where(near, torch.maximum(a.squares, b.squares), a.squares),
    )
