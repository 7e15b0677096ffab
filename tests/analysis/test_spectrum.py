"""Eigenvalues, effective dimensions and the error of rounding, against dense algebra and known results."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from halfgp import RBF, Matern
from halfgp.analysis import (
    effective_dimension,
    eigenvalues,
    entry_error_norm,
    kernel_matrix,
    largest_eigenvalue_difference,
    quantised_effective_dimension,
    rho,
    spectral_cutoff,
    spectral_norm,
)
from halfgp.errors import InputError
from halfgp.precision import HALF


def points(n: int = 150, d: int = 2, seed: int = 3) -> torch.Tensor:
    return torch.randn(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_eigenvalues_are_those_of_the_matrix():
    x = points()
    found = eigenvalues(Matern(1.5), x)
    assert torch.equal(found, found.sort(descending=True).values)
    assert float(found.sum()) == pytest.approx(150.0, rel=1e-12)
    assert float(found.square().sum()) == pytest.approx(
        float(kernel_matrix(Matern(1.5), x).square().sum()), rel=1e-12
    )


@pytest.mark.parametrize("rounding", ["entries", "inputs", "evaluation"])
def test_eigenvalues_move_by_no_more_than_the_error(rounding):
    x = points()
    bound = entry_error_norm(RBF(), x, "half", rounding=rounding)
    moved = (eigenvalues(RBF(), x, "half", rounding=rounding) - eigenvalues(RBF(), x)).abs().max()
    assert 0 < float(moved) <= 1.02 * bound  # Weyl; the norm is right to about a percent
    difference = largest_eigenvalue_difference(RBF(), x, "half", rounding=rounding)
    assert 0 < difference <= 1.02 * bound / float(eigenvalues(RBF(), x)[0])


def test_the_rounded_matrix_turns_indefinite_down_to_about_the_error():
    x = points(300, 1)
    least = float(eigenvalues(RBF(), x, "half")[-1])
    bound = entry_error_norm(RBF(), x, "half")
    assert -1.02 * bound <= least < -0.5 * bound


@pytest.mark.parametrize("fmt", ["half", "bfloat16", "single"])
def test_the_norm_of_rounding_errors_is_what_random_matrices_have(fmt):
    x = points(600, 3)
    error = kernel_matrix(Matern(1.5), x, fmt) - kernel_matrix(Matern(1.5), x)
    exact = float(torch.linalg.eigvalsh(error).abs().max())
    found = entry_error_norm(Matern(1.5), x, fmt)
    assert 0.98 * exact <= found <= (1 + 1e-6) * exact  # its basis is held in single
    assert exact == pytest.approx(2 * math.sqrt(600) * float(error.square().mean().sqrt()), rel=0.3)


def test_bfloat16_errs_eight_times_as_much_as_half():
    x = points(400, 3)
    ratio = entry_error_norm(Matern(1.5), x, "bfloat16") / entry_error_norm(Matern(1.5), x, "half")
    assert ratio == pytest.approx(8, rel=0.2)


def test_rho_is_in_units_of_the_noise():
    x = points()
    assert rho(RBF(), x, 0.1, "half") == pytest.approx(10 * entry_error_norm(RBF(), x, HALF))
    # Both scale with the outputscale: a power of two changes no rounding but of subnormal numbers.
    assert rho(8.0 * RBF(), x, 0.8, "half") == pytest.approx(rho(RBF(), x, 0.1, "half"), rel=1e-3)


@pytest.mark.parametrize("n", [1, 2, 7])
def test_norms_of_tiny_matrices(n):
    a = torch.randn(n, n, dtype=torch.float64, generator=torch.Generator().manual_seed(n))
    a = a + a.T
    assert spectral_norm(a) == pytest.approx(float(torch.linalg.eigvalsh(a).abs().max()), rel=1e-6)
    assert spectral_norm(torch.zeros(n, n)) == 0.0


spectra = st.lists(st.floats(1e-6, 1e4), min_size=1, max_size=30).map(
    lambda values: torch.tensor(sorted(values, reverse=True), dtype=torch.float64)
)


@given(values=spectra, noise=st.floats(1e-4, 1e2))
def test_effective_dimension_is_the_trace_and_falls_with_the_noise(values, noise):
    found = effective_dimension(values, noise)
    trace = torch.diag(values) @ torch.linalg.inv(torch.diag(values + noise))
    assert found == pytest.approx(float(trace.trace()), rel=1e-9)
    assert 0 < found < len(values)
    assert effective_dimension(values, 2 * noise) < found


def test_eigenvalues_below_zero_count_as_zero_or_as_they_are():
    values = torch.tensor([2.0, 1.0, -0.05], dtype=torch.float64)
    assert effective_dimension(values, 0.1) == pytest.approx(2 / 2.1 + 1 / 1.1)
    assert effective_dimension(values, 0.1, negative="keep") == pytest.approx(2 / 2.1 + 1 / 1.1 - 0.05 / 0.05)
    with pytest.raises(InputError, match="not positive definite"):
        effective_dimension(values, 0.05, negative="keep")


@given(values=spectra, noise=st.floats(1e-2, 1e2), fraction=st.floats(0.0, 0.99), seed=st.integers(0, 10**6))
@example(torch.tensor([3.0, 1.0], dtype=torch.float64), 1.0, 5e-324, 0)
def test_quantised_eigenvalues_have_a_smaller_effective_dimension(values, noise, fraction, seed):
    step = fraction * (float(values.min()) + noise)
    found = quantised_effective_dimension(values, noise, step, samples=400, seed=seed)
    assert found.effective_dimension == pytest.approx(effective_dimension(values, noise))
    # Jensen, to the rounding of a sum.
    assert found.exact <= found.effective_dimension + 1e-12 * len(values)
    # Near the pole at -noise the distribution is skewed, and so is the error of a mean of 400.
    assert abs(found.mean - found.exact) <= 6 * found.standard_error + 1e-9 * len(values)


def test_quantised_effective_dimension_falls_with_the_step():
    values = torch.logspace(1, -3, 200, dtype=torch.float64)
    steps = [0.0, 0.01, 0.03, 0.06, 0.09]
    found = [quantised_effective_dimension(values, 0.1, step).exact for step in steps]
    assert found == sorted(found, reverse=True)
    assert found[0] == pytest.approx(effective_dimension(values, 0.1), rel=1e-14)
    assert quantised_effective_dimension(values, 0.1, 1e-9).exact == pytest.approx(found[0], rel=1e-12)
    clear = quantised_effective_dimension(values, 0.1, 0.09, samples=2000)
    assert clear.mean + 10 * clear.standard_error < clear.effective_dimension


def test_the_expectation_is_its_integral():
    scipy_integrate = pytest.importorskip("scipy.integrate")
    values, noise, step = torch.tensor([0.5, 0.02], dtype=torch.float64), 0.1, 0.09
    expected = sum(
        scipy_integrate.quad(lambda x: x / (x + noise), a - step, a + step)[0] / (2 * step)
        for a in values.tolist()
    )
    assert quantised_effective_dimension(values, noise, step).exact == pytest.approx(expected, rel=1e-10)


def test_the_cutoff_of_an_rbf_grows_as_the_logarithm_of_the_round_off():
    values = eigenvalues(RBF(0.5), points(300, 1))
    cutoffs = [spectral_cutoff(values, 2.0**-digits) for digits in (10, 20, 30, 40)]
    growth = [b - a for a, b in pairwise(cutoffs)]
    assert all(0 < step <= cutoffs[0] for step in growth)  # at most so many for every ten bits
    assert spectral_cutoff(values, "half") == spectral_cutoff(values, 2.0**-11)
    assert spectral_cutoff(values, "bfloat16") < spectral_cutoff(values, "half")
    assert spectral_cutoff(torch.ones(5), HALF) == 5


def test_mistakes_are_named():
    values = torch.tensor([1.0, 0.1], dtype=torch.float64)
    for noise in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(InputError, match="`noise`"):
            effective_dimension(values, noise)
        with pytest.raises(InputError, match="`noise`"):
            rho(RBF(), points(5), noise, "half")
        with pytest.raises(InputError, match="`noise`"):
            quantised_effective_dimension(values, noise, 0.01)
    for step in (-0.1, 0.2, math.nan):
        with pytest.raises(InputError, match="`step`"):
            quantised_effective_dimension(values, 0.1, step)
    with pytest.raises(InputError, match="`samples`"):
        quantised_effective_dimension(values, 0.1, 0.01, samples=1)
    with pytest.raises(InputError, match="`negative`"):
        effective_dimension(values, 0.1, negative="clip")  # type: ignore[arg-type]
    for delta in (0.0, 1.0, math.nan):
        with pytest.raises(InputError, match="`fmt`"):
            spectral_cutoff(values, delta)
