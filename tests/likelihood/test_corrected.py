from __future__ import annotations

import pytest
import torch
from contracts.textbook import at, points, targets

from halfgp.kernels import RBF, Linear, Matern, RationalQuadratic
from halfgp.likelihood import CorrectedLikelihood, NeighbourLikelihood, dense_likelihood
from halfgp.priors import PAPER
from halfgp.problem import Problem

X = points(80, 2)
ROWS = Problem(X, targets(X, q=2))
KERNELS = {
    "matern": 1.3 * Matern(1.5, lengthscale=[0.8, 1.2]),
    "sum": 0.7 * RBF(1.5) + Linear() * RationalQuadratic(),
}


def corrected(origin, gradient, neighbours=5):
    around = NeighbourLikelihood.around(origin, ROWS, rows=80, neighbours=neighbours, seed=0, priors=PAPER)
    return CorrectedLikelihood.at(origin, gradient, around), around


def exact(hyperparameters):
    return dense_likelihood(hyperparameters, ROWS.x, ROWS.y, priors=PAPER)


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_at_its_origin_it_has_the_gradient_that_was_given(kernel):
    origin = at(kernel, noise=0.2, mean=[0.1, -0.3])
    whole = exact(origin).gradient
    found, around = corrected(origin, whole)
    here = found(origin)
    assert here.loss == around(origin).loss
    for name, g in whole.items():
        torch.testing.assert_close(here.gradient[name], g, rtol=1e-10, atol=1e-12)


def test_elsewhere_it_differs_from_neighbourhoods_by_that_slope_alone():
    origin = at(KERNELS["matern"], noise=0.2, mean=[0.1, -0.3])
    found, around = corrected(origin, exact(origin).gradient)
    there = at(2.0 * Matern(1.5, lengthscale=[0.5, 1.9]), noise=0.1, mean=[0.0, 0.4])
    moved = {
        name: p.value - origin.named_parameters()[name].value for name, p in there.named_parameters().items()
    }
    slope = sum(float((found.slopes[name] * step).sum()) for name, step in moved.items())
    assert found(there).loss == pytest.approx(around(there).loss + slope, rel=1e-12)
    for name, g in around(there).gradient.items():
        torch.testing.assert_close(found(there).gradient[name], g + found.slopes[name])


def test_with_all_earlier_rows_nothing_is_to_be_corrected():
    origin = at(KERNELS["matern"], noise=0.2, mean=[0.1, -0.3])
    found, _ = corrected(origin, exact(origin).gradient, neighbours=79)
    assert max(float(slope.abs().max()) for slope in found.slopes.values()) < 1e-9
