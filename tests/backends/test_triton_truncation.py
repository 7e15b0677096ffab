"""Tiles of zeros are passed by on a device too: the same bits, and the share that boxes prove."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from contracts.device import RemoteDevice, on_device
from torch import Tensor

pytest.importorskip("triton")

from halfgp import RBF, Constant, KernelOperator, Linear, Matern, Periodic, RationalQuadratic
from halfgp.backends.base import KernelMatrix
from halfgp.backends.part import Part
from halfgp.backends.triton import BACKEND, box_order
from halfgp.backends.triton.live_tiles import LEAST_SKIPPED
from halfgp.backends.triton.matrix import TritonMatrix
from halfgp.backends.triton.points import PADDING
from halfgp.kernels import Kernel
from halfgp.precision import HALF, SINGLE, Precision
from halfgp.truncation import Truncation

N = 3 * PADDING
FORMATS = ("half", "bfloat16", "single")


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


def clusters(d: int, n: int = N, apart: float = 4000.0, seed: int = 0) -> Tensor:
    """Rows of three clusters far apart, as many of each, mixed up, some of them repeated."""
    x = random(n, d, seed=seed)
    x[1 : n // 6 : 2] = x[0 : n // 6 - 1 : 2]
    x[:, 0] += apart * (torch.arange(n) * 3 // n)
    return x[torch.randperm(n, generator=generator(seed + 1))]


def bind(
    kernel: Kernel, x1: Tensor, x2: Tensor | None, name: str, skip: bool = True, **options: Any
) -> TritonMatrix:
    precision = Precision.resolve(name)
    if precision.is_sixteen_bit:
        precision = precision.with_entries(SINGLE)
    truncation = Truncation(options.pop("cutoff", 0.0), skip)
    found = BACKEND.bind(
        kernel, x1, x2, precision=precision, store=False, threads=1, truncation=truncation, **options
    )
    assert isinstance(found, TritonMatrix)
    return found


def assert_same(one: KernelMatrix, two: KernelMatrix, inputs: bool = False) -> None:
    """Products and gradients of both, to the bit."""
    u, v = (random(size, 2, seed=size) for size in one.shape)
    assert torch.equal(one.matmul(v, None), two.matmul(v, None))
    (by_name, *points), (other, *others) = (matrix.bilinear_gradient(u, v, inputs) for matrix in (one, two))
    for name in by_name:
        assert torch.equal(by_name[name], other[name]), name
    for a, b in zip(points, others, strict=True):
        assert (a is None and b is None) or torch.equal(a, b)


SKIPPED: dict[str, Kernel] = {
    "rbf": RBF(0.9),
    "matern12": Matern(0.5),
    "matern32": 2.0 * Matern(1.5),
    "matern52": Matern(2.5, [0.5, 1.0, 2.0]),
    "sum": RBF() + 0.5 * Matern(1.5),
    "product": RBF([0.5, 1.0, 2.0]) * Linear(),
    "nested": (RBF(active_dims=[0]) + Matern(2.5)) * (RationalQuadratic(1.0) + Constant(0.5)),
}
LOOKED_AT: dict[str, Kernel] = {
    "rational quadratic": RationalQuadratic(0.7),
    "periodic": Periodic(1.0, 1.0),
    "linear": Linear(),
    "beside a constant": RBF() + Constant(1e-3),
    "beside an inner product": RBF() + Linear(),
    "of another feature": RBF(active_dims=[1]),
}


@pytest.mark.parametrize("name", ["half", "single"])
@pytest.mark.parametrize("kernel", SKIPPED.values(), ids=SKIPPED)
def test_results_are_the_same_to_the_bit_for_every_kernel_and_format(kernel: Kernel, name: str) -> None:
    x = clusters(3)
    whole, cut = (bind(kernel, x, None, name, skip) for skip in (False, True))
    assert whole.skipped == 0.0
    assert cut.skipped > 0.3
    assert_same(whole, cut, inputs=True)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("kernel", LOOKED_AT.values(), ids=LOOKED_AT)
def test_nothing_is_skipped_where_entries_between_clusters_are_not_zero(kernel: Kernel, name: str) -> None:
    assert bind(kernel, clusters(3), None, name).skipped == 0.0


def test_a_rational_quadratic_that_falls_fast_enough_is_skipped() -> None:
    x = clusters(3)
    whole, cut = (bind(RationalQuadratic(4.0), x, None, "half", skip) for skip in (False, True))
    assert cut.skipped > 0.3
    assert_same(whole, cut)


def line(n: int = 4 * PADDING) -> Tensor:
    """One feature, in no order."""
    return 400.0 * torch.rand(n, 1, generator=generator(2), dtype=torch.float64)


@pytest.mark.parametrize("name", FORMATS)
def test_results_are_the_same_to_the_bit_along_a_line(name: str) -> None:
    whole, cut = (bind(Matern(1.5, 0.9), line(), None, name, skip) for skip in (False, True))
    assert 0.3 < cut.skipped < 1.0
    assert_same(whole, cut)


def test_points_that_are_all_the_same_are_all_looked_at() -> None:
    x = torch.zeros(N, 2, dtype=torch.float64)
    whole, cut = (bind(RBF(), x, None, "half", skip) for skip in (False, True))
    assert cut.skipped == 0.0
    assert_same(whole, cut)


@pytest.mark.parametrize("ordering_entries", [0, 10**6], ids=["in order", "as they came"])
def test_results_are_the_same_to_the_bit_between_other_points(
    monkeypatch: pytest.MonkeyPatch, ordering_entries: int
) -> None:
    monkeypatch.setattr(box_order, "ORDERING_ENTRIES", ordering_entries)
    x, z = clusters(2), clusters(2, N, seed=7)[: N - 50]
    if ordering_entries:
        x, z = (points[points[:, 0].argsort()] for points in (x, z))  # as those of a time series may
    for rows, columns in ((x, z), (z, x)):
        whole, cut = (bind(Matern(2.5), rows, columns, "half", skip) for skip in (False, True))
        assert cut.skipped > 0.3
        assert_same(whole, cut, inputs=True)


def test_a_rectangle_is_put_in_order_where_that_costs_less_than_its_product() -> None:
    assert not box_order.pays((10**6, 1000), square=False)
    assert box_order.pays((10**6, 10**5), square=False)
    assert box_order.pays((1000, 1000), square=True)


@pytest.mark.parametrize("name", ["half", "single"])
def test_far_points_have_their_own_tiles_and_runs(name: str) -> None:
    """Those that the expansion serves, and those beyond its reach, in regions of their own."""
    x = torch.cat([random(PADDING + 40, 4), clusters(4, apart=300.0)])
    whole, cut = (bind(RBF(2.0), x, None, name, skip) for skip in (False, True))
    assert cut.skipped > 0.2
    assert_same(whole, cut)


@pytest.mark.parametrize("name", ["half", "single"])
@pytest.mark.parametrize(
    "kernel", [RBF(0.1), RBF(0.2) + 0.5 * Matern(0.5, 0.1), RBF(0.3) * Linear(), RationalQuadratic(6.0, 0.1)]
)
def test_what_is_cut_off_is_passed_by_and_left_out_of_gradients(kernel: Kernel, name: str) -> None:
    cutoff = 1e-3
    x = torch.rand(3 * PADDING, 1, generator=generator(), dtype=torch.float64) * 6 + 0.5
    whole, cut = (bind(kernel, x, None, name, skip, cutoff=cutoff) for skip in (False, True))
    assert cut.skipped > LEAST_SKIPPED
    assert_same(whole, cut)
    assert cut.dropped() == whole.dropped() > 0.0


@pytest.mark.parametrize("name", ["half", "bfloat16", "single"])
@pytest.mark.parametrize(
    "profile", [RBF, lambda s: Matern(0.5, s), lambda s: Matern(1.5, s), lambda s: Matern(2.5, s)]
)
def test_tiles_that_are_just_out_of_reach_are_zero(profile: Any, name: str) -> None:
    """Two clusters are moved away from each other in steps of some roundings until one is passed by."""
    exponent = (SINGLE if name == "single" else Precision.resolve(name).inputs).vanishing_exponent
    kernel: Kernel = profile(1.0)
    leaf = kernel.program().leaves[0]
    reach = leaf.stationary.reach(-exponent * math.log(2.0), None)
    x = 1e-3 * torch.rand(2 * PADDING, 3, generator=generator(), dtype=torch.float64)
    # A Matérn's power of two leaves the range of single earlier than its product with the polynomial.
    steps = (-0.1, -1e-4, -1e-5, 0.0, 1e-5, 1e-4, 1e-2)
    told = []
    for step in steps:
        moved = x.clone()
        moved[PADDING:, 0] += reach * (1 + step) - moved[:PADDING, 0].max() + moved[PADDING:, 0].max()
        cut = bind(kernel, moved, None, name)
        told.append(cut.skipped)
        if cut.skipped:
            assert_same(bind(kernel, moved, None, name, skip=False), cut)
    assert told[0] == 0.0
    assert told[-1] == 0.5


def brute_force_share(matrix: TritonMatrix, x: Tensor, reach: float) -> float:
    """Of all pairs of points, those of tiles whose boxes are further apart than the kernel reaches."""
    places = matrix._sides[0].place
    tiles = [x[places // PADDING == k].numpy() for k in range(int(places.max()) // PADDING + 1)]
    boxes = [(tile.min(axis=0), tile.max(axis=0), len(tile)) for tile in tiles if len(tile)]
    skipped = 0
    for (low, high, count), (other_low, other_high, other_count) in itertools.product(boxes, boxes):
        gaps = [max(0.0, a - d, c - b) for a, b, c, d in zip(low, high, other_low, other_high, strict=True)]
        if math.hypot(*gaps) > reach:
            skipped += count * other_count
    return skipped / len(x) ** 2


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("n", [40 * PADDING, 40 * PADDING + 17])
def test_the_share_that_is_told_is_that_by_brute_force(d: int, n: int) -> None:
    x = torch.rand(n, d, generator=generator(d), dtype=torch.float64)
    matrix = bind(RBF(0.03), x, None, "half")
    reach = 0.03 * math.sqrt(2.0 * HALF.vanishing_fall)
    assert matrix.skipped > 0.3
    assert math.isclose(matrix.skipped, brute_force_share(matrix, x, reach), rel_tol=1e-12)


def test_an_operator_tells_the_share() -> None:
    operator = KernelOperator(RBF(0.9), clusters(3), precision="half", backend="triton")
    assert operator.truncation.skipped == operator.skipped > 0.3
    assert KernelOperator(RBF(0.9), clusters(3), backend="triton", truncate=False).skipped == 0.0


def test_parts_add_up_and_have_as_many_live_tiles_as_others() -> None:
    """A crowd, each of which looks at all of it, and loners."""
    x = torch.cat([random(4 * PADDING, 2), 1e4 * random(12 * PADDING, 2, seed=1)])
    whole = bind(RBF(), x, None, "single")
    parts = [bind(RBF(), x, None, "single", part=Part(k, 3)) for k in range(3)]
    assert all(part.skipped == whole.skipped > 0.5 for part in parts)
    live = [part._live for part in parts]
    counts = [len(found.tiles) for found in live if found is not None]
    assert len(counts) == 3
    assert whole._live is not None
    assert sum(counts) == len(whole._live.tiles)
    assert max(counts) - min(counts) <= 2 * 12  # what a row of tiles has, at either end
    v = random(len(x), 1, seed=3)
    found = torch.stack([part.matmul(v, None) for part in parts]).sum(dim=0)
    # Every row is of one part alone, but for its diagonal.
    torch.testing.assert_close(found, whole.matmul(v, None), rtol=1e-12, atol=1e-12)


def test_no_list_is_kept_where_little_is_skipped() -> None:
    x = torch.rand(6 * PADDING, 2, generator=generator(), dtype=torch.float64)
    matrix = bind(RBF(0.22), x, None, "half")
    assert matrix._live is None
    assert matrix.skipped == 0.0


@pytest.mark.parametrize("n", [0, 1, PADDING, PADDING + 1])
def test_few_rows_are_multiplied_as_ever(n: int) -> None:
    x = clusters(2, max(n, 6))[:n]
    whole, cut = (bind(RBF(), x, None, "half", skip) for skip in (False, True))
    assert_same(whole, cut)


def test_binding_moves_nothing_of_the_size_of_the_rows() -> None:
    x = clusters(2, 6 * N)
    precision = Precision.resolve("half").with_entries(SINGLE)
    wanted = bind(Matern(1.5), x, None, "half")._live
    assert wanted is not None
    with RemoteDevice() as device:
        remote = TritonMatrix(Matern(1.5), on_device(x), None, precision, Truncation(), False)
        live = remote._live
        assert live is not None
        spans = live.spans(live.rows, range(6 * N), 4 * PADDING)
    assert device.largest["to host"] < len(x) / PADDING
    assert torch.equal(live.tiles.held, wanted.tiles)  # type: ignore[attr-defined]
    assert torch.equal(spans.held, wanted.spans(wanted.rows, range(6 * N), 4 * PADDING))  # type: ignore[attr-defined]
