from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from contracts.textbook import FLOOR, at, points, targets
from scipy.optimize import minimize

from halfgp.errors import InputError
from halfgp.hyperparameters import Coordinates
from halfgp.kernels import RBF, Matern
from halfgp.likelihood import dense_likelihood
from halfgp.priors import PAPER
from halfgp.training.exact import REACH, train_exactly

N = 120


def trained(
    start, x, y, iterations=100, fixed=None, priors=PAPER, observe=lambda step, hyperparameters: None
):
    hyperparameters, _ = train_exactly(
        start,
        lambda hyperparameters: dense_likelihood(hyperparameters, x, y, fixed_noise=fixed, priors=priors),
        rows=len(x),
        stage="cholesky",
        iterations=iterations,
        flat=1e-5,
        observe=observe,
    )
    return hyperparameters


def loss_at(hyperparameters, x, y, fixed=None):
    return dense_likelihood(hyperparameters, x, y, fixed_noise=fixed, priors=PAPER)


def test_it_finds_the_minimum_that_a_tight_search_finds():
    x = points(N, 2)
    y = targets(x)
    start = at(1.0 * RBF([1.0, 1.0]), noise=0.3, mean=[0.0])
    steps = []
    found = trained(start, x, y, observe=lambda step, hyperparameters: steps.append(step))
    coordinates = Coordinates(start)

    def evaluate(vector):
        value = loss_at(coordinates.hyperparameters(torch.from_numpy(vector)), x, y)
        return value.loss, coordinates.pull_back(torch.from_numpy(vector), value.gradient).numpy()

    tight = minimize(
        evaluate,
        coordinates.vector(start).numpy(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 500, "ftol": 1e-15, "gtol": 1e-9},
    )
    # It stops once an iteration improves the loss by less than 1e-5 of it; a few such may be left.
    assert loss_at(found, x, y).loss <= tight.fun + 1e-4
    assert loss_at(found, x, y).loss == min(step.loss for step in steps)
    assert [step.index for step in steps] == list(range(len(steps)))
    assert {step.stage for step in steps} == {"cholesky"}
    assert steps[0].loss == pytest.approx(loss_at(start, x, y).loss, rel=1e-13)
    assert steps[0].hyperparameters["noise"] == pytest.approx(0.3)


def test_fixed_noise_is_used():
    x = points(N, 2)
    y = targets(x)
    start = at(1.0 * Matern(1.5, lengthscale=1.0), noise=None)
    quiet, loud = (torch.full((N,), variance, dtype=torch.float64) for variance in (0.01, 3.0))
    for own, other in ((quiet, loud), (loud, quiet)):
        found, strange = (trained(start, x, y, fixed=fixed) for fixed in (own, other))
        assert found.noise is None
        assert loss_at(found, x, y, own).loss < loss_at(strange, x, y, own).loss - 0.02


def test_no_iterations_leave_the_start():
    x = points(20, 2)
    start = at(RBF(1.0))
    assert trained(start, x, targets(x), iterations=0) is start


def test_a_mean_goes_as_far_as_it_must():
    """Targets that nobody standardised may lie anywhere: the reach is for logarithms."""
    x = points(N, 1)
    y = targets(x, noise=0.01) + 50.0 * REACH
    start = at(1.0 * RBF(1.0), noise=0.1, mean=[0.0])
    found = trained(start, x, y, iterations=200)
    assert abs(float(found.mean.value) - 50.0 * REACH) < 8.0


def test_parameters_stay_within_reach_of_where_they_started():
    """Pure noise: the lengthscale would wander off."""
    x = points(60, 1)
    y = torch.randn(60, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = trained(at(1.0 * RBF(1.0), noise=0.5), x, y, priors={}, iterations=300)
    for value, origin in ((found.kernel.outputscale, 1.0), (found.kernel.kernel.lengthscale, 1.0)):
        assert abs(math.log(float(value) / origin)) <= REACH * (1 + 1e-12)
    assert float(found.noise.value) > FLOOR


def test_a_step_too_far_for_cholesky_is_a_wall():
    x = points(N, 2)
    y = targets(x)
    start = at(1.0 * RBF(1.0), noise=0.3)
    calls = []

    def failing(hyperparameters):
        calls.append(hyperparameters)
        if len(calls) in (2, 4):
            raise InputError("not positive definite")
        return dense_likelihood(hyperparameters, x, y, priors=PAPER)

    steps = []
    found, _ = train_exactly(
        start,
        failing,
        rows=N,
        stage="cholesky",
        iterations=100,
        flat=1e-5,
        observe=lambda step, hyperparameters: steps.append(step.loss),
    )
    assert len(steps) < len(calls)
    assert loss_at(found, x, y).loss < loss_at(start, x, y).loss - 0.1
    assert np.all(np.isfinite(steps))


def test_a_start_that_cannot_be_factored_is_the_users_to_know():
    x = points(N, 2)
    # Huge and smooth: rounding is 1e-16 of 1e13, a hundred times the noise.
    with pytest.raises(InputError, match="Raise `noise_floor`"):
        trained(at(1e12 * RBF(30.0), noise=1e-5, floor=0.0), x, targets(x))


def test_what_an_observer_raises_ends_it():
    x = points(20, 2)

    def stop(step, hyperparameters):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained(at(RBF(1.0)), x, targets(x), observe=stop)
