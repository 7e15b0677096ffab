"""Rows at one place say together what one row with less noise would."""

from __future__ import annotations

import pytest
import torch
from contracts.textbook import Textbook, at, points, targets
from hypothesis import given
from hypothesis import strategies as st

from halfgp.kernels import RBF, Matern
from halfgp.neighbours import LocalPosterior
from halfgp.problem import Problem
from halfgp.sites import Sites, distinct

# Cholesky in double of matrices with a condition of at most n / noise, and of inverses beside it.
ROUND_OFF = 1e-9


@given(st.lists(st.tuples(st.integers(-2, 2), st.sampled_from([0.0, -0.0, 1e-300, 1e300])), max_size=40))
def test_distinct_rows_are_those_of_a_dictionary(rows):
    x = torch.tensor(rows, dtype=torch.float64).reshape(-1, 2)
    first, of_row = distinct(x)
    seen: dict[tuple[float, ...], int] = {}
    for number, row in enumerate(x.tolist()):
        seen.setdefault(tuple(row), number)
    assert first.tolist() == list(seen.values())
    assert bool((x[first[of_row]] == x).all())


def test_a_site_is_the_posterior_of_its_rows_whatever_their_noise():
    """The mean of targets weighted by inverse noise, with the inverse of the sum of those for its noise."""
    noise = torch.tensor([0.5, 2.0, 1e-3, 0.7], dtype=torch.float64)
    y = torch.tensor([[1.0], [4.0], [2.0], [-1.0]], dtype=torch.float64)
    sites = Sites.of(torch.tensor([[0.0], [0.0], [0.0], [3.0]], dtype=torch.float64), noise, y)
    weight = 1.0 / noise[:3]
    assert float(sites.noise[0]) == pytest.approx(float(1.0 / weight.sum()))
    assert float(sites.targets[0]) == pytest.approx(float((weight * y[:3, 0]).sum() / weight.sum()))
    left, theirs = sites.without(torch.tensor([2, 3]))
    assert float(left[0]) == pytest.approx(float(1.0 / weight[:2].sum()))
    assert float(theirs[0]) == pytest.approx(float((weight * y[:3, 0])[:2].sum() / weight[:2].sum()))
    assert left[1] == torch.inf


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("places", [5, 40])
def test_copies_leave_nothing_of_the_exact_posterior_out(places, fixed):
    """From all sites it is exact, though neighbours are far fewer than the rows."""
    n = 160
    x = points(places, 2)[torch.arange(n) % places]
    y = targets(x, q=2)
    noise = torch.linspace(0.01, 0.3, n, dtype=torch.float64) if fixed else None
    hyperparameters = at(1.5 * Matern(1.5, lengthscale=0.9), noise=None if fixed else 0.05, mean=[0.2, -0.1])
    book = Textbook(hyperparameters, x, y, noise)
    local = LocalPosterior.build(Problem(x, y, noise), hyperparameters, places)
    new = points(30, 2, seed=3)
    torch.testing.assert_close(local(new)[0], book.covariance(new).diagonal(), rtol=0, atol=ROUND_OFF)
    inverse = torch.linalg.inv(book.matrix)
    variance = 1.0 / inverse.diagonal()
    residuals, variances = local.leave_one_out(torch.arange(n))
    exact = (inverse @ hyperparameters.centred(y)) * variance[:, None]
    torch.testing.assert_close(residuals, exact, rtol=0, atol=ROUND_OFF)
    torch.testing.assert_close(variances, variance, rtol=0, atol=ROUND_OFF)


def test_rows_with_little_noise_are_neighbours_before_nearer_ones_with_much():
    """Fifty rows around the point know nothing; what is a little farther away knows all."""
    near = 0.01 * torch.linspace(-1, 1, 50, dtype=torch.float64)[:, None]
    clean = torch.tensor([[-0.05], [0.05]], dtype=torch.float64)
    x = torch.cat([near, clean])
    noise = torch.cat([torch.full((50,), 1e3), torch.full((2,), 1e-6)]).double()
    local = LocalPosterior.build(Problem(x, targets(x), noise), at(RBF(1.0), noise=None), 2)
    members = local._nearest(torch.zeros(1, 1, dtype=torch.float64), None, 2)
    chosen = set(local.landmarks.tolist()) | set(members[0].tolist())
    assert {50, 51} <= chosen
