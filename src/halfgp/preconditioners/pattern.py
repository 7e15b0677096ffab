"""Who is conditioned on whom: landmarks first, then groups of near rows on the nearest rows before them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from halfgp.backends.grouped_factor import Groups
from halfgp.backends.part import WHOLE, Part
from halfgp.nearest import NearestSearch, metric
from halfgp.operators.bound import BoundKernel

STRETCH = 1.5  # of a coordinate: near rows stay near, and landmarks spread over what they were picked for
NO_STRETCH = 1e-6  # of a coordinate's norm: what has changed otherwise, as by another period
HALVES = 4  # groups in the first part of the order; each further part has as many rows as all before it
SPREAD = math.sqrt(2.0)  # groups have as many rows as is wanted within this factor
OVERLAP = 2.0  # members of a group, at most, for each neighbour of a row, in roots of its rows
CHUNK = 2**21  # numbers of neighbours of groups at a time


@dataclass(frozen=True)
class Pattern:
    """Found once for points and a kernel, and of use while its lengthscales are about what they were.

    Attributes:
        points: (n, d), as they were.
        coordinates: (n, f) in which rows were near.
        landmarks: (r,) rows.
        others: (n - r,) rows, in their order.
        groups: of these, or those of a part.
    """

    points: Tensor
    coordinates: Tensor
    landmarks: Tensor
    others: Tensor
    groups: Groups

    @classmethod
    def around(
        cls,
        operator: BoundKernel,
        landmarks: Tensor,
        neighbours: int,
        group: int,
        seed: int,
        part: Part = WHOLE,
    ) -> Pattern:
        """Of all rows that are no landmarks (r,), in groups of about so many.

        Rows are drawn at random in parts, each as large as all before it, so that those of a part have rows
        before them on every side; within a part they are halved into groups of near rows. A group is given
        what any of its rows has for one of so many neighbours among the rows before it: that costs little
        more than one row would, and gives each row several times its own.

        The order is of all rows, whatever the part; groups are those of the part.
        """
        x = operator.x1
        coordinates = metric(operator.kernel, x)
        group, neighbours = (min(count, max(len(x), 1)) for count in (group, neighbours))
        others, starts = _in_order(coordinates, landmarks, group, seed)
        own = part.of(len(starts) - 1)
        starts = starts[own.start : own.stop + 1]
        z, places = coordinates[others], torch.arange(len(others), device=x.device)
        k, rows = min(neighbours, max(len(others) - 1, 0)), places[int(starts[0]) : int(starts[-1])]
        search = NearestSearch(z, z[rows], rows, places)
        near = operator.backend.nearest(search, k, threads=operator.threads)
        return cls(x, coordinates, landmarks, others, joined(near, starts, members_within(neighbours, group)))

    def serves(self, operator: BoundKernel) -> bool:
        """Whether it was found for the same points, and no coordinate has been stretched by much since."""
        x = operator.x1
        alike = x.shape == self.points.shape and x.dtype == self.points.dtype
        if not alike or not torch.equal(x, self.points):
            return False
        now = metric(operator.kernel, x)
        if now.shape != self.coordinates.shape:
            return False
        before = self.coordinates
        sizes = before.square().sum(dim=0)
        stretch = torch.where(sizes > 0, (now * before).sum(dim=0) / sizes, 1.0)
        otherwise = (now - stretch * before).norm(dim=0) > NO_STRETCH * now.norm(dim=0)
        far = (stretch > STRETCH) | (stretch < 1.0 / STRETCH)
        return not bool((otherwise | far).any())


def _in_order(coordinates: Tensor, landmarks: Tensor, group: int, seed: int) -> tuple[Tensor, Tensor]:
    """The rows (n - r,) that are no landmarks, in their order, and where groups start."""
    other = torch.ones(len(coordinates), dtype=torch.bool, device=coordinates.device)
    other[landmarks] = False
    numbers = other.nonzero()[:, 0]
    order = torch.randperm(len(numbers), generator=torch.Generator().manual_seed(seed))
    drawn = numbers[order.to(numbers.device)]
    ends = [len(drawn)]
    while ends[-1] > 2 * HALVES * group:
        ends.append(ends[-1] // 2)
    order_of_parts, sizes = [], [drawn.new_zeros(1)]
    first = 0
    for last in reversed(ends):
        part = drawn[first:last]
        within, counts = halved(coordinates[part], group)
        order_of_parts.append(part[within])
        sizes.append(counts)
        first = last
    return torch.cat(order_of_parts), torch.cat(sizes).cumsum(0)


def members_within(neighbours: int, group: int) -> int:
    """How many members a group may have: near rows have many neighbours in common."""
    return math.ceil(OVERLAP * neighbours * math.sqrt(group))


def halved(z: Tensor, group: int) -> tuple[Tensor, Tensor]:
    """Rows of z (m, f) in groups of near ones, about so many in each: their order (m,) and sizes of groups.

    All groups are halved at once, along the widest coordinate of each, which wants as many rows in all:
    copies of the last row make up for what is missing, and go again.
    """
    m = len(z)
    times = max(0, math.ceil(math.log2(m / int(SPREAD * group)))) if m else 0
    width = -(-m // 2**times)
    copies = torch.arange(width << times, device=z.device)
    for done in range(times):
        blocks = z[copies.clamp_max(m - 1)].reshape(2**done, -1, z.shape[1])
        widest = (blocks.amax(dim=1) - blocks.amin(dim=1)).argmax(dim=1)
        along = blocks.gather(2, widest[:, None, None].expand(-1, blocks.shape[1], 1))[:, :, 0]
        copies = copies.reshape(2**done, -1).gather(1, along.argsort(dim=1, stable=True)).flatten()
    there = copies < m
    sizes = there.reshape(2**times, width).sum(dim=1)
    return copies[there], sizes[sizes > 0]


def joined(near: Tensor, starts: Tensor, most: int) -> Groups:
    """Groups and what they are given: neighbours (m, k) of their rows that come before them, -1 for none.

    At most so many of a group: those that are nearest to its rows, and to many of them.
    """
    k, counts = near.shape[1], starts.diff()
    g, width = len(counts), int(counts.max()) if len(counts) else 0
    worth = 1.0 / torch.arange(1, k + 1, dtype=torch.float64, device=near.device)
    members, sizes = [], []
    size = max(1, CHUNK // max(1, width * k))
    for some in (slice(first, min(first + size, g)) for first in range(0, g, size)):
        found = near.new_full((some.stop - some.start, width, k), -1)
        there = torch.arange(width, device=near.device) < counts[some, None]
        found[there] = near[starts[some.start] - starts[0] : starts[some.stop] - starts[0]]
        found = found.flatten(1)
        found = torch.where(found < starts[some, None], found, -1)
        members_of, count = _worthiest(found, worth.repeat(width), most)
        members.append(members_of)
        sizes.append(count)
    zero = starts.new_zeros(1)
    return Groups(
        starts,
        torch.cat([zero, *sizes]).cumsum(0),
        torch.cat(members) if members else near.new_empty(0),
    )


def _worthiest(found: Tensor, worth: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Of numbers in rows (g, w), -1 for none, those worth most in all their places (w,), and how many.

    In each row ascending, one after the other.
    """
    g, w = found.shape
    if not w or not most:
        return found.new_empty(0), found.new_zeros(g)
    found, order = found.sort(dim=1)
    begins = torch.ones_like(found, dtype=torch.bool)
    begins[:, 1:] = found[:, 1:] != found[:, :-1]
    # What a number is worth: the sum before the next one begins, less that before this one does.
    before = torch.nn.functional.pad(worth[order].cumsum(dim=1), (1, 0))
    place = torch.arange(w, device=found.device).expand(g, w)
    following = torch.where(begins, place, w).roll(-1, dims=1)
    following[:, -1] = w
    following = following.flip(1).cummin(dim=1).values.flip(1)
    total = before.gather(1, following) - before[:, :-1]
    total = torch.where(begins & (found >= 0), total, 0.0)
    if most < w:
        rest = total.argsort(dim=1, descending=True, stable=True)[:, most:]
        total = total.scatter(1, rest, 0.0)
    kept = total > 0.0
    return found[kept], kept.sum(dim=1)
