"""Sparse triangular factors of every backend against dense algebra."""

from __future__ import annotations

import pytest
import torch

from halfgp.backends import available, get_backend
from halfgp.precision import DOUBLE

N, K = 70, 5


@pytest.fixture(params=available())
def backend(request):
    return get_backend(request.param, torch.device("cpu"))


def entries():
    """Columns (n, k), some of them absent, entries (n, k + 1), and the dense matrix."""
    generator = torch.Generator().manual_seed(0)
    columns = torch.full((N, K), -1)
    for row in range(N):
        some = torch.randperm(row, generator=generator)[: K - row % 3]
        columns[row, : len(some)] = some
    values = torch.randn(N, K + 1, generator=generator, dtype=torch.float64)
    values[:, -1] = 2.0 + values[:, -1].abs()
    dense = torch.zeros(N, N, dtype=torch.float64)
    for row in range(N):
        present = columns[row] >= 0
        dense[row, columns[row][present]] = values[row, :-1][present]
        dense[row, row] = values[row, -1]
    return columns, values, dense


@pytest.mark.parametrize("t", [1, 4])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("threads", [1, 3])
def test_products_and_solves_are_those_of_the_dense_matrix(backend, t, transposed, threads):
    columns, values, dense = entries()
    factor = backend.sparse_factor(columns, values, threads=threads)
    matrix = dense.T if transposed else dense
    v = torch.randn(N, t, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    # A sum of at most n products errs by n eps of their sizes.
    room = N * DOUBLE.eps * float((matrix.abs() @ v.abs()).max())
    torch.testing.assert_close(factor.multiply(v, transposed), matrix @ v, rtol=0, atol=room)
    solved = factor.solve(v, transposed)
    room = N * DOUBLE.eps * float((matrix.abs() @ solved.abs()).max())
    torch.testing.assert_close(matrix @ solved, v, rtol=0, atol=room)


def test_the_vector_that_is_solved_for_stays_as_it_was(backend):
    columns, values, _ = entries()
    factor = backend.sparse_factor(columns, values, threads=1)
    v = torch.ones(N, 2, dtype=torch.float64)
    factor.solve(v)
    assert bool((v == 1.0).all())
