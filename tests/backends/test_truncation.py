"""Tiles of zeros are passed by: the same bits for every kernel, format, order and instruction set."""

from __future__ import annotations

import itertools

import pytest
import torch
from contracts.backends import CPU, NATIVE_CPU, Contestant
from contracts.textbook import KERNELS
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from halfgp.backends.base import KernelMatrix
from halfgp.kernels import RBF, Constant, Kernel, Linear, Matern, RationalQuadratic
from halfgp.precision import SINGLE, Precision
from halfgp.truncation import Truncation

each_machine = pytest.mark.parametrize("contestant", CPU)
each_native_machine = pytest.mark.parametrize("contestant", NATIVE_CPU)
FORMATS = ("half", "bfloat16", "single", "double")
N = 700  # three blocks, the last not full


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def clusters(d: int, n: int = N, apart: float = 4000.0, seed: int = 0) -> Tensor:
    """Rows of three clusters far apart, mixed up, some of them repeated."""
    x = torch.randn(n, d, generator=generator(seed), dtype=torch.float64)
    x[:, 0] += apart * torch.randint(3, (n,), generator=generator(seed + 1))
    x[n // 2 : n // 2 + 20] = x[:20]
    return x


def line(n: int = N) -> Tensor:
    """One feature, in no order."""
    return 900.0 * torch.rand(n, 1, generator=generator(2), dtype=torch.float64)


def bind(
    contestant: Contestant,
    kernel: Kernel,
    x1: Tensor,
    x2: Tensor | None,
    name: str,
    skip: bool,
    **options: object,
) -> KernelMatrix:
    precision = Precision.resolve(name)
    store = bool(options.pop("store", False))
    if precision.is_sixteen_bit and not store:
        precision = precision.with_entries(SINGLE)
    truncation = Truncation(float(options.pop("cutoff", 0.0)), skip)  # type: ignore[arg-type]
    threads = int(options.pop("threads", 1))  # type: ignore[call-overload]
    return contestant.backend.bind(
        kernel, x1, x2, precision=precision, store=store, threads=threads, truncation=truncation
    )


def assert_same(one: KernelMatrix, two: KernelMatrix, inputs: bool = True) -> None:
    """Products and gradients of both, to the bit."""
    n, m = one.shape
    u, v = (torch.randn(k, 3, generator=generator(k), dtype=torch.float64) for k in (n, m))
    assert torch.equal(one.matmul(v, None), two.matmul(v, None))
    (by_name, *points), (other, *others) = (matrix.bilinear_gradient(u, v, inputs) for matrix in (one, two))
    for name in by_name:
        assert torch.equal(by_name[name], other[name]), name
    for a, b in zip(points, others, strict=True):
        assert (a is None and b is None) or torch.equal(a, b)


# Within the 4,000 between two clusters, in double too.
VANISHING = ("rbf", "matern12", "matern32", "matern52", "white", "product", "nested")


@each_native_machine
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_results_are_the_same_to_the_bit_for_every_kernel_and_format(
    contestant: Contestant, kernel: str, name: str
) -> None:
    x = clusters(3)
    whole, cut = (bind(contestant, KERNELS[kernel], x, None, name, skip) for skip in (False, True))
    assert_same(whole, cut)
    assert whole.skipped == 0.0
    assert (cut.skipped > 0.3) == (kernel in VANISHING)


@each_machine
@pytest.mark.parametrize("x", [line(), clusters(1), clusters(5), torch.zeros(N, 2).double()])
@pytest.mark.parametrize(
    ("name", "kernel"), [("half", Matern(1.5, 0.9)), ("single", RBF(0.8))], ids=["half", "single"]
)
def test_results_are_the_same_to_the_bit_wherever_points_are(
    contestant: Contestant, x: Tensor, name: str, kernel: Kernel
) -> None:
    assert_same(*(bind(contestant, kernel, x, None, name, skip) for skip in (False, True)))


@each_machine
def test_results_are_the_same_to_the_bit_between_other_points(contestant: Contestant) -> None:
    x, z = clusters(2, 600), clusters(2, 300, seed=7)
    for rows, columns in ((x, z), (z, x)):
        whole, cut = (bind(contestant, Matern(2.5), rows, columns, "half", skip) for skip in (False, True))
        assert_same(whole, cut)
        assert cut.skipped > 0.3


@each_machine
@pytest.mark.parametrize("name", ["half", "single"])
def test_stored_tiles_are_those_that_are_left(contestant: Contestant, name: str) -> None:
    x, v = clusters(2), torch.ones(N, 2, dtype=torch.float64)
    whole, cut = (bind(contestant, Matern(1.5), x, None, name, skip, store=True) for skip in (False, True))
    assert torch.equal(whole.matmul(v, None), cut.matmul(v, None))
    rows = [bind(contestant, Matern(1.5), x[:9], x, name, skip, store=True) for skip in (False, True)]
    assert torch.equal(rows[0].matmul(v, None), rows[1].matmul(v, None))


@each_machine
def test_blocks_have_their_zeros_too(contestant: Contestant) -> None:
    x = clusters(2, 300)
    whole, cut = (bind(contestant, RBF(), x, None, "single", skip) for skip in (False, True))
    assert torch.equal(whole.block(None, None), cut.block(None, None))
    i = torch.tensor([3, 299, 17])
    assert torch.equal(cut.block(i, None), whole.block(None, None)[i])


@each_machine
def test_no_result_depends_on_the_threads(contestant: Contestant) -> None:
    x = torch.rand(1500, 2, generator=generator(), dtype=torch.float64)
    one, two = (bind(contestant, RBF(0.02), x, None, "single", True, threads=t) for t in (1, 2))
    assert 0.2 < one.skipped < 1.0
    assert_same(one, two)


@each_native_machine
@pytest.mark.parametrize("name", ["half", "single", "double"])
@pytest.mark.parametrize(
    "kernel",
    [
        RBF(0.2),
        3.0 * Matern(1.5, 0.1),
        RBF(0.2) + 0.5 * Matern(0.5, 0.1),
        RBF(0.3) * Linear(),
        RationalQuadratic(6.0, 0.1),
    ],
)
def test_a_cutoff_is_a_matter_of_entries_and_within_its_bound(
    contestant: Contestant, kernel: Kernel, name: str
) -> None:
    """Relative to the two deviations; whole tiles of zeros are passed by, and the bound is of all of them."""
    cutoff = 1e-4
    x = torch.rand(N, 2, generator=generator(), dtype=torch.float64) * 4 + 0.5
    whole, cut = (bind(contestant, kernel, x, None, name, skip, cutoff=cutoff) for skip in (False, True))
    assert_same(whole, cut)
    assert cut.skipped > 0.0
    exact, truncated = kernel(x, x), cut.block(None, None).double()
    size = exact / (exact.diagonal().sqrt()[:, None] * exact.diagonal().sqrt())
    assert (truncated[size > 1.01 * cutoff] != 0).all()
    assert (truncated[size < 0.24 * cutoff] == 0).all()  # units are deviations, rounded down to powers of two
    lost = torch.where(truncated == 0, exact.abs(), 0.0).sum(dim=1).max().item()
    assert 0.0 < lost <= cut.dropped() <= whole.dropped() * 1.0000001


@each_native_machine
@given(
    st.integers(1, 3),
    st.floats(-6, 1),
    st.floats(-12, -2),
    st.sampled_from(["half", "single", "double"]),
    st.integers(0, 5),
)
def test_bounds_hold_whatever_the_cutoff(
    contestant: Contestant, d: int, log_lengthscale: float, log_cutoff: float, name: str, seed: int
) -> None:
    kernels = [
        profile(2.0**log_lengthscale) for profile in (RBF, lambda s: Matern(0.5, s), lambda s: Matern(2.5, s))
    ]
    kernel = [*kernels, kernels[0] + kernels[1], 2.0 * kernels[1] * kernels[2]][seed % 5]
    x = torch.rand(300, d, generator=generator(seed), dtype=torch.float64)
    matrix = bind(contestant, kernel, x, None, name, True, cutoff=10.0**log_cutoff)
    exact, truncated = kernel(x, x), matrix.block(None, None).double()
    lost = torch.where(truncated == 0, exact.abs(), 0.0).sum(dim=1).max().item()
    assert lost <= matrix.dropped()
    assert torch.equal(
        matrix.matmul(x, None),
        bind(contestant, kernel, x, None, name, False, cutoff=10.0**log_cutoff).matmul(x, None),
    )


@each_machine
def test_nothing_is_skipped_beside_a_constant_or_an_inner_product(contestant: Contestant) -> None:
    x = clusters(2)
    for other, name in itertools.product((Constant(1e-3), Linear()), ("half", "single")):
        assert bind(contestant, RBF() + other, x, None, name, True).skipped == 0.0
        assert bind(contestant, RBF() * other, x, None, name, True).skipped > 0.3
