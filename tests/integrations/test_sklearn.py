"""Kernels and models of scikit-learn taken over."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import (
    RBF,
    CompoundKernel,
    ConstantKernel,
    DotProduct,
    ExpSineSquared,
    Matern,
    PairwiseKernel,
    RationalQuadratic,
    WhiteKernel,
)

import halfgp
from halfgp import GPRegressor
from halfgp.errors import InputError
from halfgp.sklearn_kernels import from_sklearn_kernel

KERNELS = {
    "rbf": RBF(0.7),
    "rbf ard": ConstantKernel(2.0) * RBF([0.7, 1.3]),
    "matern12": Matern(0.6, nu=0.5),
    "matern32": Matern([0.6, 0.8], nu=1.5),
    "matern52": 1.5 * Matern(0.6, nu=2.5),
    "matern72": Matern(0.6, nu=3.5),
    "matern inf": Matern(0.6, nu=np.inf),
    "rq": RationalQuadratic(0.8, 1.7),
    "dot": DotProduct(0.5),
    "sum": ConstantKernel(0.5) + RBF(0.7) + WhiteKernel(0.1),
    "product": ConstantKernel(0.5) * RBF(0.7) * Matern(1.2, nu=1.5) + WhiteKernel(0.1),
    "power": RBF(0.7) ** 2 + DotProduct(1.0) ** 3,
}
ON_ONE = {"periodic": ExpSineSquared(0.8, 1.3), "locally periodic": RBF(2.0) * ExpSineSquared(0.8, 1.3)}


def rows(n=40, d=2, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, d))
    return x, np.sin(3 * x).sum(axis=1) + 0.1 * rng.standard_normal(n)


@pytest.mark.parametrize("name", [*KERNELS, *ON_ONE])
def test_a_kernel_has_the_same_covariance(name):
    theirs, d = (KERNELS[name], 2) if name in KERNELS else (ON_ONE[name], 1)
    x, _ = rows(d=d)
    ours = from_sklearn_kernel(theirs, d)
    points = torch.from_numpy(x)
    dense = ours(points, points) + torch.diag(ours.white(points))
    np.testing.assert_allclose(dense.numpy(), theirs(x), rtol=1e-12, atol=1e-13)


def test_bounds_and_fixed_values_come_along():
    theirs = ConstantKernel(2.0, "fixed") * RBF(0.7, (0.1, 5.0)) + WhiteKernel(0.1)
    named = dict(from_sklearn_kernel(theirs, 2).named_parameters())
    assert named["0.outputscale"].fixed
    length = named["0.lengthscale"]
    assert not length.fixed
    assert length.lower == pytest.approx(0.1)
    assert length.upper == pytest.approx(5.0)


def test_what_is_fixed_stays_and_what_is_bounded_stays_within():
    x, y = rows(60)
    kernel = ConstantKernel(2.0, "fixed") * RBF(0.7, (0.6, 0.9))
    gp = GPRegressor(kernel, standardise_X=False, standardise_y=False).fit(x, y)
    named = dict(gp.kernel_.named_parameters())
    assert float(named["outputscale"].value) == 2.0
    assert 0.6 <= float(named["lengthscale"].value) <= 0.9
    assert len(gp.theta_) == 3  # lengthscale, noise and mean


@pytest.mark.parametrize(
    ("kernel", "features", "word"),
    [
        (PairwiseKernel(), 2, "PairwiseKernel"),
        (CompoundKernel([RBF()]), 2, "CompoundKernel"),
        (ExpSineSquared(), 2, "one feature"),
        (Matern(nu=0.7), 2, "half integer"),
        (RBF() ** 0.5, 2, "whole powers"),
        (RBF([1.0, 5.0], [(0.5, 2.0), (4.0, 6.0)]), 2, "one pair of bounds for all of `length_scale`"),
    ],
)
def test_what_is_none_of_ours_is_refused(kernel, features, word):
    with pytest.raises(InputError, match=word):
        from_sklearn_kernel(kernel, features)


@pytest.mark.parametrize("normalize", [False, True])
def test_a_trained_model_predicts_the_same(normalize):
    x, y = rows(50)
    x_new, _ = rows(20, seed=1)
    kernel = ConstantKernel(1.0) * RBF([0.5, 0.5]) + WhiteKernel(0.1)
    theirs = GaussianProcessRegressor(kernel, normalize_y=normalize, random_state=0).fit(x, 3 + 2 * y)
    ours = halfgp.from_sklearn(theirs)
    mean, std = theirs.predict(x_new, return_std=True)
    found, deviation = ours.predict(x_new, return_std=True)
    # Both by Cholesky in double; the noise of 0.01 makes a condition of a few thousand.
    np.testing.assert_allclose(found, mean, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(deviation, std, rtol=1e-6)
    likelihood, error = ours.log_marginal_likelihood()
    units = len(y) * np.log(np.std(3 + 2 * y)) if normalize else 0.0
    assert likelihood + units == pytest.approx(
        theirs.log_marginal_likelihood(theirs.kernel_.theta), abs=1e-6 + error
    )


def test_bounds_of_a_trained_model_do_not_matter():
    x, y = rows(50)
    kernel = RBF([1.0, 5.0], [(0.5, 2.0), (4.0, 6.0)]) * DotProduct(1.0) + WhiteKernel(0.1)
    theirs = GaussianProcessRegressor(kernel, optimizer=None).fit(x, y)
    np.testing.assert_allclose(halfgp.from_sklearn(theirs).predict(x), theirs.predict(x), rtol=1e-6)
    assert theirs.kernel_.bounds.shape == (4, 2)  # it is as it was


def test_targets_in_a_column_are_one_target():
    x, y = rows(50)
    theirs = GaussianProcessRegressor(RBF(), alpha=0.1, optimizer=None, normalize_y=True).fit(x, y[:, None])
    np.testing.assert_allclose(halfgp.from_sklearn(theirs).predict(x), theirs.predict(x), rtol=1e-9)


def test_what_cannot_be_taken_over_is_refused():
    with pytest.raises(InputError, match="fitted"):
        halfgp.from_sklearn(GaussianProcessRegressor())
    x, y = rows(20)
    several = GaussianProcessRegressor(RBF(), optimizer=None).fit(x, np.stack([y, 2 * y], axis=1))
    with pytest.raises(InputError, match="`regressor` must have one target; got 2"):
        halfgp.from_sklearn(several)


def test_the_likelihood_at_other_hyperparameters_is_theirs():
    x, y = rows(40)
    theirs = GaussianProcessRegressor(
        ConstantKernel(1.0) * RBF([0.5, 0.5]) + WhiteKernel(0.1), alpha=1e-12
    ).fit(x, y)
    kernel = ConstantKernel(1.0) * RBF([0.5, 0.5])
    ours = GPRegressor(kernel, standardise_X=False, standardise_y=False, mean="zero", priors=None).fit(x, y)
    theta = np.log([1.3, 0.4, 0.8, 0.05])
    value, gradient = ours.log_marginal_likelihood(theta, eval_gradient=True)
    expected, slope = theirs.log_marginal_likelihood(theta, eval_gradient=True)
    assert value == pytest.approx(expected, rel=1e-8)
    np.testing.assert_allclose(gradient, slope, rtol=1e-6, atol=1e-6)
    assert ours.log_marginal_likelihood(theta) == pytest.approx(expected, rel=1e-8)
    here, _ = ours.log_marginal_likelihood(eval_gradient=True)
    assert here == pytest.approx(ours.log_marginal_likelihood().value, rel=1e-6)
    with pytest.raises(InputError, match="4 numbers"):
        ours.log_marginal_likelihood(theta[:2])


def test_beyond_cholesky_the_likelihood_is_an_estimate_with_a_gradient():
    x, y = rows(300)
    options = {"standardise_X": False, "standardise_y": False, "mean": "zero", "priors": None}
    exact = GPRegressor(1.0 * RBF(0.5), method="cholesky", **options).fit(x, y)
    by_products = GPRegressor(1.0 * RBF(0.5), method="cg", **options).fit(x, y)
    theta = np.log([1.0, 0.4, 0.02])
    value, gradient = exact.log_marginal_likelihood(theta, eval_gradient=True)
    found, slope = by_products.log_marginal_likelihood(theta, eval_gradient=True)
    estimate, _ = by_products.model_.log_marginal_likelihood_at(theta)
    assert abs(found - value) < 4 * estimate.standard_error + 0.01 * abs(value)
    np.testing.assert_allclose(slope, gradient, rtol=0.1, atol=0.1 * np.abs(gradient).max())


def test_an_optimiser_of_ones_own_is_asked():
    x, y = rows(40)
    seen = []

    def nothing(function, theta, bounds):
        loss, gradient = function(theta)
        seen.append((loss, gradient.shape, bounds.shape))
        return theta, function(theta, eval_gradient=False)

    gp = GPRegressor(1.0 * RBF(0.5)).set_params(training__search=nothing).fit(x, y)
    assert seen
    assert seen[0][2] == (len(gp.theta_), 2)


def test_training_ends_where_an_optimiser_of_ones_own_says():
    """As in scikit-learn, whatever better place was looked at on the way."""
    x, y = rows(40)

    def worse(function, theta, bounds):
        function(theta)
        return theta - 1.0, 0.0

    found = GPRegressor(1.0 * halfgp.RBF(0.5)).set_params(training__search=worse).fit(x, y).kernel_
    assert float(found.kernel.lengthscale) == pytest.approx(0.5 / np.e, rel=1e-6)


@pytest.mark.parametrize("returned", [None, 1.0, ([0.0], 0.0), ([np.nan] * 4, 0.0), ("abcd", 0.0)])
def test_an_optimiser_that_returns_no_theta_is_refused(returned):
    x, y = rows(40)
    regressor = GPRegressor(1.0 * RBF(0.5)).set_params(training__search=lambda *_: returned)
    with pytest.raises(InputError, match="`training__search` must return theta, 4 finite numbers"):
        regressor.fit(x, y)


def test_restarts_find_what_one_start_does_not():
    """A period of 1 from 0.37: between them the likelihood goes up and down."""
    x = np.linspace(0, 6, 80)[:, None]
    y = np.sin(2 * np.pi * x[:, 0]) + 0.1 * np.random.default_rng(0).standard_normal(80)
    regressor = GPRegressor(1.0 * halfgp.Periodic(period=0.37), standardise_X=False)
    regressor.set_params(training__subset_iterations=30)
    alone = regressor.fit(x, y)
    likelihood, period = alone.log_marginal_likelihood().value, float(alone.kernel_.kernel.period)
    more = regressor.set_params(training__restarts=2).fit(x, y)
    assert abs(period - 1.0) > 0.5
    assert float(more.kernel_.kernel.period) == pytest.approx(1.0, rel=0.02)
    assert more.log_marginal_likelihood().value > likelihood
