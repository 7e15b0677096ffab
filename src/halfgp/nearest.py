"""Nearest rows, found exactly: among all others, or among those that come earlier in an order."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import Tensor

from halfgp.kernels import Kernel

TREE_FEATURES = 4  # up to so many a tree beats looking at every row
CHUNK = 2**23  # distances at a time


@torch.no_grad()
def metric(kernel: Kernel, x: Tensor) -> Tensor:
    """Coordinates (n, f) of points (n, d) in which rows that are close have much to say about each other.

    Those of all stationary leaves, in their lengthscales; of linear ones where there are no others.
    """
    leaves = kernel.program().leaves
    stationary = [leaf for leaf in leaves if leaf.is_stationary]
    features = [leaf.scaled(x) for leaf in stationary or leaves]
    return torch.cat(features, dim=1) if features else x.new_zeros(len(x), 1)


def nearest_earlier(z: Tensor, order: Tensor, positions: Tensor, k: int, threads: int = 1) -> Tensor:
    """The k nearest rows among those that come earlier in an order.

    Args:
        z: coordinates (n, f).
        order: (n,) rows, a permutation.
        positions: (r,) in the order, ascending, of the rows whose neighbours are wanted.
        k: how many.
        threads: of the search.

    Returns:
        Rows (r, k), nearest first; -1 where fewer come earlier.
    """
    placed = z[order]
    search = _earlier_by_tree if z.shape[1] <= TREE_FEATURES else _earlier_by_looking
    found = search(placed, positions.contiguous(), k, threads)
    return torch.where(found >= 0, order[found.clamp_min(0)], -1)


def _earlier_by_looking(placed: Tensor, positions: Tensor, k: int, threads: int) -> Tensor:
    """Every distance, O(r n f)."""
    found = torch.full((len(positions), k), -1)
    for some in _chunks(len(positions), len(placed)):
        at = positions[some]
        end = int(at[-1])  # the latest of the chunk sees so many
        if not end:
            continue
        distances = _squared_distances(placed[at], placed[:end])
        distances.masked_fill_(torch.arange(end) >= at[:, None], torch.inf)
        least, which = distances.topk(min(k, end), dim=1, largest=False)
        found[some, : which.shape[1]] = torch.where(least.isinf(), -1, which)
    return found


def _earlier_by_tree(placed: Tensor, positions: Tensor, k: int, threads: int) -> Tensor:
    """A tree over the rows up to twice a position holds those before it and as many others at the most."""
    found = torch.full((len(positions), k), -1)
    end = 2 * k
    begin = 0
    while begin < len(positions):
        stop = int(torch.searchsorted(positions, min(end, len(placed))))
        if stop > begin:
            tree = cKDTree(placed[:end].numpy())
            found[begin:stop] = _from_tree(tree, placed, positions[begin:stop], k, threads)
        begin, end = stop, 2 * end
    return found


def _from_tree(tree: cKDTree, placed: Tensor, at: Tensor, k: int, threads: int) -> Tensor:
    """Earlier rows (r, k) of a tree that has later ones, too: more are asked for until there are enough."""
    found = torch.full((len(at), k), -1)
    left, asked = torch.arange(len(at)), 3 * k
    while len(left):
        asked = min(asked, tree.n)
        wanted = np.arange(1, asked + 1)
        near = torch.from_numpy(tree.query(placed[at[left]].numpy(), k=wanted, workers=threads)[1])
        earlier = near < at[left, None]
        # A stable sort keeps the nearest first.
        first = torch.argsort((~earlier).to(torch.int8), dim=1, stable=True)[:, :k]
        kept = torch.where(earlier.gather(1, first), near.gather(1, first), -1)
        found[left, : kept.shape[1]] = kept
        enough = earlier.sum(dim=1) >= torch.minimum(at[left], torch.tensor(k))
        left, asked = left[~enough], 2 * asked
    return found


def _squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """|a|² + |b|² - 2ab (m, n) but for |a|², relative to the mean of b."""
    centre = b.mean(dim=0)
    a, b = a - centre, b - centre
    return torch.addmm(b.square().sum(dim=1), a, b.T, alpha=-2.0)


def _chunks(rows: int, others: int) -> Iterator[slice]:
    size = max(1, CHUNK // max(others, 1))
    return (slice(start, start + size) for start in range(0, rows, size))


def nearest_to(z: Tensor, rows: Tensor, k: int, without: Tensor | None = None) -> Tensor:
    """The k rows (r, k) nearest to each of these (r,), nearest first, but for itself and some others.

    Args:
        z: coordinates (n, f).
        rows: which.
        k: how many; there must be so many.
        without: rows that are no candidates.
    """
    found = torch.empty(len(rows), k, dtype=torch.long)
    for some in _chunks(len(rows), len(z)):
        distances = _squared_distances(z[rows[some]], z)
        distances[torch.arange(len(distances)), rows[some]] = torch.inf
        if without is not None:
            distances[:, without] = torch.inf
        found[some] = distances.topk(k, dim=1, largest=False).indices
    return found
