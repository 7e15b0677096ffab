"""Kernels combine as the functions they are, and keep the names of their parameters."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch

from halfgp import RBF, Constant, KernelOperator, Linear, Matern, Periodic, White
from halfgp.errors import InputError
from halfgp.kernels import Kernel, Power, Product, Scaled, Sum
from halfgp.parameters import Parameter

X = torch.randn(6, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = torch.randn(4, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
A, B, C = RBF(0.7), Matern(1.5, [1.0, 2.0]), Linear(0.3)


def names(kernel: Kernel) -> list[str]:
    return [name for name, _ in kernel.named_parameters()]


def test_sums_products_and_factors_act_on_values() -> None:
    kernel = 2.0 * (A + B) * C + 0.5
    torch.testing.assert_close(kernel(X, Y), 2 * (A(X, Y) + B(X, Y)) * C(X, Y) + 0.5)
    torch.testing.assert_close(kernel.diagonal(X), 2 * 2 * C.diagonal(X) + 0.5)


@pytest.mark.parametrize(
    "two", [2, 2.0, np.float64(2.0), np.array(2.0), torch.tensor(2.0)], ids=lambda x: type(x)
)
def test_numbers_of_any_library_scale_from_both_sides(two: object) -> None:
    for kernel in (two * A, A * two):  # type: ignore[operator]
        assert isinstance(kernel, Scaled)
        assert kernel.outputscale.item() == 2.0


def test_factors_of_factors_collapse() -> None:
    kernel = 2.0 * (3.0 * A)
    assert isinstance(kernel, Scaled)
    assert kernel.kernel is A
    assert kernel.outputscale.item() == 6.0


def test_nested_sums_and_products_are_flat() -> None:
    total = (A + B) + (C + 1.0)
    assert isinstance(total, Sum)
    assert total.kernels[:3] == (A, B, C)
    product = A * (B * C)
    assert isinstance(product, Product)
    assert product.kernels == (A, B, C)


def test_the_builtin_sum_works() -> None:
    total = sum([A, B])
    assert isinstance(total, Sum)
    assert total.kernels == (A, B)


def test_names_follow_the_structure() -> None:
    assert names(2.0 * A) == ["outputscale", "lengthscale"]
    assert names(A + 2.0 * B) == ["0.lengthscale", "1.outputscale", "1.lengthscale"]
    assert names(2.0 * (A + B * C) + White()) == [
        "0.outputscale",
        "0.0.lengthscale",
        "0.1.0.lengthscale",
        "0.1.1.variance",
        "1.variance",
    ]
    assert names(Periodic()) == ["period", "lengthscale"]


def test_parameters_are_exchanged_by_name_and_the_kernel_stays() -> None:
    kernel = A + 2.0 * B
    other = kernel.with_parameters({"1.outputscale": 5.0, "0.lengthscale": [1.0, 2.0]})
    assert dict(other.named_parameters())["1.outputscale"].value.item() == 5.0
    assert dict(other.named_parameters())["0.lengthscale"].value.tolist() == [1.0, 2.0]
    assert dict(kernel.named_parameters())["1.outputscale"].value.item() == 2.0


def test_every_parameter_survives_a_round_trip_through_the_real_line() -> None:
    kernel = 2.0 * (A + B * C) + White(0.3)
    moved = {n: p.transform.constrain(p.unconstrained) for n, p in kernel.named_parameters()}
    torch.testing.assert_close(kernel.with_parameters(moved)(X, Y), kernel(X, Y))


def test_unknown_names_are_refused_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"no parameter '0\.lengthscales'; did you mean 0\.lengthscale"):
        (A + B).with_parameters({"0.lengthscales": 1.0})


def test_bad_values_are_refused_by_name() -> None:
    with pytest.raises(InputError, match="`lengthscale` must be positive"):
        (A + B).with_parameters({"0.lengthscale": -1.0})
    with pytest.raises(InputError, match="`outputscale` must be positive"):
        -2.0 * A


def test_tensors_keep_their_graph_through_compositions() -> None:
    lengthscale = torch.tensor([0.7, 0.9], requires_grad=True)
    outputscale = torch.tensor(2.0, requires_grad=True)
    kernel = outputscale * (RBF(lengthscale) + B)
    kernel(X, Y).sum().backward()
    assert lengthscale.grad is not None
    assert outputscale.grad is not None
    assert outputscale.grad.item() == pytest.approx((RBF([0.7, 0.9])(X, Y) + B(X, Y)).sum().item())


def test_a_detached_kernel_has_leaves_of_its_own() -> None:
    kernel = torch.tensor(2.0, requires_grad=True) * (A + B)
    for requires_grad in (True, False):
        values = [p.value for _, p in kernel.detached(requires_grad).named_parameters()]
        assert all(value.is_leaf and value.requires_grad == requires_grad for value in values)


def test_amplitude_is_the_largest_variance_without_white() -> None:
    assert (3.0 * A + White(9.0)).amplitude(X, Y).item() == 3.0
    assert C.amplitude(X, Y).item() == max(C.diagonal(X).max().item(), C.diagonal(Y).max().item())
    assert A.amplitude(X[:0]).item() == White().amplitude(X).item() == 1.0


def test_columns_that_do_not_fit_are_refused() -> None:
    with pytest.raises(
        InputError, match="`lengthscale` must be a single number or one per active column, 3; got 2"
    ):
        (A + B)(torch.zeros(1, 3), torch.zeros(1, 3))
    with pytest.raises(
        InputError, match=r"`active_dims` must be below the number of columns, 2; got \[0, 2\]"
    ):
        (2.0 * RBF(active_dims=[0, 2])).diagonal(X)
    for columns in ([], [0, 0], [-1]):
        with pytest.raises(InputError, match="`active_dims` must be distinct"):
            RBF(active_dims=columns)
    with pytest.raises(InputError, match=r"`x\[:, None\]`"):
        A(X[:, 0], X)


def test_kernels_can_be_read_copied_and_pickled() -> None:
    kernel = 2.0 * (A + Matern(2.5, active_dims=[1]) * Constant(0.5))
    assert repr(kernel) == (
        "2 * (RBF(lengthscale=0.7)"
        " + (Matern(nu=2.5, lengthscale=1.0, active_dims=[1]) * Constant(value=0.5)))"
    )
    for other in (copy.deepcopy(kernel), pickle.loads(pickle.dumps(kernel))):
        assert torch.equal(other(X, Y), kernel(X, Y))


def test_kernels_are_immutable() -> None:
    with pytest.raises(AttributeError):
        A.lengthscale = 2.0  # type: ignore[misc,assignment]


@pytest.mark.parametrize("factor", [1.0, 4.0, torch.tensor(0.5, dtype=torch.float64)])
def test_a_multiple_of_a_scaled_kernel_keeps_its_bounds(factor) -> None:
    inner = Scaled(Parameter(torch.tensor(2.0, dtype=torch.float64), 1.0, 8.0), RBF())
    merged = dict((factor * inner).named_parameters())["outputscale"]
    by = float(factor)
    assert (merged.value.item(), merged.lower, merged.upper) == (2.0 * by, 1.0 * by, 8.0 * by)


def test_a_power_is_a_product_whose_factors_share_their_parameters():
    x = torch.randn(12, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    base = 1.5 * RBF(0.7) + White(0.2)
    power = base**3
    assert [name for name, _ in power.named_parameters()] == [name for name, _ in base.named_parameters()]
    torch.testing.assert_close(power(x, x), base(x, x) ** 3)
    torch.testing.assert_close(power.diagonal(x), base.diagonal(x) ** 3)
    torch.testing.assert_close(power.white(x), base.diagonal(x) ** 3 - base.diagonal(x, white=False) ** 3)
    dense = KernelOperator(power, x, precision="double").to_dense()
    expected = base(x, x) ** 3
    expected.diagonal().copy_(base.diagonal(x) ** 3)
    torch.testing.assert_close(dense, expected, rtol=1e-9, atol=1e-9)
    assert base**1 is base
    for exponent in (0, 0.5, True):
        with pytest.raises(InputError, match="exponent"):
            Power(base, exponent)


def test_a_kernel_on_other_columns_sees_the_same():
    x = torch.randn(9, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    kernel = (
        2.0 * RBF([0.5, 1.0]) * Periodic(active_dims=[1]) + 0.3 * Linear(active_dims=[0]) ** 2 + Constant(0.5)
    )
    moved = kernel.on_columns([3, 1])
    torch.testing.assert_close(moved(x, x), kernel(x[:, [3, 1]], x[:, [3, 1]]))
