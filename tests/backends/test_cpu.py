"""The compiled engine: what it promises beyond the contract of every backend."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from contracts.backends import CPU, NATIVE_CPU
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from halfgp import RBF, Constant, KernelOperator, Linear, Matern, Periodic, RationalQuadratic, White
from halfgp.backends.units import relative_units
from halfgp.errors import InputError
from halfgp.kernels import Kernel
from halfgp.kernels import profiles as profiles_of_the_package
from halfgp.kernels.profiles import Profile
from halfgp.precision import BFLOAT16, DOUBLE, HALF, SINGLE, Format, Precision
from halfgp.selftest.checks import assert_product_is_right, bind, definition, random, with_outliers
from halfgp.selftest.contestant import Contestant

cpu = pytest.importorskip("halfgp.backends.cpu", reason="halfgp._cpu was not built")

each_instruction_set = pytest.mark.parametrize("contestant", CPU)
STATIONARY = [RBF(), Matern(0.5), Matern(1.5), Matern(2.5), RationalQuadratic(alpha=8.0)]
THREADED: dict[str, tuple[Kernel, int]] = {  # with so many features
    "rbf": (2.0 * RBF(lengthscale=[0.8, 1.5, 2.0]), 3),
    "matern12": (Matern(0.5, lengthscale=3.0), 3),
    "many features": (RBF(lengthscale=4.0), 20),
    "composition": (0.5 * RBF(2.0) * Periodic(2.0) + Linear() + 0.3 * RationalQuadratic() + White(0.1), 3),
}
each_threaded = pytest.mark.parametrize(("kernel", "d"), THREADED.values(), ids=THREADED.keys())


def equal(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> bool:
    return found.keys() == wanted.keys() and all(torch.equal(found[key], wanted[key]) for key in wanted)


# 1500 x 1500 entries feed 8 threads, at 2^18 entries each, so that every count below is really used.
@each_threaded
@pytest.mark.parametrize("precision", ["double", "single", "half"])
@pytest.mark.parametrize("storage", ["on_the_fly", "stored"])
@pytest.mark.parametrize("square", [True, False], ids=["square", "rectangular"])
def test_products_are_the_same_to_the_bit_for_any_number_of_threads(
    kernel: Kernel, d: int, precision: str, storage: str, square: bool
) -> None:
    x1, x2 = with_outliers(1500, d), None if square else with_outliers(1400, d, seed=1)
    v = random(1500 if square else 1400, 3, seed=2)
    results = [
        KernelOperator(kernel, x1, x2, precision=precision, backend="cpu", storage=storage, threads=threads)
        @ v
        for threads in (1, 2, 3, 5)
    ]
    assert all(torch.equal(result, results[0]) for result in results[1:])


@each_threaded
@pytest.mark.parametrize("precision", ["single", "half"])
@pytest.mark.parametrize("square", [True, False], ids=["square", "rectangular"])
def test_gradients_are_the_same_to_the_bit_for_any_number_of_threads(
    kernel: Kernel, d: int, precision: str, square: bool
) -> None:
    x1, x2 = with_outliers(1500, d), None if square else with_outliers(1400, d, seed=1)
    u, v = random(1500, 2, seed=2), random(1500 if square else 1400, 2, seed=3)
    results = [
        KernelOperator(kernel, x1, x2, precision=precision, backend="cpu", threads=threads).bilinear_gradient(
            u, v, inputs=True
        )
        for threads in (1, 2, 3, 5)
    ]
    assert all(equal(result, results[0]) for result in results[1:])


@each_instruction_set
@each_threaded
@pytest.mark.parametrize("name", ["double", "single"])
def test_a_row_of_a_rectangular_product_does_not_depend_on_the_other_rows_to_the_bit(
    contestant: Contestant, kernel: Kernel, d: int, name: str
) -> None:
    x1, x2, v = with_outliers(400, d), with_outliers(300, d, seed=1), random(300, 7, seed=2)
    whole = bind(contestant, kernel, x1, x2, name).matmul(v, None)
    order = torch.randperm(400, generator=torch.Generator().manual_seed(0))
    near = x1.norm(dim=1).argsort()[:300]  # without any outlier
    far = x1.norm(dim=1).argsort()[-10:]
    for rows in (order, order[:137], near, far, order[:1]):
        assert torch.equal(bind(contestant, kernel, x1[rows], x2, name).matmul(v, None), whole[rows])


@each_instruction_set
@pytest.mark.parametrize("name", ["half", "bfloat16"])
@pytest.mark.parametrize(
    "kernel",
    [3.0 * RBF(), 0.7 * Matern(1.5, 2.0) + Linear([0.3, 1.0, 2.0]) * RBF(3.0) + 0.2],
    ids=["scaled rbf", "composition"],
)
@pytest.mark.parametrize("square", [True, False], ids=["square", "rectangular"])
def test_stored_entries_are_those_on_the_fly_rounded_to_the_format(
    contestant: Contestant, name: str, kernel: Kernel, square: bool
) -> None:
    x1, x2 = random(300, 3), None if square else random(290, 3, seed=1)
    points = (x1,) if x2 is None else (x1, x2)
    # The columns of the identity are served from memory, which `block` is not.
    identity = torch.eye(len(points[-1]), dtype=torch.float64)
    fly, stored = (bind(contestant, kernel, x1, x2, name, s).matmul(identity, None) for s in (False, True))
    w = relative_units(kernel, points)
    unit = kernel.amplitude(*points) * w[0][:, None] * w[-1]
    normalised = (fly / unit).float()  # what the engine had: one number of single in each interval
    wanted = normalised.to(Precision.resolve(name).entries.dtype).double() * unit
    assert not torch.equal(wanted, fly)
    if square:
        wanted.diagonal().copy_(fly.diagonal())
    # The scale multiplies in double; a difference in the rounding to 16 bits would be 2^-11 or 2^-8.
    torch.testing.assert_close(stored, wanted, rtol=1e-14, atol=0.0)


@each_instruction_set
@pytest.mark.parametrize("kernel", STATIONARY, ids=repr)
@pytest.mark.parametrize("d", [1, 3, 20])
@pytest.mark.parametrize("store", [False, True], ids=["on_the_fly", "stored"])
def test_half_knows_no_points_beyond_the_support(
    contestant: Contestant, kernel: Kernel, d: int, store: bool
) -> None:
    direction = random(1, d, seed=5)
    edge = kernel.support(HALF).item()
    if math.isinf(edge) or edge > 100.0:
        edge = 2.0**12  # a support of the rational quadratic that no point here reaches
    # On the edge, the formats decide: distances are good to 2^-11 per lengthscale and feature.
    distances = torch.cat([torch.linspace(0.0, 0.98, 200), torch.linspace(1.02, 2.0, 100)]).double() * edge
    x2 = distances[:, None] * direction / direction.norm()
    matrix = bind(contestant, kernel, x2.new_zeros(1, d), x2, "half", store)
    entries = matrix.matmul(torch.eye(300, dtype=torch.float64), None)[0]
    beyond = distances > kernel.support(HALF)
    assert torch.equal(entries[beyond], torch.zeros_like(entries[beyond]))
    assert bool((entries[~beyond] > 0).all())
    assert torch.equal(matrix.block(None, None)[0] > 0, ~beyond)
    v = random(300, 3, seed=6).float()
    huge = torch.where(beyond[:, None], 1e30, v)
    assert torch.equal(matrix.matmul(huge, None), matrix.matmul(v, None))


@pytest.mark.parametrize("name", ["double", "single", "half"])
@pytest.mark.parametrize("store", [False, True], ids=["on_the_fly", "stored"])
@pytest.mark.parametrize("d", [3, 20])
def test_instruction_sets_agree_within_twice_the_bound(name: str, store: bool, d: int) -> None:
    kernel = 2.0 * Matern(1.5, 3.0) * RBF(5.0) + 0.5 * RationalQuadratic(lengthscale=2.0)
    x, v = with_outliers(300, d), random(300, 6, seed=1)
    present = [place.values[0] for place in NATIVE_CPU]
    assert cpu.instruction_sets()[0] == "scalar"
    results = []
    for contestant in present:
        matrix = bind(contestant, kernel, x, None, name, store)
        assert matrix.instruction_set == contestant.backend.instruction_set
        assert_product_is_right(contestant, matrix, kernel, x, None, v)
        results.append(matrix.matmul(v, None))
    unit = Precision.resolve(name).inputs.unit_roundoff
    for one, other in itertools.combinations(results, 2):
        assert (one - other).norm() <= 64 * unit * one.norm()


@pytest.mark.parametrize("kernel", [RBF(), 1e6 * RBF() + 1.0], ids=["unit variance", "large variance"])
@pytest.mark.parametrize("entries", [HALF, BFLOAT16, SINGLE, DOUBLE], ids=lambda entries: entries.name)
@pytest.mark.parametrize("name", ["double", "single"])
def test_entries_of_another_width_than_the_vectors_are_stored_as_announced_or_refused(
    name: str, entries: Format, kernel: Kernel
) -> None:
    precision = Precision.resolve(name).with_entries(entries)
    x, v = random(300, 3), random(300, 4, seed=1)
    try:
        operator = KernelOperator(kernel, x, precision=precision, backend="cpu", storage="stored")
    except InputError:
        return
    found, wanted = operator @ v, definition(kernel, x, None) @ v
    unit = max(entries.unit_roundoff, precision.vectors.unit_roundoff)
    assert (found - wanted).norm() <= 16 * unit * wanted.norm()
    assert operator.storage == f"stored {str(entries.dtype).removeprefix('torch.')}"
    if kernel.amplitude(x) == 1.0:  # otherwise entries may be held in units of it
        column = (operator @ torch.eye(300, 1, dtype=torch.float64))[1:]
        assert torch.equal(column, column.to(entries.dtype).double())


def test_an_unknown_instruction_set_is_an_error_that_names_those_there_are() -> None:
    with pytest.raises(InputError, match=r"`instruction_set` must be one of \['scalar'.*got 'mmx'"):
        KernelOperator(RBF(), random(3, 2), backend=cpu.CpuBackend("mmx"))


def test_the_best_instruction_set_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HALFGP_INSTRUCTION_SET", raising=False)
    matrix = bind(Contestant("cpu", cpu.BACKEND), RBF(), random(3, 2), None, "single")
    assert matrix.instruction_set == cpu.instruction_sets()[-1]


@pytest.mark.parametrize("name", cpu.instruction_sets())
def test_the_environment_forces_an_instruction_set_where_the_caller_names_none(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HALFGP_INSTRUCTION_SET", name)
    matrix = bind(Contestant("cpu", cpu.BACKEND), RBF(), random(3, 2), None, "single")
    assert matrix.instruction_set == name
    named = bind(Contestant("cpu", cpu.CpuBackend("scalar")), RBF(), random(3, 2), None, "single")
    assert named.instruction_set == "scalar"


def test_an_unknown_instruction_set_in_the_environment_is_an_error_that_names_those_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HALFGP_INSTRUCTION_SET", "mmx")
    with pytest.raises(InputError, match=r"`HALFGP_INSTRUCTION_SET` must be one of \['scalar'.*got 'mmx'"):
        KernelOperator(RBF(), random(3, 2), backend="cpu")


@each_instruction_set
@pytest.mark.parametrize("t", [0, 1, 2, 5, 7, 13, 64, 256, 300])
def test_any_number_of_right_hand_sides_is_served(contestant: Contestant, t: int) -> None:
    kernel, x1, x2 = RBF() + 0.1 * Linear(), random(70, 3), random(300, 3, seed=1)
    for name in ("single", "half"):
        matrix = bind(contestant, kernel, x1, x2, name)
        assert_product_is_right(contestant, matrix, kernel, x1, x2, random(300, t, seed=2))
        square = bind(contestant, kernel, x2, None, name)
        assert_product_is_right(contestant, square, kernel, x2, None, random(300, t, seed=2))


@each_instruction_set
@pytest.mark.parametrize("name", ["double", "single"])
def test_input_gradients_far_from_the_centre_are_as_good_as_the_distances(
    contestant: Contestant, name: str
) -> None:
    # Two neighbours far out, at a distance of 1 from each other, whom the other points do not reach.
    x = random(300, 3)
    x[0], x[1] = torch.tensor([2.0**13, 0.0, 0.0]), torch.tensor([2.0**13 + 1.0, 0.0, 0.0])
    x[2:] -= x.sum(dim=0) / 298.0  # the mean is the origin, or nearly so
    u = random(300, 2, seed=1)
    for kernel in (RBF(), Matern(0.5), Matern(1.5)):
        matrix = bind(contestant, kernel, x, None, name)
        _, found, _ = matrix.bilinear_gradient(u, u, True)
        wanted = x[:2].clone().requires_grad_()
        pair = definition(kernel, wanted, None)
        (exact,) = torch.autograd.grad((pair * (u[:2] @ u[:2].T)).sum(), wanted)
        assert found is not None
        # Rounding moves the two apart by 2 u |x|, which changes a gradient by (2 + r^2) times as much; and
        # where it comes from terms of the size of |x|, by u |x| for each of four of these.
        tolerance = (3 * 2 + 4) * Precision.resolve(name).inputs.unit_roundoff * 2.0**13
        assert (found[:2] - exact).norm() <= tolerance * exact.norm()


@each_instruction_set
@pytest.mark.parametrize("lengthscale", [1.0, [1.0, 2.0, 0.5]], ids=["shared", "ard"])
def test_input_gradients_of_near_duplicates_do_not_cancel(
    contestant: Contestant, lengthscale: float | list[float]
) -> None:
    """However near two points are, the slope of Matern-1/2 has the length 1: its direction is what counts."""
    kernel = Matern(0.5, lengthscale)
    x = random(60, 3)
    x[30:] = x[:30] + 2.0**-20 * random(30, 3, seed=1).sign()
    u, v = random(60, 2, seed=2), random(60, 2, seed=3)
    found = bind(contestant, kernel, x, None, "single").bilinear_gradient(u, v, True)[1]
    exact = bind(contestant, kernel, x, None, "double").bilinear_gradient(u, v, True)[1]
    assert found is not None
    assert exact is not None
    # Coordinates below 4 are rounded by 2^-23 at most, those of a pair by 0.4 of that in the mean square;
    # relative to a distance of 2^-20 that is a twentieth, of one coordinate in three.
    assert (found - exact).norm() <= 0.1 * exact.norm()


COMPOSITIONS = st.recursive(
    st.sampled_from(
        [
            RBF(0.7),
            Matern(0.5),
            Matern(1.5, 3.0),
            Matern(2.5, 2.0),
            RationalQuadratic(alpha=20.0, lengthscale=5.0),
            Linear(),
            Periodic(2.0),
            Constant(0.4),
            White(0.3),
        ]
    ),
    lambda inner: (
        st.tuples(inner, inner).map(lambda pair: pair[0] + pair[1])
        | st.tuples(inner, inner).map(lambda pair: pair[0] * pair[1])
        | st.tuples(st.sampled_from([1e-3, 0.1, 5.0, 1e3]), inner).map(math.prod)
    ),
    max_leaves=5,
)


@each_instruction_set
@given(
    kernel=COMPOSITIONS,
    n=st.sampled_from([1, 3, 64, 65, 257]),
    m=st.sampled_from([1, 31, 256, 260]),
    d=st.sampled_from([1, 2, 3, 16, 17]),
    magnitude=st.floats(-3.0, 3.0).map(lambda power: 10.0**power),
    name=st.sampled_from(["double", "single", "half", "bfloat16"]),
    store=st.booleans(),
    square=st.booleans(),
    seed=st.integers(0, 2**20),
)
def test_any_composition_of_any_shape_and_magnitude_stays_within_the_bound(
    contestant: Contestant,
    kernel: Kernel,
    n: int,
    m: int,
    d: int,
    magnitude: float,
    name: str,
    store: bool,
    square: bool,
    seed: int,
) -> None:
    x1 = magnitude * random(n, d, seed=seed)
    x2 = None if square else magnitude * random(m, d, seed=seed + 1)
    amplitude = kernel.amplitude(*((x1,) if x2 is None else (x1, x2))).item()
    assume(1e-25 < amplitude < 1e25)  # squares of it are in the range of single
    matrix = bind(contestant, kernel, x1, x2, name, store)
    assert_product_is_right(contestant, matrix, kernel, x1, x2, random(n if square else m, 3, seed=seed + 2))


def test_the_words_of_a_program_are_the_engines_own() -> None:
    kinds = {node.kind for node in ((RBF() + 2.0 * Linear()) * Matern() + 1.0).program().nodes}
    assert set(cpu._cpu.NodeKind.__members__) == kinds
    profiles = {value for value in vars(profiles_of_the_package).values() if isinstance(value, Profile)}
    assert {profile.name for profile in profiles} == set(cpu._cpu.Profile.__members__)


def test_a_leaf_is_described_by_name_and_reads_back() -> None:
    words = {
        "profile": cpu._cpu.Profile.matern32,
        "near_path": cpu._cpu.Path.difference,
        "shared_scale": True,
        "by_products": True,
    }
    numbers = {"features": 2, "shape": 0.5, "least_exponent": -24.0, "factor": 3.0, "fixed_step": 0.25}
    given = {**words, **numbers, "centre": [1.0, 2.0]}
    leaf = cpu._cpu.Leaf(**given)
    assert {name: getattr(leaf, name) for name in given} == given
