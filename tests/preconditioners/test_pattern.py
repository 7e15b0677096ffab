"""A pattern that is kept, and for what."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from halfgp import RBF, KernelOperator, Linear, Matern, Periodic, SparseInverseCholesky
from halfgp.backends.part import Part
from halfgp.preconditioners import conditioned_on
from halfgp.preconditioners.pattern import SPREAD, Pattern, joined, members_within

RECIPE = SparseInverseCholesky(neighbours=8, landmarks=16)


def operator(kernel, n=200, seed=0, noise=0.1):
    x = torch.randn(n, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return KernelOperator(kernel, x, noise=noise).bound


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (RBF([1.0, 1.0, 1.0]), True),
        (2.0 * RBF([1.0, 1.0, 1.0]), True),  # who is near does not depend on the variance
        (RBF([1.4, 0.7, 1.0]), True),
        (RBF([1.6, 1.0, 1.0]), False),
        (RBF([1.0, 1.0, 0.6]), False),
        (RBF(1.2), True),
        (RBF([1.0, 1.0], active_dims=[0, 1]), False),
        (RBF([1.0, 1.0, 1.0]) + 0.1 * Linear(), True),
        (RBF([1.0, 1.0, 1.0]) * Matern(1.5), False),
    ],
    ids=str,
)
def test_it_serves_while_coordinates_are_about_what_they_were(kernel, expected):
    pattern = RECIPE.pattern(operator(RBF([1.0, 1.0, 1.0])))
    assert pattern.serves(operator(kernel)) is expected


def test_it_does_not_serve_other_points_or_another_period():
    pattern = RECIPE.pattern(operator(Periodic(period=2.0)))
    assert pattern.serves(operator(Periodic(period=2.0, lengthscale=1.2)))
    assert not pattern.serves(operator(Periodic(period=2.1)))
    assert not pattern.serves(operator(Periodic(period=2.0), seed=1))
    assert not pattern.serves(operator(Periodic(period=2.0), n=199))


def test_what_is_conditioned_on_a_kept_pattern_is_of_the_new_matrix():
    pattern = RECIPE.pattern(operator(Matern(1.5, 1.0)))
    now = operator(Matern(1.5, 1.3), noise=0.05)
    root = conditioned_on(now, pattern).whiten(torch.eye(200, dtype=torch.float64))
    dense = now.with_precision("double").matmul(torch.eye(200, dtype=torch.float64))
    whitened = root @ dense @ root.T
    torch.testing.assert_close(whitened.diagonal(), torch.ones(200, dtype=torch.float64), rtol=0, atol=1e-9)
    # As near to the identity as with a pattern of its own, nearly.
    own = RECIPE.build(now).whiten(torch.eye(200, dtype=torch.float64))
    away = [float((r @ dense @ r.T - torch.eye(200)).norm()) for r in (root, own)]
    assert away[0] < 1.5 * away[1]


@settings(deadline=None, max_examples=40)
@given(
    n=st.integers(1, 400),
    group=st.integers(1, 40),
    neighbours=st.integers(0, 12),
    landmarks=st.integers(0, 5),
    repeats=st.booleans(),
)
def test_groups_are_of_near_rows_that_are_given_earlier_ones(n, group, neighbours, landmarks, repeats):
    op = operator(RBF(1.0), n=n)
    if repeats:
        op = KernelOperator(RBF(1.0), op.x1[torch.arange(n) // 7], noise=0.1).bound
    chosen = torch.arange(min(landmarks, n))
    found = Pattern.around(op, chosen, neighbours, group, seed=0)
    starts, at, members = found.groups
    assert sorted([*chosen.tolist(), *found.others.tolist()]) == list(range(n))
    assert starts[0] == 0
    assert starts[-1] == len(found.others)
    if len(found.others):
        assert int(starts.diff().min()) >= 1
        assert int(starts.diff().max()) <= SPREAD * group
    z = found.coordinates[found.others]
    for g in range(len(starts) - 1):
        own_members = members[at[g] : at[g + 1]]
        assert len(own_members) <= members_within(neighbours, group)
        assert bool((own_members < starts[g]).all())
        assert bool((own_members.diff() > 0).all())
        # Each row's nearest among the rows before its group, unless there were too many of them in all.
        if neighbours and int(starts[g]) and len(own_members) < members_within(neighbours, group):
            own = z[starts[g] : starts[g + 1]]
            nearest = torch.cdist(own, z[: starts[g + 1]], compute_mode="donot_use_mm_for_euclid_dist")
            for i, distances in enumerate(nearest):
                before = distances[: int(starts[g]) + i]
                kth = before.sort().values[: min(neighbours, len(before))][-1]
                sure = (before < kth * (1 - 1e-9)).nonzero()[:, 0]
                assert set(sure[sure < starts[g]].tolist()) <= set(own_members.tolist())


def test_of_too_many_the_nearest_to_a_row_goes_before_what_two_rows_have_further_off():
    near = torch.tensor([[0, 4, 5], [1, 4, 5], [2, 6, 7], [3, 6, 7]])
    near[:, 1:] = near[:, 1:].flip(1)
    starts = torch.tensor([8, 12])
    padded = torch.cat([near[:, :1], torch.full((4, 3), -1), near[:, 1:]], dim=1)  # worth 1, 1/5 and 1/6
    assert joined(padded, starts, 4).members.tolist() == [0, 1, 2, 3]
    assert joined(padded, starts, 6).members.tolist() == [0, 1, 2, 3, 5, 7]
    assert joined(padded, starts, 99).members.tolist() == list(range(8))


def test_parts_have_the_groups_of_the_whole():
    op = operator(RBF(1.0), n=300)
    chosen = torch.arange(10)
    whole = Pattern.around(op, chosen, 6, 8, 0)
    parts = [Pattern.around(op, chosen, 6, 8, 0, Part(i, 3)) for i in range(3)]
    assert torch.equal(torch.cat([part.groups.members for part in parts]), whole.groups.members)
    assert all(torch.equal(part.others, whole.others) for part in parts)
    assert sum(len(part.groups.starts) - 1 for part in parts) == len(whole.groups.starts) - 1
