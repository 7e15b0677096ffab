from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from contracts.textbook import KERNELS, Textbook, at, points, targets

from halfgp.compact import COMPACT
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


def test_an_extended_problem_holds_points_as_before():
    one, other = problem(10), problem(5)
    both = replace(one, points=one.points.float()).extended(other)
    assert both.points.dtype == torch.float32
    assert torch.equal(both.points[:10], one.points.float())


def test_points_in_single_are_computed_with_in_double():
    """Of whatever is asked for some or all of them."""
    narrow = replace(problem(), points=problem().points.float())
    wide = replace(narrow, points=narrow.points.double())
    hyperparameters, some = at(KERNELS["white"], noise=None), torch.tensor([3, 7])
    for name in ("double", "single", "half"):
        for backend in ("reference", "auto"):
            one, other = (
                replace(rows, backend=backend).operator(hyperparameters, name) for rows in (narrow, wide)
            )
            assert torch.equal(torch.as_tensor(one @ wide.y), torch.as_tensor(other @ wide.y))
            assert torch.equal(torch.as_tensor(one.to_dense()), torch.as_tensor(other.to_dense()))
            cross = [
                replace(rows, backend=backend).cross(hyperparameters, points(4, seed=9), name, some)
                for rows in (narrow, wide)
            ]
            assert torch.equal(*(torch.as_tensor(one.to_dense()) for one in cross))
    assert narrow.x.dtype == narrow.at(some).dtype == torch.float64
    assert torch.equal(narrow.at(some), wide.x[some])


@pytest.mark.parametrize("seed", [1, 9])
def test_who_holds_which_rows_does_not_depend_on_the_format_of_points(seed):
    """Ranks have them in single, and one process that goes on from their files in double."""
    generator = torch.Generator().manual_seed(seed)
    x = (torch.rand(300_000, 1, generator=generator, dtype=torch.float64) - 0.5) * 12**0.5
    y = torch.zeros(len(x), 1, dtype=torch.float64)
    one, other = Problem(x, y), Problem(x.to(COMPACT), y)
    for k in range(16):
        assert torch.equal(one.held_by(k, 16), other.held_by(k, 16))
    # What is far from zero would lose its places.
    far = Problem(x + 1e9, y).held_by(0, 2)
    assert float((x[far].max() - x[far].min()) / (x.max() - x.min())) < 0.51
