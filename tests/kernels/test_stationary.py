"""Stationary kernels are their formulas, and vanish where they say."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from halfgp import RBF, Linear, Matern, Periodic, RationalQuadratic, White
from halfgp.errors import InputError
from halfgp.kernels import Kernel
from halfgp.precision import BFLOAT16, DOUBLE, HALF, SINGLE, Format

X = torch.randn(7, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = torch.randn(5, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
LENGTHSCALE = [0.5, 1.0, 2.0]
FORMULAS = {
    "rbf": (RBF(LENGTHSCALE), lambda r: np.exp(-(r**2) / 2)),
    "matern12": (Matern(0.5, LENGTHSCALE), lambda r: np.exp(-r)),
    "matern32": (Matern(1.5, LENGTHSCALE), lambda r: (1 + math.sqrt(3) * r) * np.exp(-math.sqrt(3) * r)),
    "matern52": (
        Matern(2.5, LENGTHSCALE),
        lambda r: (1 + math.sqrt(5) * r + 5 * r**2 / 3) * np.exp(-math.sqrt(5) * r),
    ),
    "rational_quadratic": (RationalQuadratic(0.7, LENGTHSCALE), lambda r: (1 + r**2 / 1.4) ** -0.7),
}
PROFILES: list[Kernel] = [RBF(), Matern(0.5), Matern(1.5), Matern(2.5), RationalQuadratic(4.0)]


@pytest.mark.parametrize("name", FORMULAS)
def test_covariances_are_the_formula(name: str) -> None:
    kernel, formula = FORMULAS[name]
    r = np.sqrt((((X[:, None] - Y[None]) / torch.tensor(LENGTHSCALE)) ** 2).sum(-1).numpy())
    np.testing.assert_allclose(kernel(X, Y).numpy(), formula(r), rtol=1e-13)
    assert torch.equal(kernel.diagonal(X), torch.ones(7, dtype=torch.float64))


def test_a_vector_of_equal_lengthscales_is_a_scalar_one() -> None:
    assert torch.equal(RBF([0.5] * 3)(X, Y), RBF(0.5)(X, Y))


def test_active_dims_select_columns_in_their_order() -> None:
    assert torch.equal(RBF([0.5, 2.0], active_dims=[2, 0])(X, Y), RBF([0.5, 2.0])(X[:, [2, 0]], Y[:, [2, 0]]))


def test_a_large_alpha_is_the_rbf() -> None:
    torch.testing.assert_close(RationalQuadratic(1e9)(X, Y), RBF()(X, Y), rtol=1e-7, atol=0.0)


@pytest.mark.parametrize("kernel", PROFILES, ids=repr)
@pytest.mark.parametrize("fmt", [HALF, BFLOAT16, SINGLE], ids=lambda f: f.name)
def test_the_covariance_is_zero_in_the_format_just_beyond_the_support_only(
    kernel: Kernel, fmt: Format
) -> None:
    edge = kernel.support(fmt)
    points = torch.stack([edge * (1 - 1e-6), edge * (1 + 1e-6)]).reshape(2, 1)
    inside, outside = kernel(torch.zeros(1, 1, dtype=torch.float64), points)[0].tolist()
    assert outside < 2.0**fmt.vanishing_exponent < inside


@pytest.mark.parametrize("kernel", PROFILES, ids=repr)
def test_the_support_in_double_is_where_the_logarithm_says(kernel: Kernel) -> None:
    # 2^-1075 is zero in double, so that the profile itself cannot tell.
    r = kernel.support(DOUBLE).item()
    a3, a5 = math.sqrt(3) * r, math.sqrt(5) * r
    logarithm = {
        "RBF": -r * r / 2,
        "Matern(nu=0.5": -r,
        "Matern(nu=1.5": math.log1p(a3) - a3,
        "Matern(nu=2.5": math.log1p(a5 + a5 * a5 / 3) - a5,
        "RationalQuadratic": -4.0 * math.log1p(r * r / 8.0),
    }
    (value,) = [v for start, v in logarithm.items() if repr(kernel).startswith(start)]
    assert value == pytest.approx(-1075 * math.log(2), rel=1e-12)


@given(scale=st.floats(1e-3, 1e3), lengthscale=st.floats(1e-3, 1e3))
def test_support_is_proportional_to_the_lengthscale_and_ignores_the_outputscale(
    scale: float, lengthscale: float
) -> None:
    kernel = scale * Matern(1.5, [lengthscale, 1.0])
    unit = Matern(1.5).support(HALF).item()
    assert kernel.support(HALF).tolist() == pytest.approx([lengthscale * unit, unit])


def test_a_heavy_tail_never_vanishes_in_double() -> None:
    assert RationalQuadratic(0.1).support(DOUBLE).item() == math.inf


@pytest.mark.parametrize("kernel", [Linear(), White(), RBF() + Matern(), RBF() * Linear()], ids=repr)
def test_support_needs_a_stationary_kernel(kernel: Kernel) -> None:
    with pytest.raises(InputError, match="`support` needs a stationary kernel"):
        kernel.support(HALF)


@pytest.mark.parametrize("nu", [2, 0.7, -0.5, 21.5])
def test_the_smoothness_is_a_half_integer(nu: float) -> None:
    with pytest.raises(InputError, match=r"`nu` must be 0\.5, 1\.5, 2\.5 or another half integer"):
        Matern(nu=nu)


@pytest.mark.parametrize("kernel", [*PROFILES, Periodic()], ids=repr)
def test_gradients_at_coincident_points_are_finite(kernel: Kernel) -> None:
    leaf = kernel.detached(requires_grad=True)
    x = torch.zeros(3, 2, dtype=torch.float64, requires_grad=True)
    leaf(x, x).sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, torch.zeros_like(x))
    gradients = [p.value.grad for _, p in leaf.named_parameters()]
    assert all(g is None or bool((g == 0).all()) for g in gradients)
