from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from halfgp import RBF, KernelOperator, Matern, White
from halfgp.errors import InputError
from halfgp.precision import DOUBLE, SINGLE
from halfgp.preconditioners import Nystrom, PivotedCholesky, RandomlyPivotedCholesky
from halfgp.preconditioners.base import automatic_rank
from halfgp.preconditioners.partial_cholesky import partial_cholesky
from halfgp.preconditioners.pivoted_cholesky import Greedy

RECIPES = [PivotedCholesky, RandomlyPivotedCholesky, Nystrom]


def operator(n=150, noise=0.01, d=2, kernel=None, seed=0):
    x = torch.randn(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return KernelOperator(kernel or RBF(lengthscale=1.0), x, noise=noise, backend="reference")


def dense(p, n):
    return p.matmul(torch.eye(n, dtype=torch.float64))


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("noise", [1e-6, 1e-2, "vector"])
def test_solve_matmul_whiten_and_determinant_are_of_one_matrix(recipe, noise):
    n = 80
    given_noise = torch.linspace(0.01, 0.5, n, dtype=torch.float64) if noise == "vector" else noise
    p = recipe(rank=12).build(operator(n, given_noise))
    matrix = dense(p, n)
    eye = torch.eye(n, dtype=torch.float64)
    # Sums of n products err by n eps of their sizes: those of P, of its inverse, or of both.
    largest, least = float(torch.linalg.matrix_norm(matrix, 2)), float(torch.as_tensor(given_noise).min())
    rounding = n * DOUBLE.eps
    torch.testing.assert_close(matrix, matrix.T, rtol=0, atol=rounding * largest)
    torch.testing.assert_close(p.solve(matrix), eye, rtol=0, atol=rounding * largest / least)
    torch.testing.assert_close(p.whiten(p.whiten(matrix).T), eye, rtol=0, atol=rounding * largest / least)
    twice = p.whiten(p.whiten(eye), transposed=True)
    torch.testing.assert_close(twice, p.solve(eye), rtol=0, atol=rounding / least)
    determinant = float(torch.logdet(matrix))
    assert p.log_determinant() == pytest.approx(determinant, abs=n * rounding * largest / least)


@pytest.mark.parametrize("recipe", RECIPES)
def test_it_stays_below_the_matrix_and_tells_what_it_left_out(recipe):
    n = 120
    op = operator(n, 0.05, kernel=Matern(nu=1.5, lengthscale=1.0))
    a = op.with_precision("double").to_dense()
    p = recipe(rank=20).build(op)
    rest = a - dense(p, n)
    # In single an entry, of at most 1, errs by a rounding for each of the rank's products and two of its own.
    rounding = n * (20 + 2) * SINGLE.unit_roundoff
    assert float(torch.linalg.eigvalsh(rest).min()) > -rounding
    assert p.remaining_trace == pytest.approx(float(rest.trace()), abs=rounding)
    assert p.rank == 20
    assert p.rows_evaluated >= 20


def test_full_rank_is_the_matrix():
    n = 60
    op = operator(n, 0.1, kernel=Matern(nu=0.5))
    p = PivotedCholesky(rank=n).build(op)
    # Entries of at most 1 in single: n products, and variances of eps √n that count as round-off.
    rounding = (n + 2) * SINGLE.unit_roundoff + math.sqrt(n) * SINGLE.eps
    torch.testing.assert_close(dense(p, n), op.with_precision("double").to_dense(), rtol=0, atol=rounding)


def test_small_noise_does_not_cancel():
    # Where the paper's form subtracts numbers that agree in ten digits.
    n = 100
    p = PivotedCholesky(rank=30).build(operator(n, 1e-8))
    v = torch.randn(n, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(p.matmul(p.solve(v)), v, rtol=0, atol=1e-5)


def test_pivots_are_greedy():
    n = 50
    op = operator(n)
    a = op.with_precision("double").to_dense() - 0.01 * torch.eye(n, dtype=torch.float64)
    rest = a.clone()
    for _ in range(5):
        i = int(rest.diagonal().argmax())
        rest = rest - torch.outer(rest[i], rest[i]) / rest[i, i]
    p = PivotedCholesky(rank=5).build(op)
    assert p.remaining_trace == pytest.approx(float(rest.trace()), rel=1e-3)


def test_a_factor_goes_on_from_one_of_lower_rank():
    op, rule = operator(), Greedy(block=1)
    whole = partial_cholesky(op, 12, None, rule)
    further = partial_cholesky(op, 12, None, rule, earlier=partial_cholesky(op, 5, None, rule))
    assert torch.equal(further.pivots, whole.pivots)
    assert further.evaluated == whole.evaluated == 12
    torch.testing.assert_close(further.factor, whole.factor)
    torch.testing.assert_close(further.traces, whole.traces)


@pytest.mark.parametrize("recipe", RECIPES)
def test_repeated_points_and_excess_rank_are_no_trouble(recipe):
    x = torch.randn(10, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).repeat(6, 1)
    op = KernelOperator(RBF(), x, noise=0.1, backend="reference")
    p = recipe(rank=60).build(op)
    assert p.rank <= 11
    v = torch.ones(60, 1, dtype=torch.float64)
    torch.testing.assert_close(op.with_precision("double") @ p.solve(v), v, rtol=0, atol=1e-3)


def test_random_pivots_follow_their_seed():
    op = operator()
    same = [RandomlyPivotedCholesky(rank=10, seed=3).build(op).remaining_trace for _ in range(2)]
    other = RandomlyPivotedCholesky(rank=10, seed=4).build(op).remaining_trace
    assert same[0] == same[1] != other


def test_random_pivots_are_about_as_good_as_greedy_ones():
    op = operator(400, kernel=Matern(nu=1.5, lengthscale=1.0))
    greedy = PivotedCholesky(rank=50).build(op).remaining_trace
    random = RandomlyPivotedCholesky(rank=50).build(op).remaining_trace
    assert random < 1.5 * greedy


def test_the_automatic_rank_grows_with_rows_and_stops_at_the_noise_and_the_memory():
    assert automatic_rank(1000, 2**30) < automatic_rank(100_000, 2**30)
    assert automatic_rank(10**6, 16 * 10**6 * 7) == 7
    assert automatic_rank(1, 2**30) == 1
    quiet = PivotedCholesky().build(operator(400, 1e-3)).rank
    noisy = PivotedCholesky().build(operator(400, 30.0)).rank
    assert noisy < quiet <= automatic_rank(400, 2**30)


def test_rank_zero_is_the_noise():
    p = PivotedCholesky(rank=0).build(operator(10, 0.5))
    v = torch.ones(10, 1, dtype=torch.float64)
    torch.testing.assert_close(p.solve(v), 2 * v)
    assert p.log_determinant() == pytest.approx(10 * np.log(0.5))


def test_bad_recipes_and_operators_are_refused():
    for recipe in RECIPES:
        with pytest.raises(InputError, match="rank"):
            recipe(rank=-1)
    with pytest.raises(InputError, match="positive noise"):
        PivotedCholesky().build(operator(noise=0.0))
    with pytest.raises(InputError, match="positive noise"):
        PivotedCholesky().build(torch.eye(3))  # which does not say what of its diagonal is noise
    with pytest.raises(InputError, match="rows"):
        PivotedCholesky(noise=0.1).build((lambda v: v, 3))


@given(st.integers(1, 40), st.integers(0, 50), st.floats(-8, 2), st.sampled_from(RECIPES))
def test_it_is_positive_definite_whatever_it_is_built_from(n, rank, noise, recipe):
    p = recipe(rank=rank).build(operator(n, 10.0**noise, d=1))
    v = torch.randn(n, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(rank))
    assert bool(((v * p.solve(v)).sum(0) > 0).all())
    assert np.isfinite(p.log_determinant())


@pytest.mark.parametrize("recipe", RECIPES)
def test_white_is_noise_under_another_name(recipe):
    plain = recipe(rank=12).build(operator(80, 0.1))
    white = recipe(rank=12).build(operator(80, 0.0, kernel=RBF(lengthscale=1.0) + White(0.1)))
    torch.testing.assert_close(dense(white, 80), dense(plain, 80), rtol=1e-9, atol=1e-9)
