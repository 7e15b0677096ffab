"""Tiles of zeros are passed by on a device too: the same bits, and the share that boxes prove."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from contracts.backends import BACKENDS
from contracts.device import RemoteDevice, on_device
from torch import Tensor

pytest.importorskip("triton")

from halfgp import RBF, Constant, KernelOperator, Linear, Matern, Periodic, RationalQuadratic
from halfgp.backends.part import Part
from halfgp.backends.triton import BACKEND, box_order, runs
from halfgp.backends.triton.live_tiles import LEAST_SKIPPED
from halfgp.backends.triton.matrix import TritonMatrix
from halfgp.backends.triton.points import PADDING
from halfgp.kernels import Kernel
from halfgp.precision import HALF, SINGLE, Precision
from halfgp.selftest.checks import assert_same, clusters, random
from halfgp.selftest.contestant import Contestant
from halfgp.truncation import Truncation

pytestmark = pytest.mark.elsewhere
CONTESTANT: Contestant = next(place.values[0] for place in BACKENDS if place.id == "triton")
N = 3 * PADDING
FORMATS = ("half", "bfloat16", "single")


def uniform(n: int, d: int) -> Tensor:
    return torch.rand(n, d, generator=torch.Generator().manual_seed(d), dtype=torch.float64)


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
    x = clusters(2 * PADDING, 3, count=2)
    whole, cut = (bind(kernel, x, None, name, skip) for skip in (False, True))
    assert whole.skipped == 0.0
    assert cut.skipped > 0.3
    assert_same(whole, cut, CONTESTANT, inputs=name == "half")


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("kernel", LOOKED_AT.values(), ids=LOOKED_AT)
def test_nothing_is_skipped_where_entries_between_clusters_are_not_zero(kernel: Kernel, name: str) -> None:
    assert bind(kernel, clusters(N, 3), None, name).skipped == 0.0


def test_a_rational_quadratic_that_falls_fast_enough_is_skipped() -> None:
    x = clusters(2 * PADDING, 3, count=2)
    whole, cut = (bind(RationalQuadratic(4.0), x, None, "half", skip) for skip in (False, True))
    assert cut.skipped > 0.3
    assert_same(whole, cut, CONTESTANT)


def line(n: int = 4 * PADDING) -> Tensor:
    """One feature, in no order."""
    return 400.0 * uniform(n, 1)


@pytest.mark.parametrize("name", ["half", "single"])
def test_results_are_the_same_to_the_bit_along_a_line_with_runs_of_a_tile_each(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Of which most have no tile, so that no program goes over them."""
    monkeypatch.setattr(runs, "LEAST_RUN", PADDING)
    whole, cut = (bind(Matern(1.5, 0.9), line(), None, name, skip) for skip in (False, True))
    assert 0.3 < cut.skipped < 1.0
    assert_same(whole, cut, CONTESTANT)
    assert cut._live is not None
    assert [len(spans) for spans in cut._live._spans.values()] == [3]  # a tile and its neighbours, of four


def test_points_that_are_all_the_same_are_all_looked_at() -> None:
    x = torch.zeros(2 * PADDING, 2, dtype=torch.float64)
    whole, cut = (bind(RBF(), x, None, "half", skip) for skip in (False, True))
    assert cut.skipped == 0.0
    assert_same(whole, cut, CONTESTANT)


@pytest.mark.parametrize("ordering_entries", [0, 10**6], ids=["in order", "as they came"])
def test_results_are_the_same_to_the_bit_between_other_points(
    monkeypatch: pytest.MonkeyPatch, ordering_entries: int
) -> None:
    monkeypatch.setattr(box_order, "ORDERING_ENTRIES", ordering_entries)
    x, z = clusters(N, 2), clusters(N, 2, seed=7)[: N - 50]
    if ordering_entries:
        x, z = (points[points[:, 0].argsort()] for points in (x, z))  # as those of a time series may
    for rows, columns in ((x, z), (z, x)):
        whole, cut = (bind(Matern(2.5), rows, columns, "half", skip) for skip in (False, True))
        assert cut.skipped > 0.3
        assert_same(whole, cut, CONTESTANT, inputs=True)


def halved(points: Tensor, rows: list[int], tile: int) -> list[list[int]]:
    """Tiles of a tree of boxes, one box after the other."""
    if len(rows) <= tile:
        return [rows]
    here = points[rows]
    widest = int((here.amax(dim=0) - here.amin(dim=0)).argmax())
    along = sorted(rows, key=lambda row: float(points[row, widest]))
    middle = -(-len(rows) // tile) // 2 * tile
    return halved(points, along[:middle], tile) + halved(points, along[middle:], tile)


@pytest.mark.parametrize("n", [1, 8, 9, 100, 135])
def test_all_boxes_of_a_level_are_halved_as_one_by_one(n: int) -> None:
    """In two groups, each of which has tiles of its own."""
    points, groups = random(n, 3), (torch.arange(n) % 3 == 0).long()
    counts = torch.bincount(groups, minlength=2).tolist()
    order = box_order.in_boxes(points, groups, [-(-count // 8) for count in counts], 8).tolist()
    members = [[row for row in range(n) if groups[row] == group] for group in (0, 1)]
    wanted = [set(tile) for rows in members for tile in halved(points, rows, 8)]
    sizes = [min(8, count - first) for count in counts for first in range(0, count, 8)]
    starts = [sum(sizes[:k]) for k in range(len(sizes))]
    found = [set(order[start : start + size]) for start, size in zip(starts, sizes, strict=True)]
    assert found == [tile for tile in wanted if tile]


def test_a_rectangle_is_put_in_order_where_that_costs_less_than_its_product() -> None:
    assert not box_order.pays((10**6, 1000), square=False)
    assert box_order.pays((10**6, 10**5), square=False)
    assert box_order.pays((1000, 1000), square=True)


def test_far_points_have_their_own_tiles_and_runs() -> None:
    """Those that the expansion serves, and those beyond its reach, in regions of their own."""
    x = torch.cat([random(PADDING + 40, 4), clusters(N, 4, apart=300.0)])
    whole, cut = (bind(RBF(2.0), x, None, "half", skip) for skip in (False, True))
    assert cut.skipped > 0.2
    assert_same(whole, cut, CONTESTANT)


@pytest.mark.parametrize("name", ["half", "single"])
@pytest.mark.parametrize(
    "kernel", [RBF(0.1), RBF(0.2) + 0.5 * Matern(0.5, 0.1), RBF(0.3) * Linear(), RationalQuadratic(6.0, 0.1)]
)
def test_what_is_cut_off_is_passed_by_and_left_out_of_gradients(kernel: Kernel, name: str) -> None:
    cutoff = 1e-3
    x = uniform(3 * PADDING, 1) * 6 + 0.5
    whole, cut = (bind(kernel, x, None, name, skip, cutoff=cutoff) for skip in (False, True))
    assert cut.skipped > LEAST_SKIPPED
    assert_same(whole, cut, CONTESTANT)
    assert cut.dropped() == whole.dropped() > 0.0


def distance_at(kernel: Kernel, value: float) -> float:
    """Where along a diagonal the covariance, relative to the variance, falls to a value, by bisection."""
    low, high = 0.0, 1e9
    for _ in range(100):
        middle = (low + high) / 2
        x = torch.tensor([[0.0], [middle]], dtype=torch.float64).expand(2, 3)
        falls = kernel(x[:1], x[1:]) / kernel.amplitude(x) <= value
        low, high = (low, middle) if bool(falls) else (middle, high)
    return high


LEAVES: list[Kernel] = [RBF(), *(Matern(nu) for nu in (0.5, 1.5, 2.5)), RationalQuadratic(6.0)]
COMPOSED: list[Kernel] = [RBF() + 0.5 * Matern(1.5), RBF(2.0) * Matern(2.5, 2.0)]


@pytest.mark.parametrize(
    ("kernel", "name", "cutoff"),
    [
        *itertools.product(LEAVES + COMPOSED, ["half", "bfloat16"], [0.0]),
        *itertools.product(LEAVES + COMPOSED, ["single"], [1e-5]),
        *itertools.product(LEAVES, ["single"], [0.0]),  # a product of small factors may be zero unnoticed
    ],
)
def test_tiles_that_are_barely_out_of_reach_are_passed_by_only_if_they_are_zero(
    kernel: Kernel, name: str, cutoff: float
) -> None:
    """Rows, and tiles of columns around the distance at which entries vanish, from roundings to percents."""
    value = Truncation(cutoff).vanishing(Precision.resolve(name))
    steps = torch.logspace(-8, -2, 4, dtype=torch.float64)
    gaps = distance_at(kernel, value or 2.0**SINGLE.vanishing_exponent) * (
        1 + torch.cat([-steps, steps, torch.tensor([0.05, 0.1])])
    )
    spread = 1e-3 * torch.linspace(0.0, 1.0, PADDING, dtype=torch.float64)
    # One diagonal, on which the nearest corners of two boxes are points; to both sides of the rows.
    sides = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(len(gaps) // 2)
    x = (-spread[:, None]).expand(PADDING, 3).contiguous()
    columns = torch.where(sides[:, None] > 0, gaps[:, None] + spread, -gaps[:, None] - spread - 1e-3)
    z = columns.reshape(-1, 1).expand(-1, 3).contiguous()
    tile_of = torch.arange(len(z)) // PADDING
    v = (tile_of[:, None] == torch.arange(len(gaps))).double()
    whole, cut = (bind(kernel, x, z, name, skip, cutoff=cutoff) for skip in (False, True))
    assert cut._live is not None
    live = {int(tile) for tile in cut._live.tiles}
    # Tiles of points that the expansion does not serve come later, in the order of the others.
    places = cut._sides[-1].place[::PADDING] // PADDING
    passed_by = torch.tensor([int(place) not in live for place in places])
    assert passed_by[-1]
    if value:  # a power of two leaves the range of single before its product with a polynomial does
        assert not passed_by[: len(steps)].any()
    assert (whole.matmul(v, None)[:, passed_by] == 0.0).all()


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
    x = uniform(n, d)
    matrix = bind(RBF(0.03), x, None, "half")
    reach = 0.03 * math.sqrt(2.0 * HALF.vanishing_fall)
    assert matrix.skipped > 0.3
    assert math.isclose(matrix.skipped, brute_force_share(matrix, x, reach), rel_tol=1e-12)


def test_an_operator_tells_the_share() -> None:
    operator = KernelOperator(RBF(0.9), clusters(N, 3), precision="half", backend="triton")
    assert operator.truncation.skipped == operator.skipped > 0.3
    assert KernelOperator(RBF(0.9), clusters(N, 3), backend="triton", truncate=False).skipped == 0.0


def test_parts_add_up_and_have_as_many_live_tiles_as_others() -> None:
    """A crowd, each of which looks at all of it, and loners."""
    x = torch.cat([random(3 * PADDING, 2), 1e4 * random(6 * PADDING, 2, seed=1)])
    whole = bind(RBF(), x, None, "single")
    parts = [bind(RBF(), x, None, "single", part=Part(k, 3)) for k in range(3)]
    assert all(part.skipped == whole.skipped > 0.5 for part in parts)
    live = [part._live for part in parts]
    counts = [len(found.tiles) for found in live if found is not None]
    assert len(counts) == 3
    assert whole._live is not None
    assert sum(counts) == len(whole._live.tiles)
    assert max(counts) - min(counts) <= 2 * 4  # what a row of tiles has, at either end
    v = random(len(x), 1, seed=3)
    found = torch.stack([part.matmul(v, None) for part in parts]).sum(dim=0)
    # Every row is of one part alone, but for its diagonal.
    torch.testing.assert_close(found, whole.matmul(v, None), rtol=1e-12, atol=1e-12)


def test_no_list_is_kept_where_little_is_skipped() -> None:
    x = uniform(6 * PADDING, 2)
    matrix = bind(RBF(0.22), x, None, "half")
    assert matrix._live is None
    assert matrix.skipped == 0.0


@pytest.mark.parametrize("n", [0, 1, PADDING, PADDING + 1])
def test_few_rows_are_multiplied_as_ever(n: int) -> None:
    x = clusters(max(n, 6), 2)[:n]
    whole, cut = (bind(RBF(), x, None, "half", skip) for skip in (False, True))
    assert_same(whole, cut, CONTESTANT)


def test_binding_moves_nothing_of_the_size_of_the_rows() -> None:
    x = clusters(6 * N, 2)
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
