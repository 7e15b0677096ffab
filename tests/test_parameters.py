"""Parameters stay within their bounds and come back from the real line."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from halfgp.errors import InputError
from halfgp.parameters import Parameter, Transform, positive

BOUNDS = [(0.0, math.inf), (1e-4, math.inf), (-math.inf, 3.0), (-2.0, 5.0), (-math.inf, math.inf)]


@pytest.mark.parametrize(("lower", "upper"), BOUNDS)
@given(unconstrained=st.floats(-8.0, 8.0))
def test_every_real_number_is_a_value_within_the_bounds(
    lower: float, upper: float, unconstrained: float
) -> None:
    start = 0.5 if lower < 0.5 < upper else lower + 1.0
    parameter = Parameter(torch.tensor(start), lower, upper)
    real = torch.tensor(unconstrained, dtype=torch.float64)
    moved = parameter.with_value(parameter.transform.constrain(real))
    assert lower < moved.value.item() < upper
    assert moved.unconstrained.item() == pytest.approx(unconstrained, abs=1e-8)


@pytest.mark.parametrize("value", [2.0, 2, np.float32(2.0), np.array(2.0), torch.tensor(2.0)])
def test_numbers_of_any_library_become_float64(value: object) -> None:
    parameter = positive("alpha", value)  # type: ignore[arg-type]
    assert parameter.value.dtype == torch.float64
    assert parameter.value.shape == ()
    assert parameter.value.item() == 2.0


@pytest.mark.parametrize("value", [[1.0, 2.0], (1, 2), np.array([1.0, 2.0]), torch.tensor([1.0, 2.0])])
def test_sequences_become_one_value_per_feature(value: object) -> None:
    assert positive("lengthscale", value).value.tolist() == [1.0, 2.0]  # type: ignore[arg-type]


def test_tensors_keep_their_graph_and_floats_have_none() -> None:
    leaf = torch.tensor(2.0, requires_grad=True)
    positive("alpha", leaf**2).value.backward()
    assert leaf.grad is not None
    assert leaf.grad.item() == 4.0
    assert not positive("alpha", 2.0).value.requires_grad


def test_a_parameter_keeps_its_bounds_when_its_value_changes() -> None:
    given = Parameter(torch.tensor(0.5), 0.1, 1.0)
    changed = positive("lengthscale", given).with_value(0.7)
    assert (changed.lower, changed.upper, changed.name) == (0.1, 1.0, "lengthscale")
    with pytest.raises(InputError, match=r"`lengthscale` must be finite and between 0\.1 and 1; got 2"):
        changed.with_value(2.0)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, [1.0, -2.0]])
def test_values_that_are_not_positive_and_finite_are_refused(value: object) -> None:
    with pytest.raises(InputError, match="`lengthscale` must be positive and finite; got"):
        positive("lengthscale", value)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["abc", None, [[1.0]], [], True, 1j, [1.0, [2.0]]])
def test_what_is_no_number_is_refused(value: object) -> None:
    with pytest.raises(InputError, match="`lengthscale` must be"):
        positive("lengthscale", value)  # type: ignore[arg-type]


def test_a_scalar_parameter_refuses_a_vector() -> None:
    with pytest.raises(InputError, match="`alpha` must be a single number"):
        positive("alpha", [1.0, 2.0], scalar=True)


def test_a_detached_copy_is_a_fresh_leaf() -> None:
    parameter = positive("alpha", torch.tensor(2.0, requires_grad=True) * 3.0)
    copy = parameter.detached(requires_grad=True)
    assert copy.value.is_leaf
    assert copy.value.requires_grad
    assert not parameter.detached().value.requires_grad


@pytest.mark.parametrize("lower", [0.0, 1e-4, 2.5])
@pytest.mark.parametrize("unconstrained", [-30.0, -8.0, -1e-3, 0.0, 3.0, 40.0, 1e6])
def test_softplus_reaches_the_half_line_and_comes_back(lower: float, unconstrained: float) -> None:
    transform = Transform(lower, math.inf, softplus=True)
    value = transform.constrain(torch.tensor(unconstrained, dtype=torch.float64))
    assert value.item() == pytest.approx(lower + np.logaddexp(0.0, unconstrained), rel=1e-15)
    assert value.item() > lower
    # What is added to the bound has lost the bound's rounding, 1e-16 of it, before the logarithm.
    lost = 2e-16 * lower / np.logaddexp(0.0, unconstrained)
    back = transform.unconstrain(value).item()
    assert back == pytest.approx(unconstrained, rel=1e-14, abs=1e-14 + 4 * lost)


def test_softplus_is_the_identity_for_what_is_large_and_the_logarithm_for_what_is_small() -> None:
    transform = Transform(0.0, math.inf, softplus=True)
    values = torch.tensor([1e5, 1e-5], dtype=torch.float64)
    large, small = transform.unconstrain(values).tolist()
    assert large == 1e5
    assert small == pytest.approx(math.log(1e-5), abs=1e-5)  # x - x²/2 = e^u
