from __future__ import annotations

import pytest
import torch
from contracts.textbook import at, points, targets

from halfgp.errors import InputError
from halfgp.kernels import RBF, Matern, White
from halfgp.likelihood import NeighbourLikelihood, dense_likelihood
from halfgp.priors import PAPER
from halfgp.problem import Problem

N = 40


def problem(**options):
    x = points(N, 2)
    return Problem(x, targets(x, noise=0.1), **options)


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("kernel", [1.5 * Matern(1.5, lengthscale=[0.8, 1.2]), RBF() + White(0.1)])
def test_with_all_earlier_rows_it_is_the_exact_likelihood(kernel, fixed):
    noise = torch.linspace(0.1, 0.5, N, dtype=torch.float64) if fixed else None
    some = problem(fixed_noise=noise)
    hyperparameters = at(kernel, noise=None if fixed else 0.2, mean=[0.3])
    likelihood = NeighbourLikelihood.around(hyperparameters, some, rows=N, neighbours=N, seed=0, priors=PAPER)
    found = likelihood(hyperparameters)
    wanted = dense_likelihood(hyperparameters, some.x, some.y, fixed_noise=noise, priors=PAPER)
    assert found.loss == pytest.approx(wanted.loss, rel=1e-10)
    assert found.gradient.keys() == wanted.gradient.keys()
    for name, gradient in wanted.gradient.items():
        torch.testing.assert_close(found.gradient[name], gradient, rtol=1e-8, atol=1e-10)


def test_rows_and_neighbours_are_drawn_by_the_seed():
    hyperparameters = at(RBF(), noise=0.1)
    first, again, other = (
        NeighbourLikelihood.around(hyperparameters, problem(), rows=10, neighbours=3, seed=seed, priors=PAPER)
        for seed in (1, 1, 2)
    )
    assert torch.equal(first.sets.members, again.sets.members)
    assert torch.equal(first.sets.rows, again.sets.rows)
    assert not torch.equal(first.sets.rows, other.sets.rows)
    assert first.sets.members.shape == (10, 3)


def test_repeated_rows_without_noise_are_refused_with_the_remedy():
    x = torch.zeros(N, 2, dtype=torch.float64)
    some = Problem(x, torch.randn(N, 1, dtype=torch.float64))
    hyperparameters = at(RBF(), noise=1e-18, floor=0.0)
    likelihood = NeighbourLikelihood.around(hyperparameters, some, rows=N, neighbours=5, seed=0, priors=PAPER)
    with pytest.raises(InputError, match="noise_floor"):
        likelihood(hyperparameters)
