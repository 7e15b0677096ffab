"""The nearest rows: what is near by a kernel, and the exact search of every backend."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from halfgp.backends import available
from halfgp.backends.reference import BACKEND as REFERENCE
from halfgp.kernels import RBF, Constant, Linear
from halfgp.nearest import NearestSearch, along_a_curve, metric

BACKENDS = {"reference": REFERENCE}
if "cpu" in available():
    from halfgp.backends.cpu import CpuBackend, instruction_sets

    BACKENDS |= {name: CpuBackend(name) for name in instruction_sets()}
STRIP = 64  # points of a leaf of the engine's tree


@pytest.fixture(params=list(BACKENDS), ids=str, scope="module")
def backend(request):
    return BACKENDS[request.param]


def coordinates(n, f, seed=0, distinct=None):
    z = torch.randn(distinct or n, f, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return z[torch.arange(n) % len(z)]


def check_nearest(z, row, candidates, members, k):
    """Members are distinct candidates, and none that was left out is nearer."""
    members = members[members >= 0]
    assert len(members) == min(k, len(candidates))
    assert len(set(members.tolist())) == len(members)
    assert set(members.tolist()) <= set(candidates.tolist())
    wanted = (z[candidates] - row).norm(dim=1).sort().values[: len(members)]
    # Ties may go either way, so that distances are compared, which differ by the rounding of their sums.
    torch.testing.assert_close((z[members] - row).norm(dim=1), wanted, rtol=1e-13, atol=0)


@given(
    n=st.sampled_from([1, 2, STRIP - 1, STRIP, STRIP + 1, 200]),
    f=st.sampled_from([1, 2, 3, 9]),
    k=st.sampled_from([1, 5, 70]),
    distinct=st.sampled_from([None, 3]),
    seed=st.integers(0, 5),
)
@settings(deadline=None, max_examples=25)
def test_the_nearest_of_earlier_rows_are_found(backend, n, f, k, distinct, seed):
    z = coordinates(n, f, seed, distinct and min(distinct, n))
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    positions = torch.arange(n)[:: 1 + seed % 2]
    rows = order[positions]
    found = backend.nearest(NearestSearch.among_earlier(z, order, rows), k, threads=2)
    for position, row, members in zip(positions.tolist(), rows, found, strict=True):
        check_nearest(z, z[row], order[:position], members, k)


@given(n=st.sampled_from([1, 5, 150]), f=st.sampled_from([1, 4]), k=st.integers(1, 7), seed=st.integers(0, 3))
@settings(deadline=None, max_examples=25)
def test_the_nearest_of_all_leave_out_the_row_itself_alone(backend, n, f, k, seed):
    z = coordinates(n, f, seed)
    found = backend.nearest(NearestSearch.among_others(z, torch.arange(n)), k, threads=1)
    for row in range(n):
        check_nearest(
            z, z[row], torch.tensor([i for i in range(n) if i != row], dtype=torch.long), found[row], k
        )


def test_points_that_are_no_rows_see_all_of_them_whatever_the_order(backend):
    z, queries = coordinates(300, 2), coordinates(100, 2, seed=1)
    positions = torch.randperm(300, generator=torch.Generator().manual_seed(2))
    search = NearestSearch(z, queries, torch.full((100,), -1), positions)
    for query, members in zip(queries, backend.nearest(search, 9, threads=2), strict=True):
        check_nearest(z, query, torch.arange(300), members, 9)


def test_clusters_far_apart_do_not_round_together(backend):
    """Distances of an expansion into squares would be lost at 1e8."""
    z = coordinates(200, 2) * 1e-3
    z[100:] += 1e8
    found = backend.nearest(NearestSearch.among_others(z, torch.arange(200)), 3, threads=1)
    for row in range(200):
        check_nearest(z, z[row], torch.tensor([i for i in range(200) if i != row]), found[row], 3)


def test_threads_change_nothing_and_nothing_is_searched_in_nothing(backend):
    z = coordinates(1000, 3)
    search = NearestSearch.among_others(z, torch.arange(1000))
    assert torch.equal(backend.nearest(search, 8, threads=1), backend.nearest(search, 8, threads=3))
    assert backend.nearest(search, 0, threads=1).shape == (1000, 0)
    none = torch.empty(0, dtype=torch.long)
    assert backend.nearest(NearestSearch.among_others(z, none), 4, threads=1).shape == (0, 4)
    alone = NearestSearch(z[:0], z[:2], torch.full((2,), -1))
    assert bool((backend.nearest(alone, 3, threads=1) == -1).all())


@pytest.mark.parametrize(
    ("kernel", "features"), [(RBF(), 3), (RBF() + RBF(active_dims=[0]), 4), (Linear(), 3), (Constant(1.0), 1)]
)
def test_every_kernel_has_a_metric(kernel, features):
    assert metric(kernel, coordinates(4, 3)).shape == (4, features)


def test_linear_parts_do_not_move_a_metric_that_stationary_ones_make():
    x = coordinates(4, 3)
    assert torch.equal(metric(RBF() + Linear(), x), metric(RBF(), x))


@pytest.mark.parametrize("f", [1, 2, 3, 9])
def test_along_a_curve_near_points_are_together(f):
    z = coordinates(1000, f)
    z[:, 0] *= 1e4  # one feature is far wider than others, as where lengthscales differ
    order = along_a_curve(z)
    assert torch.equal(order.sort().values, torch.arange(1000))

    def steps(points):
        return float((points[1:] - points[:-1]).norm(dim=1).mean())

    assert steps(z[order]) < 0.02 * steps(z)


@pytest.mark.parametrize("z", [torch.zeros(5, 2), torch.zeros(1, 3), torch.zeros(0, 2), torch.zeros(4, 0)])
def test_points_that_are_nowhere_apart_keep_their_order(z):
    assert torch.equal(along_a_curve(z.double()), torch.arange(len(z)))
