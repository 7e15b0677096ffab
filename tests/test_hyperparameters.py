from __future__ import annotations

import math

import pytest
import torch
from contracts.textbook import KERNELS, at
from hypothesis import given
from hypothesis import strategies as st

from halfgp.errors import InputError
from halfgp.hyperparameters import Coordinates, Hyperparameters, kernel_by_name
from halfgp.kernels import RBF, Matern, RationalQuadratic
from halfgp.parameters import Parameter

BOUNDED = Hyperparameters(
    RBF(Parameter(torch.tensor([0.5, 0.9], dtype=torch.float64), 0.1, 1.0)),
    Parameter(torch.tensor(0.3, dtype=torch.float64), 1e-4, name="noise"),
    Parameter(torch.tensor([0.4, -2.0], dtype=torch.float64), -math.inf, name="mean"),
)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("softplus", [False, True])
def test_a_point_comes_back_from_its_vector(name, softplus):
    hyperparameters = at(KERNELS[name], noise=0.2, mean=[0.3, -0.1])
    coordinates = Coordinates(hyperparameters, softplus=softplus)
    back = coordinates.hyperparameters(coordinates.vector(hyperparameters))
    assert list(back.named_parameters()) == list(hyperparameters.named_parameters())
    for a, b in zip(
        back.named_parameters().values(), hyperparameters.named_parameters().values(), strict=True
    ):
        torch.testing.assert_close(a.value.detach(), b.value.detach(), rtol=1e-13, atol=1e-15)
        assert (a.lower, a.upper, a.name) == (b.lower, b.upper, b.name)


@pytest.mark.parametrize("value", [1e-3, 31.0, 500.0, 1e6])
def test_large_values_survive_softplus(value):
    """Softplus is the identity far up, so that 500 is 500 on the real line, too."""
    hyperparameters = at(RBF(value))
    coordinates = Coordinates(hyperparameters, softplus=True)
    back = coordinates.hyperparameters(coordinates.vector(hyperparameters)).kernel.lengthscale
    assert float(back) == pytest.approx(value, rel=1e-13)


@pytest.mark.parametrize("softplus", [False, True])
def test_pull_back_is_the_chain_rule(softplus):
    coordinates = Coordinates(BOUNDED, softplus=softplus)
    vector = coordinates.vector(BOUNDED)

    def function(at_vector):
        named = coordinates.hyperparameters(at_vector).named_parameters()
        return sum(
            (torch.arange(1, p.value.numel() + 1) * p.value.reshape(-1) ** 2).sum() for p in named.values()
        )

    named = BOUNDED.named_parameters()
    by_value = {
        name: (torch.arange(1, p.value.numel() + 1) * 2 * p.value.reshape(-1)).reshape(p.value.shape)
        for name, p in named.items()
    }
    leaf = vector.clone().requires_grad_(True)
    (expected,) = torch.autograd.grad(function(leaf), leaf)
    torch.testing.assert_close(coordinates.pull_back(vector, by_value), expected, rtol=1e-12, atol=0)


@given(vector=st.lists(st.floats(-1e300, 1e300), min_size=5, max_size=5), softplus=st.booleans())
def test_every_vector_is_a_point_within_the_bounds(vector, softplus):
    coordinates = Coordinates(BOUNDED, softplus=softplus)
    hyperparameters = coordinates.hyperparameters(torch.tensor(vector, dtype=torch.float64))
    for parameter in hyperparameters.named_parameters().values():
        assert bool(((parameter.value > parameter.lower) & (parameter.value < parameter.upper)).all())
    if not softplus:
        assert float(hyperparameters.noise.value) <= math.exp(30.0) * (1 + 1e-12)
    assert hyperparameters.mean.value.tolist() == vector[3:]


@pytest.mark.parametrize(
    ("lower", "start", "upper"),
    [(1e6, 2e6, math.inf), (1000.0, 1000.5, 1001.0), (-math.inf, 1.0, 1e6)],
)
@pytest.mark.parametrize("far", [-1e3, 1e3])
def test_a_bound_with_many_digits_is_not_reached(lower, start, upper, far):
    hyperparameters = Hyperparameters(
        RBF(), Parameter(torch.tensor(start, dtype=torch.float64), lower, upper), None
    )
    moved = Coordinates(hyperparameters).hyperparameters(torch.tensor([0.0, far], dtype=torch.float64))
    assert lower < float(moved.noise.value) < upper


def test_names_are_in_order_and_come_back():
    hyperparameters = at(KERNELS["sum"], noise=0.2, mean=[0.0])
    assert list(hyperparameters.named_parameters())[-2:] == ["noise", "mean"]
    assert all(name.startswith("kernel.") for name in list(hyperparameters.named_parameters())[:-2])
    without = at(KERNELS["rbf"], noise=None)
    assert list(without.named_parameters()) == ["kernel.lengthscale"]
    moved = without.with_parameters(
        {"kernel.lengthscale": without.named_parameters()["kernel.lengthscale"].with_value(2.0)}
    )
    assert moved.noise is None
    assert moved.kernel.lengthscale.item() == 2.0


def test_centring_and_the_noise_of_rows():
    y = torch.ones(3, 2, dtype=torch.float64)
    hyperparameters = at(RBF(), noise=0.2, mean=[1.0, -1.0])
    assert hyperparameters.centred(y).tolist() == [[0.0, 2.0]] * 3
    assert at(RBF()).centred(y) is y
    assert hyperparameters.diagonal_noise(None).item() == 0.2
    fixed = torch.tensor([0.1, 0.2, 0.3])
    assert at(RBF(), noise=None).diagonal_noise(fixed) is fixed


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("rbf", RBF),
        ("matern12", Matern),
        ("matern32", Matern),
        ("matern52", Matern),
        ("rational_quadratic", RationalQuadratic),
    ],
)
def test_kernels_have_names(name, kind):
    scaled = kernel_by_name(name, 3, ard=True, lengthscale=0.7, outputscale=1.5)
    assert scaled.outputscale.item() == 1.5
    assert type(scaled.kernel) is kind
    assert scaled.kernel.lengthscale.tolist() == [0.7] * 3
    assert kernel_by_name(name, 3, ard=False, lengthscale=0.7, outputscale=1.0).kernel.lengthscale.ndim == 0
    if kind is Matern:
        assert scaled.kernel.nu == {"matern12": 0.5, "matern32": 1.5, "matern52": 2.5}[name]


def test_an_unknown_name_is_refused_with_those_that_are_known():
    with pytest.raises(InputError, match=r"one of rbf, matern12, .*; got 'matern'"):
        kernel_by_name("matern", 3, ard=True, lengthscale=1.0, outputscale=1.0)
