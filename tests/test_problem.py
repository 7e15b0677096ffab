from __future__ import annotations

import torch
from contracts.textbook import KERNELS, Textbook, at, points, targets

from halfgp.problem import Problem


def problem(n=30, fixed=True):
    x = points(n)
    noise = torch.linspace(0.1, 1.0, n, dtype=torch.float64) if fixed else None
    return Problem(x, targets(x, q=2), noise, precision="half", backend="reference", threads=1)


def test_the_operator_is_the_kernel_with_the_noise_of_the_rows():
    rows = problem()
    hyperparameters = at(KERNELS["white"], noise=None)
    operator = rows.operator(hyperparameters, "double")
    torch.testing.assert_close(
        torch.as_tensor(operator.to_dense()),
        Textbook(hyperparameters, rows.x, rows.y, rows.fixed_noise).matrix,
    )
    assert operator.backend == "reference"
    assert rows.operator(hyperparameters).precision.name == "half"


def test_cross_covariances_take_some_rows_or_all():
    rows = problem(fixed=False)
    hyperparameters, new, some = at(KERNELS["white"]), points(4, seed=9), torch.tensor([3, 7])
    whole = torch.as_tensor(rows.cross(hyperparameters, new, "double").to_dense())
    torch.testing.assert_close(whole, hyperparameters.kernel(new, rows.x))
    fewer = torch.as_tensor(rows.cross(hyperparameters, new, "double", some).to_dense())
    torch.testing.assert_close(fewer, whole[:, some], rtol=1e-14, atol=1e-14)


def test_a_subset_has_rows_of_the_whole_once_each():
    rows = problem()
    some = rows.subset(12, seed=0)
    places = [int((rows.x == x).all(dim=1).nonzero()) for x in some.x]
    assert len(set(places)) == 12
    assert places == sorted(places)
    assert torch.equal(some.y, rows.y[places])
    assert torch.equal(some.fixed_noise, rows.fixed_noise[places])
    assert some.precision == "half"
    assert torch.equal(rows.subset(12, seed=0).x, some.x)
    assert not torch.equal(rows.subset(12, seed=1).x, some.x)
    assert torch.equal(rows.subset(30, seed=1).x, rows.x)


def test_an_extended_problem_has_both():
    one, other = problem(10), problem(5)
    both = one.extended(other)
    assert both.rows == 15
    assert torch.equal(both.x, torch.cat([one.x, other.x]))
    assert torch.equal(both.y, torch.cat([one.y, other.y]))
    assert torch.equal(both.fixed_noise, torch.cat([one.fixed_noise, other.fixed_noise]))
    assert problem(3, fixed=False).extended(problem(2, fixed=False)).fixed_noise is None
