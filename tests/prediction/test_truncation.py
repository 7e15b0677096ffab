from __future__ import annotations

import pytest
import torch
from contracts.textbook import KERNELS, at, points, targets

from halfgp.kernels import RBF, Constant, Linear, Matern, RationalQuadratic
from halfgp.precision import Precision
from halfgp.prediction.truncation import BLOCK, TruncatedMean, space_filling_order
from halfgp.problem import Problem

N, M = 2500, 1500
PRECISIONS = ["half", "single", "double"]


def truncated(kernel, d, precision="single", n=N, fixed=None):
    x = points(n, d)
    return TruncatedMean.build(Problem(x, targets(x), fixed), at(kernel), Precision.resolve(precision))


def weights(n=N):
    return torch.randn(n, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def groups(mean, kernel, new):
    """Test points as they are taken together, and the rows near each group."""
    z = kernel.program().leaves[0].scaled(new)
    order = space_filling_order(z)
    for start in range(0, len(new), 4 * BLOCK):
        some = order[start : start + 4 * BLOCK]
        yield some, mean.near(z[some])


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("kernel", [RBF(0.01), 2.0 * Matern(0.5, lengthscale=0.0005)])
def test_what_is_left_out_is_zero_to_the_last_bit(kernel, d, precision):
    new = points(M, d, seed=5)
    mean = truncated(kernel, d, precision)
    dropped = 0
    for some, rows in groups(mean, kernel, new):
        far = torch.ones(N, dtype=torch.bool)
        far[rows] = False
        dropped += int(far.sum())
        # Everything that the engine computes of these rows, with nothing left out.
        operator = mean.problem.cross(mean.hyperparameters, new[some], precision)
        w = 1e6 * weights() * far[:, None]
        assert torch.equal(torch.as_tensor(operator @ w), torch.zeros(len(some), 2, dtype=torch.float64))
    assert dropped > 0 or (precision == "double" and not isinstance(kernel, RBF))


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("d", [1, 2, 3])
def test_the_product_is_the_whole_one_within_the_rounding_of_each(d, precision):
    kernel, new, w = RBF(0.05), points(M, d, seed=5), weights()
    mean = truncated(kernel, d, precision)
    exact = kernel(new, points(N, d)) @ w
    whole = torch.as_tensor(mean.problem.cross(mean.hyperparameters, new, precision) @ w[mean.order])
    allowed = 2 * (whole - exact).abs().max()  # its own error, and as much again
    assert float((mean(new, w) - exact).abs().max()) <= float(allowed)


def test_points_beyond_every_row_have_nothing():
    mean = truncated(RBF(0.01), 2)
    found = mean(points(50, 2) + 100.0, weights())
    assert torch.equal(found, torch.zeros(50, 2, dtype=torch.float64))


def test_no_points_at_all():
    assert truncated(RBF(0.01), 2)(points(0, 2), weights()).shape == (0, 2)


@pytest.mark.parametrize(
    ("kernel", "d", "n"),
    [
        (RBF(0.01), 5, N),  # too many features
        (RBF(0.01), 2, 4 * BLOCK - 1),  # too few rows
        (Linear(), 2, N),
        (RationalQuadratic(), 2, N),
        (RBF() + Matern(1.5), 2, N),
        (KERNELS["constant"], 3, N),
    ],
)
def test_where_nothing_could_be_left_out_there_is_none(kernel, d, n):
    assert truncated(kernel, d, n=n) is None


def test_the_order_keeps_neighbours_together_and_loses_nobody():
    z = points(N, 2)
    order = space_filling_order(z)
    assert torch.equal(order.sort().values, torch.arange(N))
    steps = (z[order][1:] - z[order][:-1]).norm(dim=1)
    random = (z[1:] - z[:-1]).norm(dim=1)
    assert float(steps.mean()) < 0.1 * float(random.mean())
    line = space_filling_order(points(N, 1))
    assert bool((points(N, 1)[line][1:, 0] - points(N, 1)[line][:-1, 0] > -1e-5).all())  # cells of 4e-6
    same = space_filling_order(torch.ones(5, 2, dtype=torch.float64))
    assert same.tolist() == [0, 1, 2, 3, 4]


def test_a_constant_beside_a_kernel_vanishes_nowhere():
    """Its blocks were left out with the kernel's: means depended on the other points of a call."""
    x = 400 * torch.rand(1200, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    hyperparameters = at(10.0 * (Constant(1.0) + RBF(0.02)), noise=0.1)
    assert TruncatedMean.build(Problem(x, targets(x)), hyperparameters, Precision.resolve("single")) is None
    plain = at(10.0 * RBF(0.02), noise=0.1)
    assert TruncatedMean.build(Problem(x, targets(x)), plain, Precision.resolve("single")) is not None
