"""Who is conditioned on whom: landmarks first, then every row on its nearest neighbours in a random order."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from halfgp.nearest import NearestSearch, metric
from halfgp.operators.bound import BoundKernel

STRETCH = 1.5  # of a coordinate: near rows stay near, and landmarks spread over what they were picked for
NO_STRETCH = 1e-6  # of a coordinate's norm: what has changed otherwise, as by another period


@dataclass(frozen=True)
class Pattern:
    """Found once for points and a kernel, and of use while its lengthscales are about what they were.

    Attributes:
        points: (n, d), as they were.
        coordinates: (n, f) in which rows were near.
        landmarks: (r,) rows.
        others: (n - r,) rows, in their order.
        members: (n - r, k) places in that order of the earlier rows that each is given, -1 for none.
    """

    points: Tensor
    coordinates: Tensor
    landmarks: Tensor
    others: Tensor
    members: Tensor

    @classmethod
    def around(cls, operator: BoundKernel, landmarks: Tensor, neighbours: int, seed: int) -> Pattern:
        """Of all rows that are no landmarks (r,), each with so many neighbours at most."""
        x = operator.x1.double()
        others = in_order(len(x), landmarks, seed)
        coordinates = metric(operator.kernel, x)
        z, rows = coordinates[others], torch.arange(len(others), device=x.device)
        k = min(neighbours, max(len(others) - 1, 0))
        search = NearestSearch(z, z, rows, rows)
        members = operator.backend.nearest(search, k, threads=operator.threads)
        return cls(x, coordinates, landmarks, others, members)

    def serves(self, operator: BoundKernel) -> bool:
        """Whether it was found for the same points, and no coordinate has been stretched by much since."""
        x = operator.x1.double()
        if x.shape != self.points.shape or not torch.equal(x, self.points):
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


def in_order(n: int, landmarks: Tensor, seed: int) -> Tensor:
    """The rows (n - r,) that are no landmarks, in the random order in which they are conditioned."""
    other = torch.ones(n, dtype=torch.bool, device=landmarks.device)
    other[landmarks] = False
    numbers = other.nonzero()[:, 0]
    order = torch.randperm(len(numbers), generator=torch.Generator().manual_seed(seed))
    return numbers[order.to(landmarks.device)]
