"""Nearest rows: the metric in which rows are near, and the exact search that every backend provides."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from halfgp.kernels import Kernel

CHUNK = 2**23  # distances at a time
CURVE_FEATURES, CURVE_BITS = 3, 20  # whose cells a whole number of 64 bits can tell


@dataclass(frozen=True)
class NearestSearch:
    """Queries, and the points among which the nearest to each is looked for.

    Attributes:
        points: coordinates (n, f), float64.
        queries: coordinates (m, f), float64.
        own: (m,) the point that a query is, which is not its own neighbour; -1 where it is none of them.
        positions: (n,) places of the points in an order, or None. Where there are some, a query that is a
            point sees the points of smaller positions alone.
    """

    points: Tensor
    queries: Tensor
    own: Tensor
    positions: Tensor | None = None

    @classmethod
    def among_others(cls, points: Tensor, rows: Tensor) -> NearestSearch:
        """For some of the points (m,), among all the others."""
        return cls(points, points[rows], rows)

    @classmethod
    def among_earlier(cls, points: Tensor, order: Tensor, rows: Tensor) -> NearestSearch:
        """For some of the points (m,), among those that come before them in an order (n,), a permutation."""
        return cls(points, points[rows], rows, torch.argsort(order))


@torch.no_grad()
def metric(kernel: Kernel, x: Tensor) -> Tensor:
    """Coordinates (n, f) of points (n, d) in which rows that are close have much to say about each other.

    Those of all stationary leaves, in their lengthscales; of linear ones where there are no others. They are
    float64, whatever points are held in.
    """
    leaves = kernel.program().leaves
    stationary = [leaf for leaf in leaves if leaf.is_stationary]
    features = [leaf.coordinates(x) for leaf in stationary or leaves]
    if len(features) == 1:
        return features[0]
    return torch.cat(features, dim=1) if features else x.new_zeros(len(x), 1, dtype=torch.float64)


def nearest_by_looking(search: NearestSearch, k: int) -> Tensor:
    """Neighbours (m, k) of the queries, nearest first, -1 where there are fewer; every distance, O(m n f).

    Distances come from differences: those of an expansion into squares cancel, and would rank wrongly.
    """
    m, n = len(search.queries), len(search.points)
    found = torch.full((m, k), -1, dtype=torch.long, device=search.points.device)
    numbers = torch.arange(n, device=search.points.device)
    size = max(1, CHUNK // max(n, 1))
    for start in range(0, m if min(n, k) else 0, size):
        some = slice(start, start + size)
        own = search.own[some, None]
        distances = torch.cdist(
            search.queries[some], search.points, compute_mode="donot_use_mm_for_euclid_dist"
        )
        hidden = numbers == own
        if search.positions is not None:
            later = search.positions >= search.positions[own.clamp_min(0)]
            hidden |= later & (own >= 0)
        distances.masked_fill_(hidden, torch.inf)
        least, which = distances.topk(min(k, n), dim=1, largest=False)
        found[some, : which.shape[1]] = torch.where(least.isinf(), -1, which)
    return found


def along_a_curve(points: Tensor) -> Tensor:
    """An order (n,) of points (n, f) in which those that are near are mostly together; O(n log n).

    Morton's curve through cells of the widest features: the bits of a cell's coordinates take turns.
    """
    if points.numel() == 0:
        return torch.arange(len(points), device=points.device)
    low = points.amin(dim=0)
    widths = points.amax(dim=0) - low
    widest = widths.topk(min(len(widths), CURVE_FEATURES)).indices
    code = torch.zeros(len(points), dtype=torch.long, device=points.device)
    if float(widths.max()) > 0:
        cells = ((points - low)[:, widest] / widths.max() * (2**CURVE_BITS - 1)).long()
        for bit in range(CURVE_BITS):
            for turn, cell in enumerate(cells.T):
                code |= (cell >> bit & 1) << bit * len(widest) + turn
    return torch.argsort(code, stable=True)
