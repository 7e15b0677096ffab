"""NEON, on the machines that have it and in an emulator on the others, where its vectors could go wrong.

The contract and the tests of the compiled engine run over it too, as over every instruction set; here are the
shapes that exercise every width of its register blocks, and the mode of its arithmetic.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch
from contracts import foreign
from contracts.backends import NEON

from halfgp import RBF, Constant, Linear, Matern, Periodic, RationalQuadratic, White
from halfgp.backends.reference import ReferenceBackend
from halfgp.kernels import Kernel
from halfgp.precision import Precision
from halfgp.selftest.bounds import gradient_tolerance
from halfgp.selftest.checks import assert_product_is_right, bind, random, with_outliers
from halfgp.selftest.contestant import Contestant

pytest.importorskip("halfgp.backends.cpu", reason="halfgp._cpu was not built")
each_machine = pytest.mark.parametrize("contestant", NEON)
FAMILIES: dict[str, Callable[..., Kernel]] = {
    "rbf": RBF,
    "matern12": functools.partial(Matern, 0.5),
    "matern32": functools.partial(Matern, 1.5),
    "matern52": functools.partial(Matern, 2.5),
    "rational_quadratic": functools.partial(RationalQuadratic, 1.5),
}
KERNELS: dict[str, Kernel] = {
    **{name: family(lengthscale=2.0) for name, family in FAMILIES.items()},
    "linear": Linear(0.5),
    "composition": 0.5 * RBF(3.0) * Periodic(2.0) + Linear() * Matern(0.5) + White(0.1) + Constant(0.3),
}
MODES = [("double", False), ("single", False), ("half", False), ("half", True), ("bfloat16", True)]


@pytest.mark.skipif(bool(foreign.ABSENT), reason=foreign.ABSENT)
def test_64_bit_arm_prefers_neon() -> None:
    assert foreign.cpu_module().instruction_sets() == ["scalar", "neon"]


@each_machine
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS.keys())
@pytest.mark.parametrize("d", [1, 3, 26])
@pytest.mark.parametrize(("name", "store"), MODES)
def test_products_stay_within_the_bound_for_few_and_many_right_hand_sides(
    contestant: Contestant, kernel: Kernel, d: int, name: str, store: bool
) -> None:
    x = with_outliers(110, d)
    matrix = bind(contestant, kernel, x, None, name, store)
    for t in (1, 11, 33):
        assert_product_is_right(contestant, matrix, kernel, x, None, random(110, t, seed=t))


@each_machine
@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES.keys())
@pytest.mark.parametrize("d", [1, 3, 26])
@pytest.mark.parametrize("name", ["double", "single"])
def test_gradients_in_every_lengthscale_agree_with_the_reference_in_double(
    contestant: Contestant, family: Callable[..., Kernel], d: int, name: str
) -> None:
    # Along a line, so that no two points are close: the bound is relative to the smallest distance.
    x = 0.1 * random(45, d, seed=1)
    x[:, 0] = torch.linspace(-3.0, 3.0, 45)
    u, v = random(45, 2, seed=2), random(45, 2, seed=3)
    kernel = family(lengthscale=torch.linspace(2.0, 3.0, d))
    found, _, _ = bind(contestant, kernel, x, None, name).bilinear_gradient(u, v, False)
    reference = bind(Contestant("reference", ReferenceBackend()), kernel, x, None, "double")
    wanted, _, _ = reference.bilinear_gradient(u, v, False)
    # These kernels fall with every distance: weights without signs give the sum without signs.
    magnitudes, _, _ = reference.bilinear_gradient(u.abs(), v.abs(), False)
    precision = Precision.resolve(name)
    tolerance = gradient_tolerance(kernel, x, None, precision, expansion=d > 2, run=contestant.run)
    for key in wanted:
        assert bool(((found[key] - wanted[key]).abs() <= tolerance * magnitudes[key].abs()).all()), key


@each_machine
def test_denormals_are_flushed_and_denormal_halves_are_not(contestant: Contestant) -> None:
    x = torch.tensor([[0.0], [1.0], [5.0]], dtype=torch.float64)
    single = bind(contestant, RBF(), x[:1], x, "single")
    assert not single.matmul(torch.full((3, 2), 1e-39), None).any()
    assert single.matmul(torch.full((3, 2), 1e-36), None).all()
    half = bind(contestant, RBF(), x[:1], x, "half", store=True)
    entries = half.matmul(torch.eye(3), None)[0]
    assert 0.0 < entries[2] < torch.finfo(torch.float16).smallest_normal
    assert torch.equal(entries, entries.half().float())


@each_machine
def test_products_are_the_same_to_the_bit_for_one_and_for_two_threads(contestant: Contestant) -> None:
    x, v = with_outliers(760, 3), random(760, 3, seed=1)  # entries enough for two
    one, two = (
        contestant.backend.bind(
            Matern(1.5), x, None, precision=Precision.resolve("single"), store=False, threads=threads
        ).matmul(v, None)
        for threads in (1, 2)
    )
    assert torch.equal(one, two)
