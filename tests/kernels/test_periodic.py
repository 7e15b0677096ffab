"""The periodic kernel repeats itself, and is an RBF on a circle."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from halfgp import RBF, Periodic
from halfgp.precision import DOUBLE, HALF

X = torch.randn(6, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_covariances_are_the_formula_with_an_unsquared_lengthscale() -> None:
    kernel = Periodic(period=[1.5, 2.0], lengthscale=[0.7, 3.0])
    difference = X[:, None] - X[None]
    angle = math.pi * difference / torch.tensor([1.5, 2.0], dtype=torch.float64)
    exponent = (-2 * torch.sin(angle) ** 2 / torch.tensor([0.7, 3.0], dtype=torch.float64)).sum(-1)
    torch.testing.assert_close(kernel(X, X), exponent.exp(), rtol=1e-13, atol=0.0)


@given(turns=st.integers(-1000, 1000))
def test_it_repeats_after_a_period(turns: int) -> None:
    kernel = Periodic(period=0.5)
    torch.testing.assert_close(kernel(X + 0.5 * turns, X), kernel(X, X), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("lengthscale", [0.7, [0.7, 3.0]])
def test_its_embedding_gives_the_same_covariances(lengthscale: float | list[float]) -> None:
    kernel = Periodic(period=1.3, lengthscale=lengthscale)
    (leaf,) = kernel.program().leaves
    z = leaf.features(X) * leaf.scales
    assert leaf.feature_parameters
    torch.testing.assert_close(RBF()(z, z), kernel(X, X), rtol=1e-13, atol=0.0)


def test_the_embedding_keeps_its_digits_far_from_the_origin() -> None:
    (leaf,) = Periodic(period=1.0).program().leaves
    near = torch.tensor([[0.25]], dtype=torch.float64)
    torch.testing.assert_close(leaf.features(near + 2.0**40), leaf.features(near), rtol=0.0, atol=1e-15)


def test_its_support_is_where_the_covariance_vanishes_within_half_a_period() -> None:
    kernel = Periodic(period=3.0, lengthscale=0.05)
    edge = kernel.support(HALF)
    points = torch.stack([edge * (1 - 1e-6), edge * (1 + 1e-6)]).reshape(2, 1)
    inside, outside = kernel(torch.zeros(1, 1, dtype=torch.float64), points)[0].tolist()
    assert outside < 2.0**-25 < inside


def test_its_support_is_infinite_where_it_never_vanishes() -> None:
    assert Periodic(lengthscale=[1.0, 0.05]).support(HALF).tolist()[0] == math.inf
    assert Periodic(lengthscale=0.05).support(DOUBLE).item() == math.inf
