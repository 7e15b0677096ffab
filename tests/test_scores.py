"""Scores agree with their definitions, and nonsense is refused before a number comes out."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from halfgp.errors import InputError
from halfgp.scores import (
    Scores,
    calibration,
    coverage,
    crps,
    negative_log_likelihood,
    rmse,
    score,
    share_inside,
)

numbers = st.floats(-50, 50)
spreads = st.floats(0.01, 20)


def forecasts(
    m: int = 4000, q: int | None = None, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values drawn from the very distributions that are predicted."""
    rng = np.random.default_rng(seed)
    shape = (m,) if q is None else (m, q)
    mean, std = rng.standard_normal(shape), rng.uniform(0.2, 2.0, shape)
    return mean + std * rng.standard_normal(shape), mean, std


@given(numbers, st.floats(-12, 12), spreads)
def test_crps_is_the_integral_that_defines_it(mean: float, z: float, std: float) -> None:
    # In units of the standard deviation; beyond 15 of them from both ends the integrand is below 1e-100.
    below, _ = integrate.quad(lambda t: stats.norm.cdf(t) ** 2, -15, z, limit=200)
    above, _ = integrate.quad(lambda t: stats.norm.sf(t) ** 2, z, 15, limit=200)
    found = crps([mean + z * std], [mean], [std])
    assert found == pytest.approx(std * (below + above), rel=1e-7)


@given(numbers, numbers, spreads)
def test_nll_is_scipys_log_density(y: float, mean: float, std: float) -> None:
    wanted = -stats.norm.logpdf(y, mean, std)
    assert negative_log_likelihood([y], [mean], [std]) == pytest.approx(wanted, rel=1e-12, abs=1e-12)


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=20))
def test_errors_of_the_mean_are_numpys(pairs: list[tuple[float, float]]) -> None:
    y, mean = np.array(pairs).T
    found = score(y, mean, None)
    assert found.rmse == pytest.approx(np.sqrt(np.mean((y - mean) ** 2)), rel=1e-12)
    assert found.mae == pytest.approx(np.mean(np.abs(y - mean)), rel=1e-12)
    assert rmse(y, mean) == found.rmse
    assert found.rows == len(pairs)


@given(numbers, st.floats(1e-3, 1e3), st.floats(-1e3, 1e3))
def test_crps_has_the_units_of_the_target(z: float, scale: float, shift: float) -> None:
    # The shift costs digits: |shift| ulp(1) in the error.
    room = 1e-14 * (abs(shift) + 50 * scale)
    assert crps([shift + scale * z], [shift], [scale]) == pytest.approx(
        scale * crps([z], [0.0], [1.0]), abs=room
    )


@given(st.floats(0.01, 0.99), st.floats(-4, 4))
def test_a_value_is_inside_where_scipys_interval_says(level: float, z: float) -> None:
    low, high = stats.norm.interval(level)
    if min(abs(z - low), abs(z - high)) > 1e-9:
        assert coverage([z], [0.0], [1.0], level) == float(low <= z <= high)


def test_calibrated_forecasts_are_found_calibrated() -> None:
    y, mean, std = forecasts(20_000)
    levels = [0.1, 0.5, 0.9, 0.99]
    # Four standard deviations of a share of 20,000 draws.
    assert calibration(y, mean, std, levels) == pytest.approx(levels, abs=4 * 0.5 / math.sqrt(20_000))
    assert np.all(calibration(y, mean, 0.5 * std, levels) < levels)
    assert calibration(y, mean, std, []).shape == (0,)


def test_the_true_distribution_beats_a_narrower_a_wider_and_a_constant_one() -> None:
    y, mean, std = forecasts()
    best = score(y, mean, std)
    assert best.nll is not None
    assert best.crps is not None
    assert best.constant_nll is not None
    assert best.nll < best.constant_nll
    for factor in (0.5, 2.0):
        other = score(y, mean, factor * std)
        assert other.nll is not None
        assert other.crps is not None
        assert other.nll > best.nll
        assert other.crps > best.crps


def test_the_constant_nll_is_the_nll_with_the_rmse_as_standard_deviation() -> None:
    y, mean, std = forecasts(50)
    found = score(y, mean, std)
    constant = np.full_like(std, found.rmse)
    assert found.constant_nll == pytest.approx(negative_log_likelihood(y, mean, constant), rel=1e-12)


def test_functions_and_the_collection_agree() -> None:
    y, mean, std = forecasts(300, 3)
    found = score(y, mean, std)
    assert found.rows == 300
    assert found.nll == negative_log_likelihood(y, mean, std)
    assert found.crps == crps(y, mean, std)
    assert found.coverage == {level: coverage(y, mean, std, level) for level in (0.5, 0.8, 0.9, 0.95)}


def test_numpy_torch_and_lists_score_alike() -> None:
    y, mean, std = forecasts(40)
    wanted = score(y, mean, std)
    assert score(*(torch.from_numpy(a) for a in (y, mean, std))) == wanted
    assert score(y.tolist(), torch.from_numpy(mean), std) == wanted


def test_low_precision_is_widened_before_it_is_squared() -> None:
    y = np.array([300.0, -300.0], dtype=np.float16)
    assert score(y, np.zeros(2, dtype=np.float16), None).rmse == 300.0  # 300² overflows float16


def test_without_standard_deviations_only_the_mean_is_scored() -> None:
    found = score([1.0, 3.0], [1.0, 1.0], None)
    assert found == Scores(math.sqrt(2), 1.0, None, None, None, None, 2)
    assert str(found) == "RMSE 1.414, MAE 1; 2 rows"


def test_values_at_the_ends_of_an_interval_are_inside() -> None:
    y = np.array([0.0, 1.0, 2.0, 3.0])
    ends = (np.array([0.0, 1.5, 1.0, 0.0]), np.array([5.0, 2.0, 2.0, 2.9]))
    assert share_inside(y, *ends) == 0.5
    found = score(y, y, None, {0.9: ends})
    assert found.interval_coverage == {0.9: 0.5}
    assert "50.0 % inside 90 % intervals" in str(found)
    with pytest.raises(InputError, match="`upper` must have the shape of `y`"):
        score(y, y, None, {0.9: (ends[0], ends[1][:3])})


def test_scores_print_in_one_line_and_survive_json() -> None:
    found = score(*forecasts(1000))
    assert str(found).count("\n") == 0
    for word in ("RMSE", "NLL", "CRPS", "95 %", "1000 rows"):
        assert word in str(found)
    assert json.loads(json.dumps(found.as_dict()))["coverage"]["0.95"] == found.coverage[0.95]  # type: ignore[index]


def test_perfect_means_and_tiny_deviations_stay_numbers() -> None:
    perfect = score([1.0, 2.0], [1.0, 2.0], [0.5, 0.5])
    assert perfect.constant_nll == -math.inf
    assert perfect.crps == pytest.approx(0.5 * (2 / math.sqrt(2 * math.pi) - 1 / math.sqrt(math.pi)))
    assert crps([3.0], [1.0], [1e-310]) == 2.0  # a point forecast: the absolute error


@pytest.mark.parametrize(
    ("y", "mean", "std", "message"),
    [
        (np.ones(3), np.ones((3, 1)), None, r"`mean` must have the shape of `y`, \(3,\); got \(3, 1\)"),
        (np.ones(3), np.ones(3), np.ones(2), r"`std` must have the shape of `y`, \(3,\); got \(2,\)"),
        (np.ones(0), np.ones(0), None, r"`y` must hold at least one value; got shape \(0,\)"),
        (np.ones((3, 0)), np.ones((3, 0)), None, r"at least one value; got shape \(3, 0\)"),
        (np.float64(1), np.ones(1), None, r"`y` must have shape"),
        ([1.0, math.nan], [1.0, 1.0], None, "`y` must be finite; got nan in row 1"),
        ([1.0], [math.inf], None, "`mean` must be finite"),
        ([1.0], [1.0], [math.nan], "`std` must be finite"),
        ([1.0, 1.0], [1.0, 1.0], [1.0, 0.0], "`std` must be positive; got 0"),
        ([1.0], [1.0], [-2.0], "`std` must be positive; got -2"),
        (["a"], [1.0], None, "`y` must hold real numbers"),
    ],
)
def test_bad_forecasts_are_refused_with_the_reason(
    y: object, mean: object, std: object, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        score(y, mean, std)  # type: ignore[arg-type]


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, 95, math.nan])
def test_levels_are_probabilities(level: float) -> None:
    with pytest.raises(InputError, match=r"between 0 and 1; got .* For 95 % write 0\.95"):
        coverage([1.0], [1.0], [1.0], level)
