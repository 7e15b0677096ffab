"""Landmarks and neighbours: the factor against dense algebra, and what it does for CG."""

from __future__ import annotations

import math

import pytest
import torch

from halfgp import RBF, KernelOperator, Linear, Matern, Periodic, SparseInverseCholesky, White, cg
from halfgp.errors import InputError
from halfgp.model.stages import conditioning_of
from halfgp.operators.adapters import DenseOperator, as_operator
from halfgp.precision import DOUBLE, SINGLE, Precision
from halfgp.preconditioners import AutomaticPreconditioner, LandmarksAndNeighbours, LowRankPlusNoise
from halfgp.preconditioners import PivotedCholesky as LowRank
from halfgp.preconditioners.automatic import (
    BYTES_OF_LANDMARK,
    FEWEST,
    FOR_NEIGHBOURS,
    NEIGHBOURS,
    ROUNDED,
    bytes_of_row,
    bytes_within,
    entries_in,
    landmarks_within,
    neighbours_within,
    paying_neighbours,
)
from halfgp.preconditioners.pattern import Pattern
from halfgp.settings import Settings
from halfgp.solvers import log_determinant

N = 120
KERNELS = {
    "rbf": 2.0 * RBF(lengthscale=0.7),
    "rough": Matern(0.5, lengthscale=[0.5, 1.0]),
    "sum": Matern(1.5) + 0.3 * Linear() + White(0.01),
    "periodic": Periodic(period=2.0, active_dims=[0]) * RBF(lengthscale=3.0),
}


def operator(kernel=None, n=N, noise=0.01, repeats=1, **options):
    x = torch.randn(n // repeats, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return KernelOperator(kernel or Matern(1.5), x.repeat(repeats, 1), noise=noise, **options)


def dense(op):
    return torch.as_tensor(op.with_precision("double").to_dense())


def rounding(matrix):
    """Of n products of numbers as large as the matrix and its inverse are together."""
    return len(matrix) * DOUBLE.eps * float(torch.linalg.cond(matrix))


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize(("landmarks", "neighbours"), [(0, N), (15, N), (N, N), (40, 80)])
@pytest.mark.parametrize("precision", ["double", "single", "half"])
def test_with_all_rows_it_is_the_inverse(kernel, landmarks, neighbours, precision):
    op = operator(KERNELS[kernel], precision=precision)
    matrix, eye = dense(op), torch.eye(N, dtype=torch.float64)
    built = SparseInverseCholesky(neighbours, landmarks).build(op)
    torch.testing.assert_close(built.solve(matrix), eye, rtol=0, atol=rounding(matrix))
    exact = float(torch.logdet(matrix))
    assert built.log_determinant() == pytest.approx(exact, abs=N * rounding(matrix))


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize(("landmarks", "neighbours"), [(0, 7), (15, 7), (15, 0), (0, 0)])
@pytest.mark.parametrize("noise", [1e-6, 0.1, "vector"])
def test_solve_product_root_and_determinant_are_of_one_matrix(kernel, landmarks, neighbours, noise):
    noise = torch.linspace(0.01, 0.5, N, dtype=torch.float64) if noise == "vector" else noise
    op = operator(KERNELS[kernel], noise=noise)
    room = rounding(dense(op))
    built = SparseInverseCholesky(neighbours, landmarks).build(op)
    eye = torch.eye(N, dtype=torch.float64)
    inverse, root = built.solve(eye), built.whiten(eye)
    size = float(inverse.abs().max())
    torch.testing.assert_close(inverse, inverse.T, rtol=0, atol=room * size)
    torch.testing.assert_close(root.T @ root, inverse, rtol=0, atol=room * size)
    torch.testing.assert_close(built.whiten(eye, transposed=True), root.T, rtol=0, atol=room * size)
    torch.testing.assert_close(built.matmul(inverse), eye, rtol=0, atol=room)
    assert built.log_determinant() == pytest.approx(-float(torch.logdet(inverse)), abs=N * room)


def test_of_all_factors_with_its_pattern_it_whitens_the_diagonal():
    """G A G' has ones on its diagonal: what the least divergence comes to."""
    op = operator(RBF(lengthscale=0.5))
    root = SparseInverseCholesky(6, 10).build(op).whiten(torch.eye(N, dtype=torch.float64))
    whitened = root @ dense(op) @ root.T
    torch.testing.assert_close(whitened.diagonal(), torch.ones(N, dtype=torch.float64), rtol=0, atol=1e-9)


def test_a_row_depends_on_its_neighbours_and_landmarks_alone():
    op = operator(Matern(0.5, lengthscale=0.3))
    built = SparseInverseCholesky(4, 0, group=1).build(op)
    root = built.whiten(torch.eye(N, dtype=torch.float64))
    assert int((root != 0).sum(dim=1).max()) == 5


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_change_no_bit(threads):
    v = torch.randn(N, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    one = SparseInverseCholesky(8, 5).build(operator(threads=2)).solve(v)
    assert torch.equal(SparseInverseCholesky(8, 5).build(operator(threads=threads)).solve(v), one)


def test_rough_kernels_take_a_fraction_of_the_passes_of_low_rank():
    op = operator(Matern(1.5, lengthscale=0.3), n=2000, noise=1e-4)
    b = torch.sin(5.0 * op.bound.x1).sum(dim=1)
    by_rank = cg(op, b, preconditioner=LowRank(rank=200), tol=1e-3, max_iterations=2000)
    by_neighbours = cg(op, b, preconditioner=SparseInverseCholesky(30), tol=1e-3)
    assert by_neighbours.converged
    assert 5 * by_neighbours.iterations <= by_rank.iterations


@pytest.mark.parametrize("noise", [1e-1, 1e-4, 1e-7])
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_errors_of_solves_with_it_are_told(kernel, noise):
    """P may be above A, so that what steps show of the spectrum bounds the error."""
    n = 250
    op = operator(KERNELS[kernel], n=n, noise=noise, precision="double")
    matrix = dense(op)
    b = torch.linalg.cholesky(matrix) @ torch.randn(n, 2, generator=torch.Generator().manual_seed(3)).double()
    for wanted in (0.3, 0.03, 0.003):
        found = cg(
            op, b, preconditioner=SparseInverseCholesky(8), tol=0.9, error_tol=wanted, max_iterations=2000
        )
        e = torch.as_tensor(found.solution) - torch.linalg.solve(matrix, b)
        true = ((e * (matrix @ e)).sum(dim=0) / n).sqrt()
        assert found.converged
        assert bool((true <= 3.0 * torch.as_tensor(found.errors)).all())


def test_log_determinants_with_it_hold_the_exact_one():
    op = operator(Matern(1.5, lengthscale=0.5), n=400, noise=1e-3)
    exact = float(torch.logdet(dense(op)))
    found = log_determinant(op, preconditioner=SparseInverseCholesky(10, 20), precision="double")
    plain = log_determinant(op, precision="double", steps=400)
    assert abs(found.value - exact) <= 4.0 * found.error
    assert 5.0 * found.standard_error <= plain.standard_error


def test_repeated_rows_are_no_trouble():
    op = operator(RBF(), noise=1e-3, repeats=4)
    matrix = dense(op)
    built = SparseInverseCholesky(N, 5).build(op)
    eye = torch.eye(N, dtype=torch.float64)
    torch.testing.assert_close(built.solve(matrix), eye, rtol=0, atol=rounding(matrix))


@pytest.mark.parametrize("noise", [0.0, 1e-18])
def test_rows_too_close_for_the_noise_are_given_landmarks_alone(noise):
    """A neighbourhood of repeated rows is singular in double; the preconditioner is positive definite."""
    op = operator(RBF(lengthscale=0.05), noise=noise, repeats=2, precision="double")
    inverse = SparseInverseCholesky(5).build(op).solve(torch.eye(N, dtype=torch.float64))
    assert float(torch.linalg.eigvalsh(inverse).min()) > 0.0


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("landmarks", [0, 1, 5])
def test_few_rows(n, landmarks):
    op = operator(n=n)
    built = SparseInverseCholesky(4, landmarks).build(op)
    matrix = dense(op)
    torch.testing.assert_close(built.solve(matrix), torch.eye(n, dtype=torch.float64), rtol=0, atol=1e-9)


def test_matrices_that_do_not_know_their_points_are_refused():
    with pytest.raises(InputError, match="KernelOperator"):
        cg(torch.eye(5, dtype=torch.float64), torch.ones(5), preconditioner=SparseInverseCholesky())
    with pytest.raises(InputError, match="neighbours"):
        SparseInverseCholesky(neighbours=-1)


def test_automatic_takes_low_rank_where_it_leaves_less_than_the_noise_and_neighbours_elsewhere():
    smooth = AutomaticPreconditioner().build(operator(RBF(lengthscale=3.0), n=1000, noise=0.1))
    rough = AutomaticPreconditioner().build(operator(Matern(0.5, lengthscale=0.1), n=1000, noise=1e-4))
    assert isinstance(smooth, LowRankPlusNoise)
    assert isinstance(rough, LandmarksAndNeighbours)


def test_automatic_has_low_rank_for_a_matrix_that_does_not_know_its_points():
    class RowsAlone(DenseOperator):
        nugget = torch.tensor(1e-2, dtype=torch.float64)

    dense = operator(Matern(0.5, lengthscale=0.1), n=200, noise=1e-2).to_dense()
    rows_alone = RowsAlone(torch.as_tensor(dense), Precision.resolve("double"))
    assert isinstance(AutomaticPreconditioner().build(rows_alone), LowRankPlusNoise)


def test_automatic_holds_entries_in_single_where_that_does_not_show():
    """P of rounded entries whitens A as that of exact ones does, whatever the noise."""
    for noise, held in ((1e-3, SINGLE), (1e-12, DOUBLE)):
        matrix = operator(Matern(0.5, lengthscale=0.1), n=600, noise=noise)
        source = as_operator(matrix)
        assert entries_in(source, source.variances()) is held
        built = AutomaticPreconditioner().build(matrix)
        assert isinstance(built, LandmarksAndNeighbours)
        dense = torch.as_tensor(matrix.to_dense()).double()
        whitened = built.whiten(built.whiten(dense).T.contiguous()).diagonal()
        assert float((whitened - 1.0).abs().max()) <= ROUNDED


@pytest.mark.parametrize(
    ("memory", "wanted"),
    [(2**30, NEIGHBOURS), (math.ceil(bytes_of_row(20) * 1000 / FOR_NEIGHBOURS), 20), (0, FEWEST)],
)
def test_automatic_has_as_many_neighbours_as_memory_allows(memory, wanted, monkeypatch):
    found = []
    around = Pattern.around.__func__
    monkeypatch.setattr(Pattern, "around", classmethod(lambda *a: found.append(a[3]) or around(*a)))
    rough = operator(Matern(0.5, lengthscale=0.1), n=1000, noise=1e-4)
    AutomaticPreconditioner(memory=memory).build(rough)
    assert found == [wanted]
    conditioning = conditioning_of(Settings(memory_limit=4 * memory or 1), "cg", 1000)
    assert conditioning.recipe == AutomaticPreconditioner(memory=memory)


def test_automatic_builds_more_where_a_pass_takes_longer():
    assert [paying_neighbours(met) for met in (100, 40_000, 160_000, 10**7)] == [30, 30, 56, 128]
    assert landmarks_within(10**5, 2**34, 50, 10**5) > 3 * landmarks_within(10**5, 2**34, 50, 10**4)


def test_automatic_counts_the_rows_that_a_pass_looks_at():
    """Of rows along a line most pairs are skipped: there are fewer landmarks than of as many near rows."""
    x = torch.linspace(0, 1, 4000, dtype=torch.float64)[:, None]
    far, near = (as_operator(KernelOperator(Matern(1.5, lengthscale=s), x, noise=1e-3)) for s in (1e-3, 1.0))
    assert far.skipped > 0.5
    assert AutomaticPreconditioner().counts(far)[0] < AutomaticPreconditioner().counts(near)[0]


@pytest.mark.parametrize("n", [1, 100, 40_000, 500_000, 2_000_000])
def test_automatic_keeps_to_the_memory_that_is_planned(n):
    for memory in (0, 2**28, 2**30, 2**32):
        neighbours = neighbours_within(n, memory, paying_neighbours(n))
        landmarks = landmarks_within(n, memory, neighbours, n)
        needed = n * (bytes_of_row(neighbours) + BYTES_OF_LANDMARK * landmarks)
        assert needed <= bytes_within(n, memory, 1.0)
        assert needed <= max(memory, n * (bytes_of_row(FEWEST) + BYTES_OF_LANDMARK * min(n, 8))) + n
