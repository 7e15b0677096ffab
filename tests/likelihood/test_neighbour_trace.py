from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from contracts.textbook import KERNELS, at, points, targets

from halfgp.backends import NAMES
from halfgp.errors import InputError
from halfgp.kernels import RBF
from halfgp.likelihood import GradientEstimator, dense_likelihood
from halfgp.likelihood.traces import TRACES, NeighbourTrace
from halfgp.operators import KernelOperator
from halfgp.priors import PAPER
from halfgp.problem import Problem

N = 50
FEW = 4
PROBES = 400


def equations(start, rows, neighbours, probes=PROBES, seed=0, there=None, priors=PAPER, precision="double"):
    """Those at hyperparameters, which the neighbours may have been found at others than, and solutions."""
    there = start if there is None else there
    trace = NeighbourTrace.draw(start, rows, probes, seed, neighbours)
    operator = rows.operator(there, precision)
    found = GradientEstimator(rows.y, trace, priors).at(there, operator.bound)
    exact = torch.as_tensor(rows.operator(there, "double").to_dense())
    return found, torch.linalg.solve(exact, found.right_hand_sides)


def check_exact(hyperparameters, rows, **options):
    """One probe gives the gradient of the dense likelihood, where all earlier rows are neighbours."""
    found, solutions = equations(hyperparameters, rows, rows.rows - 1, probes=1, **options)
    wanted = dense_likelihood(
        hyperparameters, rows.x, rows.y, fixed_noise=rows.fixed_noise, priors=PAPER
    ).gradient
    gradient = found.gradient(solutions)
    assert gradient.keys() == wanted.keys()
    for name, exact in wanted.items():
        # Conditions are below 1e4 here: what double leaves of 16 digits.
        torch.testing.assert_close(
            gradient[name], exact, rtol=1e-8, atol=1e-9, msg=lambda m, n=name: f"{n}: {m}"
        )


def check_unbiased(hyperparameters, rows, there=None):
    """The mean over probes is within four standard errors of the exact gradient, in every component."""
    there = hyperparameters if there is None else there
    found, solutions = equations(hyperparameters, rows, FEW, there=there)
    wanted = dense_likelihood(there, rows.x, rows.y, fixed_noise=rows.fixed_noise, priors=PAPER).gradient
    gradient, each = found.gradient(solutions), found.gradients_of_probes(solutions)
    for name, exact in wanted.items():
        error = each[name].std(dim=0) / PROBES**0.5 if name in each else torch.zeros_like(exact)
        # 1e-9: for what has no randomness, such as the mean's gradient.
        worst = ((gradient[name] - exact).abs() / (4 * error + 1e-9)).max()
        assert worst < 1, f"{name}: {float(worst):.2f} of four standard errors"


@pytest.mark.parametrize("backend", NAMES)
@pytest.mark.parametrize("name", KERNELS)
def test_with_all_earlier_rows_every_probe_is_exact(name, backend):
    x = points(N)
    check_exact(at(KERNELS[name], noise=0.2, mean=[0.2]), Problem(x, targets(x), backend=backend))


@pytest.mark.parametrize("name", KERNELS)
def test_with_few_neighbours_estimates_are_unbiased(name):
    x = points(N)
    check_unbiased(at(KERNELS[name], noise=0.3, mean=[0.2]), Problem(x, targets(x)))


@pytest.mark.parametrize("check", [check_exact, check_unbiased])
def test_several_targets_and_fixed_noise(check):
    x = points(N)
    check(at(KERNELS["white"], noise=0.3, mean=[0.1, 0.2]), Problem(x, targets(x, q=2)))
    fixed = torch.linspace(0.1, 0.6, N, dtype=torch.float64)
    check(at(KERNELS["matern12"], noise=None), Problem(x, targets(x), fixed))


def test_away_from_where_neighbours_were_found_estimates_are_unbiased():
    x = points(N)
    there = at(RBF([1.5, 0.4, 0.9]), noise=0.1)
    check_unbiased(at(RBF([0.7, 1.1, 1.6]), noise=0.3), Problem(x, targets(x)), there)


def test_a_seed_gives_the_same_numbers_and_another_does_not():
    x = points(N)
    rows, hyperparameters = Problem(x, targets(x)), at(KERNELS["matern32"], noise=0.3)
    one, same, other = (
        equations(hyperparameters, rows, FEW, probes=2, seed=seed)[0].right_hand_sides for seed in (3, 3, 4)
    )
    assert torch.equal(one, same)
    assert float((one - other)[:, 1:].norm()) > 0.1 * float(one[:, 1:].norm())


def test_right_hand_sides_move_smoothly_with_the_hyperparameters():
    x = points(N)
    rows, start = Problem(x, targets(x)), at(RBF(0.9), noise=0.1)
    near = at(RBF(0.9 * (1 + 1e-6)), noise=0.1 * (1 + 1e-6))
    one, other = (
        equations(start, rows, FEW, probes=4, there=there)[0].right_hand_sides[:, 1:]
        for there in (start, near)
    )
    # By their slope; new signs or another order would move them by their own size, which is near 1.
    assert float(one.abs().max()) > 0.5
    assert 0 < float((one - other).abs().max()) < 1e-3


def test_in_single_they_differ_from_double_by_rounding():
    x = points(N)
    rows, hyperparameters = Problem(x, targets(x)), at(KERNELS["matern32"], noise=0.3)
    one, other = (
        found.gradient(solutions)
        for found, solutions in (
            equations(hyperparameters, rows, FEW, probes=4, precision=precision)
            for precision in ("double", "single")
        )
    )
    # A product in single is off by some n eps of |A| |v|, both below 50 here, over a noise of 0.3.
    for name, gradient in one.items():
        torch.testing.assert_close(other[name], gradient, rtol=0, atol=1e-3)


def test_probes_have_a_smaller_error_than_those_of_other_estimators():
    x = points(300, 2)
    rows, hyperparameters = Problem(x, targets(x)), at(1.0 * KERNELS["matern32"], noise=0.01)
    operator = rows.operator(hyperparameters, "double")
    errors = {}
    for kind in TRACES:
        estimator = GradientEstimator.draw(hyperparameters, rows, kind=kind, probes=64, priors={}, seed=0)
        found = estimator.at(hyperparameters, operator.bound)
        solutions = torch.linalg.solve(torch.as_tensor(operator.to_dense()), found.right_hand_sides)
        each = found.gradients_of_probes(solutions)
        errors[kind] = torch.stack([g.std(dim=0) for g in each.values()])
    # A deviation by 64 probes is within a factor of 2 of the truth: ten times less is left of a hundred.
    for other in ("pathwise", "hutchinson"):
        assert bool((10 * errors["neighbours"] < errors[other]).all()), other


def test_the_mean_over_probes_is_the_gradient():
    x = points(N)
    rows = replace(Problem(x, targets(x)), y=torch.zeros(N, 1, dtype=torch.float64))
    found, solutions = equations(at(KERNELS["sum"], noise=0.3), rows, FEW, probes=5, priors={})
    each = found.gradients_of_probes(solutions)
    for name, gradient in found.gradient(solutions).items():
        torch.testing.assert_close(each[name].mean(dim=0), gradient)


def test_repeated_rows_without_noise_are_refused_with_the_remedy():
    rows = Problem(torch.zeros(N, 2, dtype=torch.float64), torch.zeros(N, 1, dtype=torch.float64))
    hyperparameters = at(RBF(), noise=1e-18, floor=0.0)
    trace = NeighbourTrace.draw(hyperparameters, rows, 2, 0)
    operator = KernelOperator(hyperparameters.kernel, rows.x, noise=1e-18, precision="double")
    with pytest.raises(InputError, match="noise_floor"):
        trace.probes(hyperparameters, operator.bound)
