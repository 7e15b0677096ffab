"""The reach of kernels in a format, against kernels evaluated and cast to that dtype."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from halfgp import RBF, Constant, Linear, Matern, Periodic, RationalQuadratic, White
from halfgp.analysis import largest_distance, negligible_share, vanishing_share
from halfgp.analysis.matrices import FORMATS
from halfgp.analysis.support import pair_covariances
from halfgp.errors import InputError
from halfgp.kernels import Kernel

NARROW = ("half", "bfloat16", "single")  # double's smallest number is below what double can test
lengths = st.floats(1e-3, 1e3)
outputs = st.floats(1e-3, 1e3)
MAKERS = {
    "rbf": lambda length: RBF(lengthscale=length),
    "matern12": lambda length: Matern(0.5, lengthscale=length),
    "matern32": lambda length: Matern(1.5, lengthscale=length),
    "matern52": lambda length: Matern(2.5, lengthscale=length),
    "rational_quadratic": lambda length: RationalQuadratic(5.0, lengthscale=length),
}


def at(kernel: Kernel, distance: float, fmt: str) -> float:
    """The kernel at that distance, evaluated in double and cast to the format's dtype."""
    zero, there = (torch.tensor([[x]], dtype=torch.float64) for x in (0.0, distance))
    return float(kernel(zero, there).to(FORMATS[fmt].dtype))


@pytest.mark.parametrize("fmt", NARROW)
@pytest.mark.parametrize("name", MAKERS)
@given(length=lengths, output=outputs)
def test_the_kernel_is_zero_from_there_on_and_not_before(name, fmt, length, output):
    kernel = output * MAKERS[name](length)
    distance = largest_distance(kernel, fmt)
    # Not nearer: torch casts double to 16 bits by way of single, which takes what is near a tie for it; at
    # bfloat16's, 2^-134, single has 15 bits left.
    assert at(kernel, distance * (1 + 1e-4), fmt) == 0.0
    assert at(kernel, distance * (1 - 1e-4), fmt) == FORMATS[fmt].smallest_subnormal


@given(alpha=st.floats(0.3, 50.0), length=lengths)
def test_rational_quadratics_of_any_alpha(alpha, length):
    kernel = RationalQuadratic(alpha, lengthscale=length)
    distance = largest_distance(kernel, "half")
    assert at(kernel, distance * (1 + 1e-4), "half") == 0.0
    assert at(kernel, distance * (1 - 1e-4), "half") > 0.0


@given(length=st.floats(1e-3, 1.0), period=lengths, output=outputs)
def test_periodic_kernels_vanish_within_half_a_period_or_nowhere(length, period, output):
    kernel = output * Periodic(period=period, lengthscale=length)
    distance = largest_distance(kernel, "half")
    if math.isinf(distance):
        assert at(kernel, period / 2, "half") > 0.0
    else:
        assert distance <= period / 2
        assert at(kernel, distance * (1 - 1e-4), "half") > 0.0
        if distance < 0.499 * period:  # at half a period the sine is flat: nothing lies beyond
            assert at(kernel, distance * (1 + 1e-4), "half") == 0.0


@pytest.mark.parametrize("name", MAKERS)
def test_double_by_longer_numbers(name):
    distance = largest_distance(MAKERS[name](1.0), "double")
    r = np.longdouble(distance)
    a3, a5 = np.sqrt(np.longdouble(3)) * r, np.sqrt(np.longdouble(5)) * r
    value = {
        "rbf": lambda: np.exp(-r * r / 2),
        "matern12": lambda: np.exp(-r),
        "matern32": lambda: (1 + a3) * np.exp(-a3),
        "matern52": lambda: (1 + a5 + a5 * a5 / 3) * np.exp(-a5),
        "rational_quadratic": lambda: (1 + r * r / 10) ** -5,
    }[name]()
    if np.finfo(np.longdouble).minexp > -1100:
        pytest.skip("no wider numbers here")
    assert float(np.log2(value)) == pytest.approx(-1075, rel=1e-12)


@pytest.mark.parametrize("name", MAKERS)
def test_without_an_outputscale_it_is_the_kernels_own_support(name):
    kernel = MAKERS[name](0.7)
    for fmt in FORMATS.values():
        assert largest_distance(kernel, fmt) == pytest.approx(float(kernel.support(fmt)), rel=1e-13)


@pytest.mark.parametrize("name", MAKERS)
@given(length=lengths, factor=st.floats(1.01, 10.0))
def test_reach_grows_with_lengthscale_outputscale_and_range(name, length, factor):
    kernel = MAKERS[name](length)
    reach = largest_distance(kernel, "half")
    assert largest_distance(MAKERS[name](factor * length), "half") == pytest.approx(factor * reach, rel=1e-12)
    assert largest_distance(factor * kernel, "half") > reach
    assert reach < largest_distance(kernel, "bfloat16") < largest_distance(kernel, "single")
    assert largest_distance(kernel, "single") < largest_distance(kernel, "double")


def test_the_order_of_the_families():
    reach = [largest_distance(make(1.0), "half") for make in MAKERS.values()]
    rbf, matern12, matern32, matern52, rational = reach
    assert rbf < matern52 < matern32 < matern12 < rational


def test_figures_of_the_errata():
    half = 25 * math.log(2)  # -log 2^-25
    assert largest_distance(Matern(0.5, lengthscale=0.75 / half), "half") == pytest.approx(0.75)
    assert 0.75 / half == pytest.approx(0.043, abs=5e-4)
    assert largest_distance(RBF(), "half") == pytest.approx(math.sqrt(2 * half))


def test_the_longest_axis_counts():
    assert largest_distance(RBF(lengthscale=[1.0, 3.0]), "half") == 3 * largest_distance(RBF(), "half")


def test_a_variance_that_vanishes_reaches_nowhere():
    assert largest_distance(2.0**-25 * RBF(), "half") == 0.0
    assert largest_distance(2.0**-24 * RBF(), "half") > 0.0


def test_a_heavy_tail_outreaches_double():
    assert largest_distance(RationalQuadratic(0.1), "double") == math.inf


@pytest.mark.parametrize("kernel", [Linear(), RBF() + Matern(), RBF() * RBF(), White(), Constant()])
def test_kernels_without_a_single_reach_are_refused(kernel):
    with pytest.raises(InputError, match="one by one"):
        largest_distance(kernel, "half")


def test_other_mistakes_are_named():
    with pytest.raises(InputError, match='"half", "bfloat16"'):
        largest_distance(RBF(), "quarter")
    with pytest.raises(InputError, match="each feature alone"):
        largest_distance(Periodic(period=[1.0, 2.0]), "half")
    with pytest.raises(InputError, match="two rows"):
        vanishing_share(RBF(), torch.zeros(1, 2), "half")
    with pytest.raises(InputError, match="`pairs`"):
        vanishing_share(RBF(), torch.zeros(4, 2), "half", pairs=0)
    with pytest.raises(InputError, match="finite"):
        vanishing_share(RBF(), torch.tensor([[0.0], [math.nan]]), "half")


def points(n: int, d: int = 2, spread: float = 3.0) -> torch.Tensor:
    return spread * torch.randn(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("kernel", [RBF(), 0.01 * Matern(0.5, 0.3), RBF() * Periodic() + 1e-6 * Linear()])
@pytest.mark.parametrize("fmt", NARROW)
def test_shares_of_all_pairs_are_counts_of_entries(kernel, fmt):
    x = points(60)
    k = kernel(x, x)
    off = ~torch.eye(60, dtype=torch.bool)
    vanishing = vanishing_share(kernel, x, fmt)
    assert vanishing.standard_error == 0.0
    assert vanishing.pairs == 60 * 59 // 2
    assert vanishing.share == float((k.to(FORMATS[fmt].dtype) == 0)[off].double().mean())
    variance = float(kernel.diagonal(x).max())
    negligible = negligible_share(kernel, x, fmt)
    assert negligible.share == float((k.abs() < FORMATS[fmt].eps * variance)[off].double().mean())


@pytest.mark.parametrize("seed", range(5))
def test_a_draw_of_pairs_is_within_its_error(seed):
    x = points(300)
    every = vanishing_share(RBF(), x, "half")
    drawn = vanishing_share(RBF(), x, "half", pairs=4000, seed=seed)
    assert every.pairs == 300 * 299 // 2
    assert drawn.pairs == 4000
    assert 0.2 < every.share < 0.8  # so that the binomial error means something
    assert drawn.standard_error == pytest.approx(math.sqrt(every.share * (1 - every.share) / 4000), rel=0.05)
    assert abs(drawn.share - every.share) < 4 * drawn.standard_error
    assert drawn == vanishing_share(RBF(), x, "half", pairs=4000, seed=seed)


def test_a_draw_in_which_all_agree_is_not_certain():
    drawn = vanishing_share(RBF(), points(300, spread=0.1), "half", pairs=1000)
    assert drawn.share == 0.0
    assert 0.0 < drawn.standard_error < 0.01


def test_pairs_are_evaluated_as_blocks_are():
    kernel = 2.0 * RBF([0.5, 2.0]) + Matern(2.5) * Linear() + RationalQuadratic(0.7) + Periodic() + White(3.0)
    x, y = points(40), points(40).flip(0)
    torch.testing.assert_close(
        pair_covariances(kernel, x, y), kernel(x, y).diagonal(), rtol=1e-12, atol=1e-14
    )
    assert torch.equal(pair_covariances(White(3.0), x, y), torch.zeros(40, dtype=torch.float64))
