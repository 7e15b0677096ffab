"""A pattern that is kept, and for what."""

from __future__ import annotations

import pytest
import torch

from halfgp import RBF, KernelOperator, Linear, Matern, Periodic, SparseInverseCholesky
from halfgp.preconditioners import conditioned_on

RECIPE = SparseInverseCholesky(neighbours=8, landmarks=16)


def operator(kernel, n=200, seed=0, noise=0.1):
    x = torch.randn(n, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return KernelOperator(kernel, x, noise=noise).bound


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (RBF([1.0, 1.0, 1.0]), True),
        (2.0 * RBF([1.0, 1.0, 1.0]), True),  # who is near does not depend on the variance
        (RBF([1.4, 0.7, 1.0]), True),
        (RBF([1.6, 1.0, 1.0]), False),
        (RBF([1.0, 1.0, 0.6]), False),
        (RBF(1.2), True),
        (RBF([1.0, 1.0], active_dims=[0, 1]), False),
        (RBF([1.0, 1.0, 1.0]) + 0.1 * Linear(), True),
        (RBF([1.0, 1.0, 1.0]) * Matern(1.5), False),
    ],
    ids=str,
)
def test_it_serves_while_coordinates_are_about_what_they_were(kernel, expected):
    pattern = RECIPE.pattern(operator(RBF([1.0, 1.0, 1.0])))
    assert pattern.serves(operator(kernel)) is expected


def test_it_does_not_serve_other_points_or_another_period():
    pattern = RECIPE.pattern(operator(Periodic(period=2.0)))
    assert pattern.serves(operator(Periodic(period=2.0, lengthscale=1.2)))
    assert not pattern.serves(operator(Periodic(period=2.1)))
    assert not pattern.serves(operator(Periodic(period=2.0), seed=1))
    assert not pattern.serves(operator(Periodic(period=2.0), n=199))


def test_what_is_conditioned_on_a_kept_pattern_is_of_the_new_matrix():
    pattern = RECIPE.pattern(operator(Matern(1.5, 1.0)))
    now = operator(Matern(1.5, 1.3), noise=0.05)
    root = conditioned_on(now, pattern).whiten(torch.eye(200, dtype=torch.float64))
    dense = now.with_precision("double").matmul(torch.eye(200, dtype=torch.float64))
    whitened = root @ dense @ root.T
    torch.testing.assert_close(whitened.diagonal(), torch.ones(200, dtype=torch.float64), rtol=0, atol=1e-9)
    # As near to the identity as with a pattern of its own, nearly.
    own = RECIPE.build(now).whiten(torch.eye(200, dtype=torch.float64))
    away = [float((r @ dense @ r.T - torch.eye(200)).norm()) for r in (root, own)]
    assert away[0] < 1.5 * away[1]
