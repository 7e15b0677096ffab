from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from contracts.textbook import Textbook, at, covariance, points, targets

import halfgp.prediction.calibration
import halfgp.prediction.conditioning
from halfgp import GPRegressor
from halfgp.kernels import RBF, Matern
from halfgp.preconditioners import PivotedCholesky
from halfgp.prediction import Conditioning, condition
from halfgp.prediction.calibration import scales_of
from halfgp.problem import Problem
from halfgp.settings import TrainingOptions, VarianceOptions

N = 300
X, NEW = points(N), points(40, seed=5)
TRUE = at(1.5 * Matern(1.5, lengthscale=0.9), noise=0.1)
DRAW = torch.randn(N, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
Y = torch.linalg.cholesky(covariance(TRUE.kernel, X, TRUE.noise.value).detach()) @ DRAW
WAYS = {"factor": "cholesky", "local": "local"}


def in_units(values, posterior):
    """Of targets as they were given."""
    return values * posterior.units


def conditioned(hyperparameters, way, y=Y, fixed=None, calibrate=False):
    how = Conditioning("cg", 1e-6, 1000, PivotedCholesky(), WAYS[way], N, 0, calibrate=calibrate)
    return condition(Problem(X, y, fixed), hyperparameters, how)


def before_and_after(hyperparameters, way, **options):
    """Without calibration and with it."""
    return conditioned(hyperparameters, way, **options), conditioned(
        hyperparameters, way, calibrate=True, **options
    )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("wrong", [0.1, 1.0, 6.0])
def test_the_scale_of_the_data_is_found(way, wrong):
    before, after = before_and_after(TRUE.scaled(wrong), way)
    means, scale = before.predict(NEW).mean, after.scale
    # Of 1000 squares of correlated normal numbers, times what two probes do to the local variances.
    assert scale * wrong == pytest.approx(1.0, abs=0.2)
    # Products are in single.
    torch.testing.assert_close(in_units(after.predict(NEW).mean, after), means, rtol=0, atol=1e-4)
    book = Textbook(after.hyperparameters, X, Y / after.units)
    assert torch.equal(after.problem.y, book.y)
    # The reported hyperparameters are those that the predictions follow from.
    torch.testing.assert_close(after.weights, torch.linalg.solve(book.matrix, book.y), rtol=0, atol=1e-4)
    variance = after.predict(NEW, variance=True).variance
    tolerance = 1e-4 if way == "factor" else 0.1
    exact = book.covariance(NEW).diagonal()
    torch.testing.assert_close(variance, exact, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("true", [0.01, 0.3, 3.0])
def test_the_scale_is_that_of_the_highest_density(true):
    """No number that rows can tell from it gives the residuals a higher density."""
    rows = 4096
    normal = torch.randn(rows, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    squares = true * normal.square()
    scales = scales_of(at(2.0 * RBF(), noise=0.1), squares)

    def density(scale):
        return (-0.5 * (squares / scale + scale.log())).mean(dim=0)

    resolved = 2.0 * (2.0 / rows) ** 0.5  # two standard errors of the mean of squares of normal numbers
    for factor in (1.0 - resolved, 1.0 + resolved):
        assert bool((density(scales) > density(factor * scales)).all())


def test_what_chance_does_to_a_scale_that_is_right_is_left_alone():
    """Squares with heavy tails, of mean 1: few of them decide the mean of a sample."""
    off, plain = [], []
    for seed in range(50):
        normal = torch.randn(512, 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        squares = normal.mul(2.0).exp() / math.exp(2.0)
        plain.append(float(squares.mean().log()))
        off.append(float(scales_of(at(2.0 * RBF(), noise=0.1), squares).log()))
    # A scale s instead of 1 costs (1/s + log s - 1)/2 in density.
    lost, without = (sum(math.exp(-a) + a - 1.0 for a in logs) for logs in (off, plain))
    assert lost < 0.5 * without


def test_a_scale_that_rows_ask_for_beyond_chance_is_taken_as_it_is():
    normal = torch.randn(4096, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    squares = 0.1 * normal.square()
    asked = float(squares.mean())
    # Of the logarithm, 2.3, the square of a standard error of 0.022 is lost beside it.
    assert float(scales_of(at(2.0 * RBF(), noise=0.1), squares)) == pytest.approx(asked, rel=1e-3)


@pytest.mark.parametrize("way", WAYS)
def test_each_target_has_a_scale_of_its_own(way):
    """One for all of them was that of none."""
    sizes = torch.tensor([0.01, 1.0, 5.0], dtype=torch.float64)
    hyperparameters = at(TRUE.kernel, noise=0.1, mean=[0.1, -0.2, 0.3])
    y = torch.cat([Y, -Y[:, :1]], dim=1) * sizes + hyperparameters.mean.value
    after = conditioned(hyperparameters, way, y=y, calibrate=True)
    deviations = after.units * after.scale**0.5
    torch.testing.assert_close(deviations / sizes, torch.ones(3, dtype=torch.float64), rtol=0, atol=0.2)
    book = Textbook(hyperparameters, X, y)
    told = after.predict(NEW, errors=True)
    error = (in_units(told.mean, after) - book.mean(NEW)).abs()
    # Each is as exact as its own deviations need.
    assert bool((error.amax(dim=0) < 0.1 * sizes).all())
    assert bool((in_units(told.mean_error, after).amax(dim=0) < 0.1 * sizes).all())
    left, _ = after.leave_one_out()
    plain, _ = conditioned(hyperparameters, way, y=y).leave_one_out()
    torch.testing.assert_close(in_units(left, after) / sizes, plain / sizes, rtol=0, atol=0.1)


def test_intervals_of_easy_and_hard_targets_cover():
    """With one scale those of the hard one covered 75 %, and those of the easy one everything."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, (2400, 2))
    f = [np.sin(3 * x[:, 0]) + x[:, 1] ** 2, np.cos(2 * x[:, 1]), np.exp(-x[:, 0]) * x[:, 1]]
    noise = (0.01, 0.1, 0.5)
    y = np.stack([v / v.std() + s * rng.standard_normal(len(x)) for v, s in zip(f, noise, strict=True)], 1)
    for options in ({"method": "cholesky"}, {"method": "cg", "training": TrainingOptions(subset=200)}):
        gp = GPRegressor(**options).fit(x[:400], 7.0 + y[:400])
        mean, std = gp.predict(x[400:], return_std=True)
        coverage = (abs(7.0 + y[400:] - mean) < 1.96 * std).mean(axis=0)
        assert np.all(abs(coverage - 0.95) < 0.03), coverage
        assert std.mean(axis=0) == pytest.approx(noise, rel=0.3, abs=0.03)
        draws = gp.sample_y(x[400:420], 400, random_state=1)
        _, latent = gp.predict(x[400:420], return_std=True, include_noise=False)
        np.testing.assert_allclose(draws.std(axis=-1), latent, rtol=0.25)


def test_known_variances_and_kernels_without_a_scale_are_left_alone():
    fixed = torch.full((N,), 0.3, dtype=torch.float64)
    for hyperparameters, variances in (
        (at(TRUE.kernel, noise=None), fixed),
        (at(Matern(1.5), noise=0.1), None),
    ):
        before, after = before_and_after(hyperparameters, "factor", fixed=variances)
        assert after.scale == 1.0
        assert torch.equal(after.weights, before.weights)


def test_the_floor_of_the_noise_goes_along():
    """It is about the conditioning of K + noise, which no scale changes."""
    after = conditioned(at(TRUE.kernel, noise=0.1, floor=0.09), "factor", y=1e-2 * Y, calibrate=True)
    noise, scale = after.hyperparameters.noise, after.scale
    assert scale < 1e-3
    assert float(noise.value) == pytest.approx(0.1 * scale)
    assert noise.lower == pytest.approx(0.09 * scale)


def test_targets_that_are_explained_exactly_have_no_scale():
    assert conditioned(TRUE, "factor", y=torch.zeros_like(Y), calibrate=True).scale == 1.0
    tiny = conditioned(TRUE, "factor", y=1e-9 * Y, calibrate=True)
    # But for the square of its standard error, a hundredth of the logarithm at the most.
    assert math.log(tiny.scale) == pytest.approx(math.log(halfgp.prediction.calibration.SMALLEST), rel=1e-2)


def test_it_looks_at_some_rows_only(monkeypatch):
    monkeypatch.setattr(halfgp.prediction.conditioning, "ROWS", 60)
    scale = conditioned(TRUE, "factor", calibrate=True).scale
    assert scale == pytest.approx(1.0, abs=0.6)  # 4 of √(2 / 120), and some for correlation


def test_a_fit_on_a_subset_reports_it_and_others_have_none():
    y = targets(X)[:, 0]
    # One iteration from far away leaves the scale far from that of the rows.
    options = {"method": "cg", "outputscale": 50.0, "noise": 5.0}
    options |= {"training": TrainingOptions(subset=100, subset_iterations=1, steps=0)}
    regressor = GPRegressor(**options).fit(X, y)
    plain = GPRegressor(**options, variances=VarianceOptions(calibrate=False)).fit(X, y)
    scale = regressor.report_.scale
    assert scale != 1.0
    assert (
        plain.report_.scale
        == GPRegressor(method="cholesky", training=TrainingOptions(subset_iterations=2))
        .fit(X, y)
        .report_.scale
        == 1.0
    )
    assert regressor.noise_ == pytest.approx(scale * plain.noise_)
    assert abs(regressor.predict(NEW) - plain.predict(NEW)).max() < 1e-4
