"""Errors in the norm of A that CG estimates, and where it stops by them."""

from __future__ import annotations

import math

import pytest
import torch
from solvers.systems import columns, kernel_operator, smooth_operator

from halfgp import KernelOperator, Linear, Matern
from halfgp.errors import InputError
from halfgp.preconditioners import PivotedCholesky
from halfgp.solvers import cg

N = 300


def drawn(operator, t=2):
    """Right-hand sides (n, t) of the covariance of the matrix, and the matrix."""
    matrix = torch.as_tensor(operator.with_precision("double").to_dense())
    return torch.linalg.cholesky(matrix) @ columns(len(matrix), t), matrix


def error_of(x, matrix, b):
    e = x - torch.linalg.solve(matrix, b)
    return ((e * (matrix @ e)).sum(dim=0) / len(matrix)).sqrt()


@pytest.mark.parametrize("rank", [0, 20, 100])
@pytest.mark.parametrize("noise", [1e-1, 1e-3])
@pytest.mark.parametrize("make", [kernel_operator, smooth_operator])
@pytest.mark.parametrize("wanted", [0.3, 0.03, 0.003])
def test_a_solve_stops_where_its_error_is_small_and_not_long_after(make, noise, rank, wanted):
    operator = make(N, noise=noise)
    b, matrix = drawn(operator)
    recipe = PivotedCholesky(rank=rank) if rank else None
    # A residual as loose as this is there from the start: the error alone decides.
    found = cg(operator, b, preconditioner=recipe, tol=0.9, error_tol=wanted, max_iterations=3000)
    true = error_of(found.solution, matrix, b)
    assert found.converged
    assert bool((found.errors <= wanted).all())
    # An estimate of how gains go on to fall, without a preconditioner by nothing else.
    assert bool((true <= (2.0 if rank else 3.0) * found.errors).all())


def test_a_residual_is_not_an_error():
    """With little noise a residual of a hundredth leaves the solution where it was."""
    operator = smooth_operator(N, noise=1e-6)
    b, matrix = drawn(operator)
    loose = cg(operator, b, tol=1e-2)
    assert bool((error_of(loose.solution, matrix, b) > 0.3).any())
    assert bool(loose.errors.isnan().all())  # nobody asked
    exact = cg(operator, b, tol=1e-2, error_tol=1e-2, preconditioner=PivotedCholesky(rank=150))
    assert bool((error_of(exact.solution, matrix, b) <= 1e-2).all())


def test_a_start_that_is_exact_is_taken_and_one_that_is_not_is_not():
    operator = kernel_operator(N, noise=1e-2)
    b, matrix = drawn(operator)
    recipe = PivotedCholesky(rank=240)  # near enough for its bound to say so
    solution = torch.linalg.solve(matrix, b)
    done = cg(operator, b, x0=solution, tol=1e-2, error_tol=1e-3, preconditioner=recipe)
    assert done.iterations == 0
    assert bool((done.errors < 1e-3).all())
    spoilt = solution + 0.05 * torch.linalg.solve(matrix, drawn(operator, 4)[0][:, 2:])
    again = cg(operator, b, x0=spoilt, tol=1.0, error_tol=1e-3, preconditioner=recipe)
    assert again.iterations > 0
    assert bool((error_of(again.solution, matrix, b) < 1e-3).all())


def test_errors_do_not_depend_on_the_scale_of_the_columns():
    operator = kernel_operator(N, noise=1e-2)
    b, _ = drawn(operator, 1)
    scale = 2.0**-10  # which rounds nothing
    one = cg(operator, b, error_tol=1e-2, preconditioner=PivotedCholesky(rank=30))
    other = cg(operator, scale * b, error_tol=scale * 1e-2, preconditioner=PivotedCholesky(rank=30))
    assert other.iterations == one.iterations
    assert torch.equal(other.errors, scale * one.errors)


def test_the_residual_is_that_of_the_solution():
    operator = kernel_operator(N, noise=1e-2)
    b, matrix = drawn(operator)
    found = cg(operator, b, tol=1e-3)
    torch.testing.assert_close(found.residual, b - matrix @ found.solution, rtol=0, atol=1e-10)
    assert found.advice == ""


def test_one_tolerance_for_all_columns_or_one_for_each():
    operator = kernel_operator(N, noise=1e-2)
    b, matrix = drawn(operator)
    found = cg(operator, b, tol=0.9, error_tol=[1e-3, math.inf], preconditioner=PivotedCholesky(rank=30))
    first, second = error_of(found.solution, matrix, b).tolist()
    assert first <= 1e-3 < second
    for bad in ([1e-3], 0.0, math.nan):
        with pytest.raises(InputError, match="`error_tol` must be"):
            cg(operator, b, error_tol=bad)


def test_a_caller_with_another_way_to_go_hears_no_warning():
    operator = smooth_operator(N, noise=1e-6)
    found = cg(operator, drawn(operator)[0], tol=1e-6, max_iterations=3, warn=False)
    assert not found.converged
    assert "max_iterations after 3 iterations" in found.advice


@pytest.mark.parametrize("wanted", [0.3, 0.1])
def test_noise_bounds_the_error_where_there_is_no_preconditioner(wanted):
    """Of a spectrum with a gap the upper part is solved long before the lower: for 0.9 gains said 0.1."""
    x = torch.randn(N, 30, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = x * torch.logspace(0, 1, 30, dtype=torch.float64)
    kernel = Linear() + 1e-3 * Matern(0.5, lengthscale=30.0)
    operator = KernelOperator(kernel, x, noise=1e-5, backend="reference")
    b, matrix = drawn(operator)
    found = cg(operator, b, tol=0.1, error_tol=wanted, max_iterations=3000)
    assert bool((error_of(found.solution, matrix, b) <= 3.0 * found.errors).all())
    assert found.converged


def test_an_error_goes_with_a_residual_of_a_tenth_whatever_the_tolerance():
    operator = kernel_operator(N, noise=1e-2)
    b, _ = drawn(operator)
    found = cg(operator, b, tol=0.9, error_tol=100.0, preconditioner=PivotedCholesky(rank=30))
    assert float(found.residual_norms.max()) <= 0.1 == found.tol
    mixed = cg(operator, b, tol=0.9, error_tol=[100.0, math.inf])
    assert float(mixed.residual_norms[0]) <= 0.1 < float(mixed.residual_norms[1]) <= 0.9
