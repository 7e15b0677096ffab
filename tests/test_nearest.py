from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from halfgp.kernels import RBF, Constant, Linear
from halfgp.nearest import TREE_FEATURES, metric, nearest_earlier, nearest_to


def coordinates(n, f, seed=0, distinct=None):
    z = torch.randn(distinct or n, f, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return z[torch.arange(n) % len(z)]


@given(
    n=st.integers(1, 60),
    f=st.sampled_from([1, 2, TREE_FEATURES, TREE_FEATURES + 1, 9]),
    k=st.integers(1, 12),
    distinct=st.sampled_from([None, 3]),
    seed=st.integers(0, 5),
)
def test_the_nearest_of_earlier_rows_are_found(n, f, k, distinct, seed):
    z = coordinates(n, f, seed, distinct and min(distinct, n))
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    positions = torch.arange(n)[:: 1 + seed % 2]
    found = nearest_earlier(z, order, positions, k)
    for position, members in zip(positions.tolist(), found, strict=True):
        row, earlier = order[position], order[:position]
        members = members[members >= 0]
        assert len(members) == min(k, position)
        assert len(set(members.tolist())) == len(members)
        assert set(members.tolist()) <= set(earlier.tolist())
        wanted = (z[earlier] - z[row]).norm(dim=1).sort().values[: len(members)]
        # Ties may go either way, so that distances are compared; expanded squares lose half of the digits.
        torch.testing.assert_close((z[members] - z[row]).norm(dim=1), wanted, rtol=1e-7, atol=1e-6)


def test_the_nearest_of_all_leave_out_the_row_itself_and_others():
    z, rows = coordinates(50, 6), torch.tensor([3, 49])
    without = torch.tensor([0, 1, 2])
    found = nearest_to(z, rows, 5, without=without)
    for row, members in zip(rows, found, strict=True):
        others = torch.tensor([i for i in range(3, 50) if i != int(row)])
        wanted = others[(z[others] - z[row]).norm(dim=1).argsort()[:5]]
        assert members.tolist() == wanted.tolist()


@pytest.mark.parametrize(
    ("kernel", "features"), [(RBF(), 3), (RBF() + RBF(active_dims=[0]), 4), (Linear(), 3), (Constant(1.0), 1)]
)
def test_every_kernel_has_a_metric(kernel, features):
    assert metric(kernel, coordinates(4, 3)).shape == (4, features)


def test_linear_parts_do_not_move_a_metric_that_stationary_ones_make():
    x = coordinates(4, 3)
    assert torch.equal(metric(RBF() + Linear(), x), metric(RBF(), x))
