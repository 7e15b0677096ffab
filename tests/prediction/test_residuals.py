"""Residuals of rows left out are those of refits, and intervals follow from their order."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from contracts.textbook import Textbook, at, points, targets
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from halfgp.kernels import RBF, Matern
from halfgp.preconditioners import PivotedCholesky
from halfgp.prediction import Conditioning, condition
from halfgp.prediction.residuals import LeftOut, Residuals
from halfgp.problem import Problem

N = 60
X, Y = points(N), targets(points(N), q=2)
HYPERPARAMETERS = at(1.5 * Matern(1.5, lengthscale=0.9), noise=0.1, mean=[0.1, -0.2])
FIXED = torch.linspace(0.05, 0.5, N, dtype=torch.float64)


def by_refits(hyperparameters, x, y, fixed=None):
    """Residuals (n, q) in deviations, of models without each row."""
    found = torch.empty_like(y)
    for i in range(len(x)):
        rest = torch.arange(len(x)) != i
        book = Textbook(hyperparameters, x[rest], y[rest], None if fixed is None else fixed[rest])
        variance = book.covariance(x[i : i + 1])[0, 0] + (0.1 if fixed is None else fixed[i])
        found[i] = (y[i] - book.mean(x[i : i + 1])[0]) / variance.sqrt()
    return found.sort(dim=0).values


def conditioned(x, y, way="cholesky", fixed=None, calibrate=False):
    hyperparameters = HYPERPARAMETERS if fixed is None else at(HYPERPARAMETERS.kernel, None, [0.1])
    how = Conditioning("cg", 1e-9, 1000, PivotedCholesky(), way, len(x), 0, calibrate=calibrate)
    return hyperparameters, condition(Problem(x, y, fixed), hyperparameters, how)


@pytest.mark.parametrize("way", ["cholesky", "local"])
@pytest.mark.parametrize("fixed", [None, FIXED], ids=["learned", "fixed"])
def test_they_are_those_of_refits(way, fixed):
    """With all other rows for neighbours, local ones too; weights are solved for to 1e-9."""
    y = Y if fixed is None else Y[:, :1]
    hyperparameters, posterior = conditioned(X, y, way, fixed)
    torch.testing.assert_close(
        posterior.residuals.ordered, by_refits(hyperparameters, X, y, fixed), rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize("way", ["cholesky", "local"])
def test_calibration_scales_them_and_changes_no_interval(way):
    _, plain = conditioned(X, Y * torch.tensor([1.0, 3.0]), way)
    _, scaled = conditioned(X, Y * torch.tensor([1.0, 3.0]), way, calibrate=True)
    assert not torch.equal(scaled.units, plain.units)
    deviations = [posterior.units * posterior.scale**0.5 for posterior in (plain, scaled)]
    torch.testing.assert_close(
        plain.residuals.ordered * deviations[0], scaled.residuals.ordered * deviations[1], rtol=1e-9, atol=0
    )


@pytest.mark.parametrize("noise", [1e-1, 1e-4])
def test_variances_that_are_too_large_do_not_make_residuals_larger(noise, monkeypatch):
    """Near rows know less than all. A few exact variances tell by how much, whatever the targets are."""
    x = points(900, 5)
    y = 10.0 * x[:, :1].sign()  # nothing that this kernel would expect
    hyperparameters = at(1.0 * RBF(2.0), noise=noise, floor=1e-9)
    monkeypatch.setattr("halfgp.prediction.conditioning.routes", lambda *_: ("products",))
    how = Conditioning("cg", 1e-6, 1000, None, "local", 8, 0)
    found = condition(Problem(x, y), hyperparameters, how)
    local = found.variances.left_out(torch.arange(900)).variances
    inverse = torch.linalg.inv(Textbook(hyperparameters, x, y).matrix)
    exact = (inverse @ y)[:, 0] / inverse.diagonal() / local.sqrt()
    assert float((local * inverse.diagonal()).mean()) > 1.1
    # Four standard errors of a mean over eight rows, a hundredth of their solves, and that rows differ.
    shares = 1.0 / (local * inverse.diagonal())
    spread = float(shares.std() / shares.mean())
    ratio = float(found.residuals.ordered.abs().median() / exact.abs().median())
    assert abs(ratio - 1.0) < 4.0 * spread / 8**0.5 + 0.01 + spread


def test_no_residual_is_less_than_the_noise_leaves():
    ones = torch.ones(4, dtype=torch.float64)
    weights = torch.tensor([[1.0], [-1.0], [2.0], [0.5]], dtype=torch.float64)
    found = LeftOut(torch.arange(4), 2.0 * ones, 0.3 * ones, weights, share=0.1).residuals(weights)
    torch.testing.assert_close(found, 0.3 * weights, rtol=0, atol=0)


def residuals_of(values):
    return Residuals(torch.tensor(values, dtype=torch.float64)[:, None].sort(dim=0).values)


def ends(residuals, level):
    return tuple(float(end) for end in residuals.interval(level))


@pytest.mark.parametrize(
    ("m", "level", "outside"), [(19, 0.9, 1), (39, 0.95, 1), (39, 0.9, 2), (100, 0.5, 25), (101, 0.5, 25)]
)
def test_so_many_are_outside_either_end_that_one_more_is_with_that_probability(m, level, outside):
    """(m + 1) (1 - level) / 2 of m, rounded down, though no level is a binary number."""
    lower, upper = ends(residuals_of(list(range(m))), level)
    assert (lower, upper) == (outside - 1, m - outside)


@pytest.mark.parametrize("level", [0.96, 0.999, 1 - 2**-53])
@pytest.mark.parametrize("size", [0.1, 1.0, 30.0])
def test_beyond_the_outermost_residual_tails_go_on_as_a_normals_would(level, size):
    values = [size * (k - 19) / 10 for k in range(39)]
    lower, upper = ends(residuals_of(values), level)
    normal, there = stats.norm.isf((1 - level) / 2), stats.norm.isf(1 / 40)
    assert upper == pytest.approx(max(normal, max(values) + normal - there), rel=1e-12)
    assert lower == pytest.approx(min(-normal, min(values) - normal + there), rel=1e-12)
    assert upper >= max(values)
    assert lower <= min(values)


@given(
    st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=50),
    st.lists(st.floats(0, 1, exclude_min=True, exclude_max=True), min_size=2, max_size=6),
)
def test_intervals_are_ordered_finite_and_nested(values, levels):
    found = [ends(residuals_of(values), level) for level in sorted(levels)]
    for lower, upper in found:
        assert -float("inf") < lower <= upper < float("inf")
    for (lower, upper), (wider_lower, wider_upper) in pairwise(found):
        assert wider_lower <= lower
        assert upper <= wider_upper


def test_intervals_are_no_narrower_than_errors_are_wide():
    """Of residuals of next to nothing and some large ones, as of targets that are a sum of two features."""
    m, error = 1000, 0.01
    generator = torch.Generator().manual_seed(0)
    weights = 1e-4 * torch.randn(m, 1, generator=generator, dtype=torch.float64)
    weights[::10] *= 1e4
    rows = LeftOut(torch.arange(m), *torch.ones(2, m, dtype=torch.float64))
    exact = Residuals.of(weights, rows, torch.zeros(m, 1))
    assert torch.equal(exact.ordered, weights.sort(dim=0).values)
    lower, upper = Residuals.of(weights, rows, torch.full((m, 1), error)).interval(0.5)
    assert lower < -0.9 * error
    assert upper > 0.9 * error
    wide, narrow = (
        Residuals.of(100.0 * weights.sign(), rows, torch.full((m, 1), e)).interval(0.9) for e in (error, 0.0)
    )
    torch.testing.assert_close(wide, narrow, rtol=2e-4, atol=0.0)  # beside which errors are small
