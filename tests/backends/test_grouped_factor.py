"""Factors of groups of rows, of every backend, against dense algebra."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from halfgp import RBF, Linear, Matern, Periodic
from halfgp.backends import available, cpu, get_backend
from halfgp.backends.grouped_factor import GroupedRows, Groups
from halfgp.precision import DOUBLE, SINGLE

N = 90
KERNELS = {
    "rbf": 2.0 * RBF(lengthscale=0.7),
    "rough": Matern(0.5, lengthscale=[0.5, 1.0, 2.0]),
    "composite": Matern(1.5) * Periodic(period=2.0, active_dims=[0]) + 0.3 * Linear(),
}
BACKENDS = {name: get_backend(name, torch.device("cpu")) for name in available()}
BACKENDS |= {name: cpu.CpuBackend(name) for name in cpu.instruction_sets()}


@pytest.fixture(params=BACKENDS.values(), ids=BACKENDS.keys())
def backend(request):
    return request.param


def groups(sizes=(1, 2, 5, 7, 33, 40, 2), members=11):
    """Of those sizes, each with at most so many members; the first has none."""
    generator = torch.Generator().manual_seed(0)
    starts = torch.tensor([0, *sizes]).cumsum(0)
    given = [torch.randperm(int(s), generator=generator)[:members].sort().values for s in starts[:-1]]
    counts = torch.tensor([0, *map(len, given)])
    return Groups(starts, counts.cumsum(0), torch.cat(given))


def rows_of(kernel=KERNELS["rough"], landmarks=0, noise=0.01, some=None, repeats=1):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(N // repeats, 3, generator=generator, dtype=torch.float64).repeat(repeats, 1)
    diagonal = kernel.diagonal(x) + noise
    at = torch.randn(landmarks, 3, generator=generator, dtype=torch.float64)
    lower = torch.linalg.cholesky(kernel(at, at).detach() + 0.1 * torch.eye(landmarks, dtype=torch.float64))
    explained = torch.linalg.solve_triangular(lower, kernel(at, x).detach(), upper=False).T.contiguous()
    return GroupedRows(x, diagonal, explained, groups() if some is None else some)


def dense(kernel, of):
    """G by definition, and the matrix that it is of."""
    matrix = kernel(of.x, of.x).detach()
    matrix.diagonal().copy_(of.diagonal)
    matrix = matrix - of.explained @ of.explained.T
    factor = torch.zeros(N, N, dtype=torch.float64)
    starts, at, members = of.groups
    for g in range(len(starts) - 1):
        rows = torch.arange(int(starts[g]), int(starts[g + 1]))
        group = torch.cat([members[at[g] : at[g + 1]], rows])
        lower = torch.linalg.cholesky(matrix[group][:, group])
        eye = torch.eye(len(group), dtype=torch.float64)
        inverse = torch.linalg.solve_triangular(lower, eye, upper=False)
        factor[rows[:, None], group] = inverse[-len(rows) :]
    return factor, matrix


def rounding(matrix):
    """Of sums of n products, as the worst group's condition magnifies them."""
    return N * DOUBLE.eps * float(torch.linalg.cond(matrix))


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS.keys())
@pytest.mark.parametrize("landmarks", [0, 3])
@pytest.mark.parametrize("t", [1, 4, 9])  # which are added up four at a time
def test_products_and_solves_are_those_of_the_dense_matrix(backend, kernel, landmarks, t):
    of = rows_of(kernel, landmarks)
    exact, matrix = dense(kernel, of)
    factor = backend.grouped_factor(kernel, of, entries_in=DOUBLE, threads=2)
    v = torch.randn(N, t, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    room = rounding(matrix) * float(exact.abs().sum(dim=1).max() + exact.abs().sum(dim=0).max())
    for transposed, of_it in ((False, exact), (True, exact.T)):
        product = factor.multiply(v, transposed)
        torch.testing.assert_close(product, of_it @ v, rtol=0, atol=room * float(v.abs().max()))
        back = factor.solve(product, transposed)
        torch.testing.assert_close(back, v, rtol=0, atol=rounding(matrix) * float(torch.linalg.cond(exact)))
    assert factor.log_pivots == pytest.approx(float(exact.diagonal().log().sum()), abs=N * rounding(matrix))
    assert factor.indefinite == 0


def test_entries_in_single_are_rounded_once(backend):
    kernel, of = KERNELS["rough"], rows_of()
    exact, matrix = dense(kernel, of)
    factor = backend.grouped_factor(kernel, of, entries_in=SINGLE, threads=1)
    found = factor.multiply(torch.eye(N, dtype=torch.float64))
    torch.testing.assert_close(found, exact, rtol=SINGLE.unit_roundoff * (1 + 1e-6), atol=rounding(matrix))
    assert bool((found == found.float().double()).all())


@pytest.mark.parametrize("cut", [0, 2, 7])
def test_some_groups_have_their_rows_and_solve_after_the_others(backend, cut):
    kernel, every = KERNELS["rough"], rows_of()
    exact, matrix = dense(kernel, every)
    parts = [every.groups.some(0, cut), every.groups.some(cut, 7)]
    first, second = (
        backend.grouped_factor(kernel, rows_of(some=some), entries_in=DOUBLE, threads=2) for some in parts
    )
    v = torch.randn(N, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    room = rounding(matrix) * float(exact.abs().sum(dim=0).max() + exact.abs().sum(dim=1).max()) * 4
    for transposed in (False, True):
        whole = (exact.T if transposed else exact) @ v
        both = first.multiply(v, transposed) + second.multiply(v, transposed)
        torch.testing.assert_close(both, whole, rtol=0, atol=room)
    room = rounding(matrix) * float(torch.linalg.cond(exact))
    torch.testing.assert_close(second.solve(first.solve(exact @ v)), v, rtol=0, atol=room)
    backwards = first.solve(second.solve(exact.T @ v, transposed=True), transposed=True)
    torch.testing.assert_close(backwards, v, rtol=0, atol=room)


def test_threads_change_no_bit(backend):
    kernel, of = KERNELS["composite"], rows_of(KERNELS["composite"], landmarks=2)
    v = torch.randn(N, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    one, three = (backend.grouped_factor(kernel, of, entries_in=DOUBLE, threads=k) for k in (1, 3))
    for transposed in (False, True):
        assert torch.equal(one.multiply(v, transposed), three.multiply(v, transposed))
    assert one.log_pivots == three.log_pivots


def test_a_group_that_is_singular_goes_without_its_members_or_its_rows_by_themselves(backend):
    """Every row is there three times, without noise."""
    kernel = RBF(lengthscale=0.05)
    starts = torch.tensor([0, 30, 60, 90])
    given = torch.arange(30).repeat(2)
    with_members = Groups(starts, torch.tensor([0, 0, 30, 60]), given)
    of = rows_of(kernel, noise=0.0, some=with_members, repeats=3)
    factor = backend.grouped_factor(kernel, of, entries_in=DOUBLE, threads=1)
    found = factor.multiply(torch.eye(N, dtype=torch.float64))
    assert factor.indefinite == 0
    alone, _ = dense(kernel, rows_of(kernel, noise=0.0, some=groups((30, 30, 30), members=0), repeats=3))
    torch.testing.assert_close(found, alone, rtol=0, atol=N * DOUBLE.eps)
    whole = Groups(torch.tensor([0, 90]), torch.tensor([0, 0]), given[:0])
    of = rows_of(kernel, noise=0.0, some=whole, repeats=3)
    factor = backend.grouped_factor(kernel, of, entries_in=DOUBLE, threads=1)
    torch.testing.assert_close(
        factor.multiply(torch.eye(N, dtype=torch.float64)), torch.eye(N, dtype=torch.float64)
    )


def test_rows_that_landmarks_explain_to_nothing_are_counted(backend):
    kernel = KERNELS["rough"]
    of = rows_of(kernel, landmarks=1)
    of.explained[5] = 10.0
    assert backend.grouped_factor(kernel, of, entries_in=DOUBLE, threads=1).indefinite == 1


def test_points_in_single_are_computed_with_in_double(backend):
    kernel = KERNELS["composite"]
    of = rows_of(kernel)
    v = torch.randn(N, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    found = [
        backend.grouped_factor(kernel, replace(of, x=x), entries_in=DOUBLE, threads=1).multiply(v)
        for x in (of.x.float(), of.x.float().double())
    ]
    assert torch.equal(*found)
