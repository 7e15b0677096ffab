"""Intervals hold as many new targets as they say, whatever the noise looks like."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from halfgp import ExactGP, GPRegressor, InputError, PredictionInterval, UnsolvedWarning
from halfgp.scores import Scores

LEVELS = (0.5, 0.9, 0.95)
ROUTES: dict[str, tuple[int, dict[str, Any]]] = {
    "double factor": (600, {}),
    # Intervals make up for hyperparameters: those of a subset will do.
    "products": (
        1500,
        {
            "method": "cg",
            "training__subset": 200,
            "training__steps": 0,
            "variances__method": "local",
        },
    ),
}
TESTED = 6_000
DEVIATIONS = 4.0
# Deviations of about one, and means of zero.
NOISES: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "normal": lambda rng, n: rng.standard_normal(n),
    "log-normal": lambda rng, n: np.exp(rng.standard_normal(n)) - math.exp(0.5),
    "Student's t": lambda rng, n: rng.standard_t(3, n),
    "uniform": lambda rng, n: rng.uniform(-1.7, 1.7, n),
}
RNG = np.random.default_rng(1)
X = RNG.uniform(-2, 2, (80, 2))
Y = np.sin(2 * X[:, 0]) + 0.1 * RNG.standard_exponential(80)
NEW = RNG.uniform(-2, 2, (15, 2))
QUICK: dict[str, Any] = {"training__subset_iterations": 5}


def scored(noise: str, route: str) -> Scores:
    rows, options = ROUTES[route]
    rng = np.random.default_rng(0)
    points = rng.uniform(-2, 2, (rows + TESTED, 2))
    values = np.sin(2 * points[:, 0]) + points[:, 1] + 0.3 * NOISES[noise](rng, len(points))
    model = ExactGP(training__subset_iterations=15, **options).fit(points[:rows], values[:rows])
    assert model.report.route == route
    return model.fitted.scores(values[rows:], model.predict(points[rows:], return_std=True))


def allowed(level: float, rows: int) -> float:
    """Of what an interval holds: the chance of the test, that of the quantiles, and two rows for finiteness.

    A share of TESTED values is binomial, and what lies between two of `rows` ordered residuals a beta number;
    both have the variance level (1 - level) over the size. Either end leaves at most one row too many inside.
    """
    return DEVIATIONS * math.sqrt(level * (1 - level) * (1 / TESTED + 1 / rows)) + 2 / (rows + 1)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("noise", NOISES)
def test_intervals_hold_what_they_say_and_normal_ones_do_not_where_the_noise_is_not(
    noise: str, route: str
) -> None:
    """One test, so that each model is fitted once, whoever shares tests out."""
    scores, rows = scored(noise, route), ROUTES[route][0]
    assert scores.interval_coverage is not None
    for level in LEVELS:
        assert scores.interval_coverage[level] == pytest.approx(level, abs=allowed(level, rows))
    if route == "products" and noise != "normal":
        assert scores.coverage is not None
        assert abs(scores.coverage[0.5] - 0.5) > allowed(0.5, rows)


def test_an_interval_is_made_of_quantiles_and_deviations() -> None:
    model = ExactGP(**QUICK).fit(X, Y)
    left_out, predicted = model.leave_one_out(), model.predict(NEW, return_std=True)
    ordered = np.sort((Y - left_out.mean) / left_out.std)
    found = model.predict_interval(NEW, 0.8)  # eight of 81 are outside either end
    assert isinstance(found, PredictionInterval)
    # Residuals are y minus the mean here, and products with weights there: some last places of y apart.
    np.testing.assert_allclose(found.lower, predicted.mean + ordered[7] * predicted.std, rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.upper, predicted.mean + ordered[72] * predicted.std, rtol=0, atol=1e-9)
    # Exponential noise is skewed.
    assert (found.upper - predicted.mean).sum() > 1.1 * (predicted.mean - found.lower).sum()


def test_several_levels_and_targets() -> None:
    targets = np.stack([Y, -3 * Y, X[:, 1] + 0.1 * RNG.standard_normal(80)], axis=1)
    model = ExactGP(**QUICK).fit(X, targets)
    found = model.predict_interval(NEW, [0.5, 0.9, 0.9999])
    assert found.lower.shape == found.upper.shape == (3, 15, 3)
    for k, level in enumerate([0.5, 0.9, 0.9999]):
        one = model.predict_interval(NEW, level)
        assert one.lower.shape == (15, 3)
        np.testing.assert_array_equal(one.lower, found.lower[k])
        np.testing.assert_array_equal(one.upper, found.upper[k])
    assert (np.diff(found.lower, axis=0) <= 0).all()
    assert (np.diff(found.upper, axis=0) >= 0).all()
    # Each target has quantiles of its own: what is skewed upwards in one is so downwards in another.
    mean = model.predict(NEW).mean
    above, below = found.upper[1] - mean, mean - found.lower[1]
    assert (above[:, 0] > below[:, 0]).all()
    assert (above[:, 1] < below[:, 1]).all()
    assert ExactGP(**QUICK).fit(X, Y[:, None]).predict_interval(NEW).lower.shape == (15, 1)
    assert ExactGP(**QUICK).fit(X, Y).predict_interval(NEW, [0.9]).upper.shape == (1, 15)


def test_the_estimator_has_it() -> None:
    regressor = GPRegressor().set_params(**QUICK).fit(X, Y)
    for one, other in zip(
        regressor.predict_interval(NEW, coverage=0.7),
        regressor.model_.predict_interval(NEW, 0.7),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)
    assert regressor.scores(X, Y).interval_coverage is not None


@pytest.mark.parametrize("route", ROUTES)
def test_known_noise_of_rows_and_of_new_targets(route: str) -> None:
    rows, tested = 600, 5000
    rng = np.random.default_rng(3)
    points = rng.uniform(-2, 2, (rows + tested, 2))
    noise = np.where(points[:, 1] > 0, 0.5, 0.01) ** 2
    values = np.sin(points[:, 0]) + np.sqrt(noise) * rng.uniform(-1.732, 1.732, len(points))
    model = ExactGP(**QUICK, **ROUTES[route][1]).fit(points[:rows], values[:rows], noise[:rows])
    predicted = model.predict(points[rows:], return_std=True)
    lower, upper = model.predict_interval(points[rows:], 0.9, noise=noise[rows:])
    inside = ((lower <= values[rows:]) & (values[rows:] <= upper)).mean()
    error = math.sqrt(0.09 * (1 / rows + 1 / tested))
    assert inside == pytest.approx(0.9, abs=DEVIATIONS * error + 2 / (rows + 1))
    # Without it, of the function; residuals of uniform noise are within two deviations.
    function = model.predict_interval(points[rows:], 0.9)
    assert predicted.std is not None
    assert ((function.upper - function.lower) < 4 * predicted.std).all()
    same = model.predict_interval(points[rows:], 0.9, noise=0.0)
    np.testing.assert_array_equal(same.lower, function.lower)


def test_noise_is_for_models_that_were_given_some() -> None:
    with pytest.raises(InputError, match=r"`noise` must be None .* Leave it out"):
        ExactGP(**QUICK).fit(X, Y).predict_interval(NEW, noise=0.1)


@pytest.mark.parametrize("coverage", [0.0, 1.0, 90, -0.5, math.nan, [0.5, 95.0]])
def test_a_level_is_a_probability(coverage: Any) -> None:
    model = ExactGP(**QUICK).fit(X, Y)
    with pytest.raises(InputError, match=r"`coverage` must be between 0 and 1; got .* For 95 % write 0\.95"):
        model.predict_interval(NEW, coverage)


@pytest.mark.parametrize("coverage", [[], [[0.5]], "0.9", None, True])
def test_a_level_is_a_number_or_some(coverage: Any) -> None:
    model = ExactGP(**QUICK).fit(X, Y)
    with pytest.raises(InputError, match="`coverage` must"):
        model.predict_interval(NEW, coverage)


def test_more_rows_bring_more_residuals() -> None:
    model = ExactGP(**QUICK).fit(X[:40], Y[:40])
    before = model.posterior.residuals
    updated = model.update(X[40:], Y[40:])
    assert (len(before.ordered), len(updated.posterior.residuals.ordered)) == (40, 80)
    left_out = updated.leave_one_out()
    np.testing.assert_allclose(
        updated.posterior.residuals.ordered[:, 0], np.sort((Y - left_out.mean) / left_out.std), atol=1e-9
    )


def test_a_solve_that_is_not_exact_enough_widens_them() -> None:
    model = ExactGP(**QUICK).fit(X, Y)
    exact: Any = model.posterior
    accuracy = replace(exact.accuracy, trusted=False, floor=(1.0,))
    unsolved = replace(model.fitted, posterior=replace(exact, accuracy=accuracy))
    other = ExactGP.restored(model.settings, unsolved)
    narrow, std = model.predict_interval(NEW), model.predict(NEW, return_std=True).std
    with pytest.warns(UnsolvedWarning):
        wide = other.predict_interval(NEW)
    with pytest.warns(UnsolvedWarning):
        wider_std = other.predict(NEW, return_std=True).std
    assert std is not None
    assert wider_std is not None
    assert (wider_std > 1.5 * std).all()
    np.testing.assert_allclose(
        (wide.upper - wide.lower) / (narrow.upper - narrow.lower), wider_std / std, rtol=1e-9
    )


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    "targets", [[2.0], [1.0, 3.0], [5.0] * 6, [0.0] * 6, [0.0, 0.0, 0.0, 0.0, 0.0, 1e-9]], ids=str
)
def test_few_rows_and_constant_targets(targets: list[float], route: str) -> None:
    points = np.linspace(0, 1, len(targets))[:, None]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*one value")  # in all of one row
        model = ExactGP(**QUICK, **ROUTES[route][1]).fit(points, targets)
    lower, upper = model.predict_interval([[0.3], [7.0]], [1e-9, 0.5, 0.99, 0.999999])
    assert np.isfinite([lower, upper]).all()
    assert (lower <= upper).all()
    assert (np.diff(lower, axis=0) <= 0).all()
    assert (np.diff(upper, axis=0) >= 0).all()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(st.floats(-1e3, 1e3), st.floats(-1e6, 1e6)), min_size=2, max_size=12),
    st.lists(st.floats(0, 1, exclude_min=True, exclude_max=True), min_size=1, max_size=4),
)
def test_intervals_are_ordered_and_finite(rows: list[tuple[float, float]], levels: list[float]) -> None:
    points, values = np.array(rows).T
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*one value")
        model = ExactGP(training__subset_iterations=2).fit(points[:, None], values)
    lower, upper = model.predict_interval(np.array([[-1e4], [0.0], [points[0]]]), sorted(levels))
    assert np.isfinite([lower, upper]).all()
    assert (lower <= upper).all()
    assert (np.diff(lower, axis=0) <= 0).all()
    assert (np.diff(upper, axis=0) >= 0).all()
