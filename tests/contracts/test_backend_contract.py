"""Every backend, in every format, for every kernel, is as close to the definition as the formats allow."""

from __future__ import annotations

import math

import pytest
import torch
from contracts.backends import BACKENDS
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from halfgp import RBF, Constant, Linear, Matern, Periodic, RationalQuadratic, White
from halfgp.backends.reference import ReferenceBackend
from halfgp.kernels import Kernel
from halfgp.precision import Precision
from halfgp.selftest.checks import assert_product_is_right, bind, random, remembered, with_outliers
from halfgp.selftest.contestant import Contestant
from halfgp.selftest.contract import (
    KERNELS,
    check_block,
    check_gradient,
    check_rectangular_product,
    check_square_product,
)

MODES = [
    *((name, False) for name in ("double", "single", "half", "bfloat16")),
    *((name, True) for name in ("double", "single", "half", "bfloat16")),
]

each_backend = pytest.mark.parametrize("contestant", BACKENDS)
each_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS.keys())
each_precision = pytest.mark.parametrize("name", ["double", "single", "half", "bfloat16"])


# What is asked of entries that are stored and of those that are not, in one test: thousands more would take
# longer to be shared out than to run.
@each_backend
@each_kernel
@each_precision
def test_square_products_stay_within_the_bound(contestant: Contestant, kernel: Kernel, name: str) -> None:
    for store in (False, True):
        check_square_product(contestant, kernel, name, store)


@each_backend
@each_kernel
@each_precision
def test_rectangular_products_stay_within_the_bound(
    contestant: Contestant, kernel: Kernel, name: str
) -> None:
    for store in (False, True):
        check_rectangular_product(contestant, kernel, name, store)


@each_backend
@each_kernel
@each_precision
def test_blocks_hold_the_entries_within_the_bound_and_exact_variances(
    contestant: Contestant, kernel: Kernel, name: str
) -> None:
    for store in (False, True):
        check_block(contestant, kernel, name, store)


@each_backend
@each_kernel
@pytest.mark.parametrize("name", ["double", "single", "half"])
@pytest.mark.parametrize("square", [True, False], ids=["square", "rectangular"])
def test_gradients_agree_with_autograd_through_the_definition(
    contestant: Contestant, kernel: Kernel, name: str, square: bool
) -> None:
    check_gradient(contestant, kernel, name, square)


# Kernels whose derivatives have one sign, so that weights without signs give the sum without signs.
MONOTONE: dict[str, Kernel] = {
    "rbf": 2.0 * RBF(lengthscale=torch.linspace(3.0, 6.0, 20)),
    "matern12": 0.5 * Matern(0.5, lengthscale=5.0),
    "matern32": Matern(1.5, lengthscale=torch.linspace(3.0, 6.0, 20)),
    "matern52": Matern(2.5, lengthscale=4.0),
    "rational_quadratic": RationalQuadratic(alpha=300.0, lengthscale=4.0),
    "sum and product": 0.5 * RBF(4.0) * RationalQuadratic(alpha=0.6, lengthscale=6.0)
    + 0.2 * Matern(0.5, lengthscale=[1.0, 2.0], active_dims=[3, 7]),
}


# Each mode with every other kernel: all of them meet all modes above.
@each_backend
@pytest.mark.parametrize(
    ("kernel", "name", "store"),
    [
        pytest.param(kernel, name, store, id=f"{label}-{name}-{'stored' if store else 'on_the_fly'}")
        for i, (label, kernel) in enumerate(MONOTONE.items())
        for j, (name, store) in enumerate(MODES)
        if (i + j) % 2 == 0
    ],
)
def test_products_with_many_features_and_outliers_stay_within_the_bound(
    contestant: Contestant, kernel: Kernel, name: str, store: bool
) -> None:
    x1, x2, v = with_outliers(120, 20), with_outliers(290, 20, seed=1), random(290, 4, seed=2)
    square = bind(contestant, kernel, x2, None, name, store)
    assert_product_is_right(contestant, square, kernel, x2, None, v)
    rectangular = bind(contestant, kernel, x1, x2, name, store)
    assert_product_is_right(contestant, rectangular, kernel, x1, x2, v)


@remembered
def gradients_by_the_reference(
    kernel: Kernel, x1: Tensor, x2: Tensor | None, u: Tensor, v: Tensor
) -> dict[str, Tensor]:
    reference = bind(Contestant("reference", ReferenceBackend()), kernel, x1, x2, "double")
    return reference.bilinear_gradient(u, v, False)[0]


@each_backend
@pytest.mark.parametrize("kernel", MONOTONE.values(), ids=MONOTONE.keys())
@pytest.mark.parametrize("name", ["double", "single"])
def test_gradients_with_many_features_and_outliers_agree_with_the_reference_in_double(
    contestant: Contestant, kernel: Kernel, name: str
) -> None:
    x1, x2 = with_outliers(120, 20), with_outliers(290, 20, seed=1)
    for points in ((x2, None), (x1, x2)):
        u, v = random(len(points[0]), 3, seed=3), random(290, 3, seed=4)
        found, _, _ = bind(contestant, kernel, *points, name).bilinear_gradient(u, v, False)
        wanted = gradients_by_the_reference(kernel, *points, u, v)
        magnitudes = gradients_by_the_reference(kernel, *points, u.abs(), v.abs())
        # As `gradient_tolerance`, but where points coincide what the expansion loses is not relative: up to
        # (f + 8) 2 Z^2 = 28 * 64 roundings of r^2, times a slope of at most the amplitude / parameter.
        c = Precision.resolve(name).vectors.unit_roundoff
        lost = (
            28 * 64 * kernel.amplitude(x2) * (u.abs() @ v.abs().T).sum()
            if contestant.expands(Precision.resolve(name), gradient=True)
            else 0.0
        )
        for key, parameter in kernel.named_parameters():
            error = (found[key] - wanted[key]).abs()
            limit = (8 + 28 + 32 * contestant.run) * magnitudes[key].abs() + lost / parameter.value
            assert bool((error <= c * limit).all()), f"{key}: {(error / limit / c).max().item():.3g} bounds"


@each_backend
@pytest.mark.parametrize(
    ("n", "kernel"),
    [
        (1, "rbf"),
        (2, "matern12"),
        (255, "nested"),
        (256, "rational_quadratic"),
        (257, "matern32"),
        (513, "matern52"),
    ],
)
@pytest.mark.parametrize("name", ["double", "single", "half"])
def test_products_stay_within_the_bound_whatever_blocks_the_points_fill(
    contestant: Contestant, n: int, kernel: str, name: str
) -> None:
    x, v = with_outliers(n, 3), random(n, 7, seed=1)
    for store in (False, True):
        square = bind(contestant, KERNELS[kernel], x, None, name, store)
        assert_product_is_right(contestant, square, KERNELS[kernel], x, None, v)
        rectangular = bind(contestant, KERNELS[kernel], x[: 1 + n // 2], x, name, store)
        assert_product_is_right(contestant, rectangular, KERNELS[kernel], x[: 1 + n // 2], x, v)


@each_backend
@pytest.mark.parametrize("name", ["half", "bfloat16"])
def test_covariances_that_the_format_rounds_to_zero_are_zero_stored_or_not(
    contestant: Contestant, name: str
) -> None:
    kernel = 4.0 * Matern(0.5)
    edge = kernel.support(Precision.resolve(name).inputs).item()
    x = torch.tensor([[0.0], [0.9 * edge], [1.1 * edge]], dtype=torch.float64)
    for store in (False, True):
        block = bind(contestant, kernel, x, None, name, store).block(None, None)
        assert block[0, 2] == 0.0
        assert block[0, 1] > 0.0 or name == "bfloat16"  # whose edge is among the denormals of single


@each_backend
@pytest.mark.parametrize("name", ["half", "bfloat16"])
@pytest.mark.parametrize("kernel", [RBF() + Linear(), Linear(), RBF() * Linear()], ids=repr)
def test_one_outlying_row_leaves_the_others_as_they_are(
    contestant: Contestant, name: str, kernel: Kernel
) -> None:
    x = random(50, 3)
    x[7] *= 1e4
    others = torch.tensor([i for i in range(50) if i != 7])
    u, v = random(50, 2, seed=1), random(50, 2, seed=2)
    for store in (False, True):
        matrix = bind(contestant, kernel, x, None, name, store)
        assert_product_is_right(contestant, matrix, kernel, x, None, v)
        block = matrix.block(others, others)
        assert bool((block != 0.0).all())
        assert_product_is_right(contestant, bind(contestant, kernel, x, x, name, store), kernel, x, x, v)
    found = bind(contestant, kernel, x, None, name).bilinear_gradient(u, v, True)
    exact = bind(contestant, kernel, x, None, "double").bilinear_gradient(u, v, True)
    assert found[1] is not None
    assert exact[1] is not None
    # Rows that the outlier does not dominate have gradients of their own, not zeros.
    assert bool((found[1][others] != 0.0).all())


@each_backend
@pytest.mark.parametrize("name", ["half", "bfloat16"])
def test_stored_sixteen_bit_entries_are_numbers_of_the_format(contestant: Contestant, name: str) -> None:
    x = random(30, 2)
    matrix = bind(contestant, RBF(), x, None, name, store=True)
    dtype = Precision.resolve(name).entries.dtype
    assert matrix.storage == f"stored {str(dtype).removeprefix('torch.')}"
    block = matrix.block(None, None)
    assert torch.equal(block, block.to(dtype).to(block.dtype))


@each_backend
@pytest.mark.parametrize("name", ["double", "single", "half", "bfloat16"])
@pytest.mark.parametrize(("n", "m", "t"), [(0, 5, 2), (5, 0, 2), (0, 0, 1), (1, 1, 1), (4, 3, 0)])
def test_empty_and_single_rows_work(contestant: Contestant, name: str, n: int, m: int, t: int) -> None:
    kernel = RBF() + Linear()
    x1, x2 = random(n, 2), random(m, 2, seed=1)
    matrix = bind(contestant, kernel, x1, x2, name)
    assert_product_is_right(contestant, matrix, kernel, x1, x2, random(m, t, seed=2))
    square = bind(contestant, kernel, x1, None, name)
    assert_product_is_right(contestant, square, kernel, x1, None, random(n, t, seed=2))
    gradients, in_x1, in_x2 = matrix.bilinear_gradient(random(n, t), random(m, t), True)
    assert in_x1 is not None
    assert in_x2 is not None
    assert in_x1.shape == x1.shape
    assert in_x2.shape == x2.shape
    assert gradients.keys() == dict(kernel.named_parameters()).keys()


@each_backend
@pytest.mark.parametrize("name", ["double", "single", "half", "bfloat16"])
def test_a_constant_offset_of_the_points_costs_nothing(contestant: Contestant, name: str) -> None:
    # 2^12 + multiples of 2^-10 are exact in single, so that the shifted points are the same points.
    x = (random(40, 2) * 2.0**10).round() / 2.0**10
    v = random(40, 2, seed=1)
    for points in (x + 2.0**12, (x + 2.0**12).float()):
        matrix = bind(contestant, RBF(), points, None, name)
        assert_product_is_right(contestant, matrix, RBF(), x, None, v)


@each_backend
@given(
    n=st.integers(1, 40),
    m=st.integers(1, 40),
    d=st.integers(1, 6),
    t=st.integers(1, 9),
    magnitude=st.sampled_from([1e-6, 1e-2, 1.0, 30.0]),
    scale=st.sampled_from([1e-6, 1.0, 1e6]),
    kernel=st.sampled_from([RBF(), Matern(0.5), Matern(1.5), Matern(2.5), RationalQuadratic(2.0), Linear()]),
    mode=st.sampled_from(MODES),
    square=st.booleans(),
)
def test_products_stay_within_the_bound_for_any_shape_and_magnitude(
    contestant: Contestant,
    n: int,
    m: int,
    d: int,
    t: int,
    magnitude: float,
    scale: float,
    kernel: Kernel,
    mode: tuple[str, bool],
    square: bool,
) -> None:
    x1, x2 = magnitude * random(n, d), None if square else magnitude * random(m, d, seed=1)
    scaled = scale * kernel
    matrix = bind(contestant, scaled, x1, x2, *mode)
    v = random(n if square else m, t, seed=2) * 10.0 ** random(1, t, seed=3)
    assert_product_is_right(contestant, matrix, scaled, x1, x2, v)


@each_backend
@given(seed=st.integers(0, 10**6), data=st.data())
def test_products_of_random_compositions_stay_within_the_bound(
    contestant: Contestant, seed: int, data: st.DataObject
) -> None:
    leaves = st.sampled_from(
        [RBF(0.7), Matern(0.5), Matern(2.5, 2.0), RationalQuadratic(), Linear(), Periodic(2.0)]
    )
    extras = st.sampled_from([Constant(0.4), White(0.3)])
    kernel = data.draw(
        st.recursive(
            leaves | extras,
            lambda inner: (
                st.tuples(inner, inner).map(lambda pair: pair[0] + pair[1])
                | st.tuples(inner, inner).map(lambda pair: pair[0] * pair[1])
                | st.tuples(st.sampled_from([0.1, 5.0]), inner).map(math.prod)
            ),
            max_leaves=5,
        )
    )
    x, v = random(20, 2, seed=seed), random(20, 3, seed=seed + 1)
    for name in ("double", "single", "half"):
        matrix = bind(contestant, kernel, x, None, name)
        assert_product_is_right(contestant, matrix, kernel, x, None, v)
