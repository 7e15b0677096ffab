"""The leaves of a kernel at points: scaled features, and profiles of their distances."""

from __future__ import annotations

import torch
from torch import Tensor

from halfgp.kernels.program import Leaf
from halfgp.kernels.stationary import distances, matern12, matern32, matern52, rational_quadratic, rbf

PROFILES = {"rbf": rbf, "matern12": matern12, "matern32": matern32, "matern52": matern52}


@torch.no_grad()
def scaled_features(leaf: Leaf, x: Tensor) -> Tensor:
    """Features (m, f) of points (m, d), in units of the lengthscales."""
    return leaf.features(x) * leaf.scales


@torch.no_grad()
def profile_of(leaf: Leaf, squared: Tensor) -> Tensor:
    """The stationary leaf's covariances at squared scaled distances, of any shape."""
    r = squared.sqrt()
    if leaf.profile == "rational_quadratic":
        assert leaf.shape is not None
        return rational_quadratic(r, leaf.shape)
    return PROFILES[leaf.profile](r)


def leaf_value(leaf: Leaf, z1: Tensor, z2: Tensor) -> Tensor:
    """The factor (..., n1, n2) of one leaf from scaled features (..., n, f) of each side; differentiable."""
    if leaf.profile == "linear":
        return z1 @ z2.mT
    r = distances(z1, z2)
    if leaf.profile == "rational_quadratic":
        assert leaf.shape is not None
        return rational_quadratic(r, leaf.shape.to(r))
    return PROFILES[leaf.profile](r)
