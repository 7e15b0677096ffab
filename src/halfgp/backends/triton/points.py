"""Points as the kernels read them: split into numbers of 16 bits, padded, those near the centre first.

Within these two groups they are as they came, or in the order of a tree of boxes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from halfgp.backends.part import Part
from halfgp.backends.triton.box_order import in_boxes
from halfgp.backends.triton.description import Form
from halfgp.errors import InputError

PADDING = 128  # rows are padded to multiples of it, so that no tile has an edge
MOST_ELEMENTS = 2**31 - 1  # kernels address by 32 bits


class Side(NamedTuple):
    """What a kernel is given of the rows, or of the columns; padding is zero.

    Attributes:
        features: (f, stride) float32, psi of all leaves.
        parts: (terms, stride, width) of 16 bits, whose sums are psi of the leaves that tensor cores take.
        norms: (leaves, stride) float32, -|psi|² / 2 of these sums.
        units: (stride,) float32, over those of the points.
        stride: padded number of points.
        width: of the parts.
    """

    features: Tensor
    parts: Tensor
    norms: Tensor
    units: Tensor
    stride: int
    width: int


@dataclass(frozen=True)
class Packed:
    """One side of a matrix.

    Attributes:
        side: for kernels.
        place: (n,) of each point there.
        near: how many places, padding included, are of points near enough for the expansion.
    """

    side: Side
    place: Tensor
    near: int

    @property
    def total(self) -> int:
        """How many places there are."""
        return self.side.stride

    def share(self, part: Part) -> range:
        """The places of a part, whole tiles, all of which take as long."""
        run = part.of(self.total // PADDING)
        return range(run.start * PADDING, run.stop * PADDING)

    def spread(self, values: Tensor) -> Tensor:
        """Values (n, ...) of points at their places, and zeros between."""
        out = values.new_zeros(self.total, *values.shape[1:])
        out[self.place] = values
        return out

    def taken(self, points: Tensor | None) -> Packed:
        """Some of the points (m,), in that order, without the parts: for distances by differences."""
        place = self.place if points is None else self.place[points]
        side = self.side
        stride = padded(len(place))
        features = side.features.new_zeros(len(side.features), stride)
        features[:, : len(place)] = side.features[:, place]
        units = side.units.new_ones(stride)
        units[: len(place)] = side.units[place]
        taken = Side(features, side.parts, side.norms, units, stride, side.width)
        return Packed(taken, torch.arange(len(place), device=place.device), 0)


def pack(
    form: Form,
    psi: Sequence[Tensor],
    near: Tensor,
    units: Tensor,
    dtype: torch.dtype,
    terms: int,
    ordered: bool,
) -> Packed:
    """Pack one side.

    Args:
        form: of the program.
        psi: (n, f) by leaf, float64.
        near: (n,) whether the expansion serves a point.
        units: (n,) of the points, float64.
        dtype: of the parts.
        terms: how many parts.
        ordered: whether neighbours are to be together.
    """
    stationary = [z for leaf, z in zip(form.leaves, psi, strict=True) if leaf.profile != "linear"]
    place, first, total = _places(near, torch.cat(stationary, dim=1) if ordered and len(near) else None)
    packed = Packed(
        Side(units.new_empty(0), units.new_empty(0), units.new_empty(0), units, total, 0), place, first
    )
    count = sum(leaf.features for leaf in form.leaves)
    chosen = [(leaf, z) for leaf, z in zip(form.leaves, psi, strict=True) if leaf.expanded]
    width = sum(leaf.width for leaf, _ in chosen)
    _check_size(max(count, terms * width) * total, len(near), count)
    features = torch.cat([packed.spread(z).T.float() for z in psi] or [units.new_zeros(1, total)]).float()
    parts = torch.zeros(terms, total, max(width, 1), dtype=dtype, device=units.device)
    norms = torch.zeros(max(len(chosen), 1), total, device=units.device)
    for leaf, z in chosen:
        halves = split(packed.spread(torch.where(near[:, None], z, 0.0)), dtype, terms)
        parts[:, :, leaf.column : leaf.column + leaf.features] = halves
        norms[leaf.norm] = -0.5 * halves.double().sum(dim=0).square().sum(dim=1)
    spread_units = packed.spread(1.0 / units).float()
    side = Side(features.contiguous(), parts, norms, spread_units, total, max(width, 1))
    return Packed(side, place, first)


def split(values: Tensor, dtype: torch.dtype, terms: int) -> Tensor:
    """So many numbers of a format (terms, ...), each of what the ones before leave; their sum is a value."""
    parts = []
    for _ in range(terms):
        parts.append(values.to(dtype))
        values = values - parts[-1].to(values.dtype)
    return torch.stack(parts)


def padded(n: int) -> int:
    """The next multiple of the padding, at least one."""
    return max(-(-n // PADDING), 1) * PADDING


def _places(near: Tensor, coordinates: Tensor | None) -> tuple[Tensor, int, int]:
    """Where each point goes, how many places are of near ones, and how many there are."""
    n = len(near)
    count = int(near.sum())
    first = padded(count) if count else 0
    total = first + (padded(n - count) if n > count or not n else 0)
    far = (~near).long()
    if coordinates is None:
        order = torch.argsort(far, stable=True)
    else:
        order = in_boxes(coordinates, far, (first // PADDING, (total - first) // PADDING), PADDING)
    rank = torch.arange(n, device=near.device)
    place = torch.empty_like(rank)
    place[order] = torch.where(rank < count, rank, rank - count + first)
    return place, first, total


def _check_size(elements: int, n: int, features: int) -> None:
    if elements > MOST_ELEMENTS:
        raise InputError(
            f"`x1` and `x2` must have fewer than 2³¹ scaled features on a GPU; got {n:,} points of"
            f' {features:,}. Use `backend="reference"`, or fewer rows.'
        )
