from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse.linalg
import torch
from solvers.systems import columns, kernel_operator, true_relative, with_spectrum

from halfgp.errors import ConvergenceWarning, InputError
from halfgp.solvers import Status, minres


def test_it_agrees_with_scipy_on_an_indefinite_system():
    a = with_spectrum(torch.cat([torch.linspace(-2, -0.5, 20), torch.linspace(0.5, 3, 30)]))
    b = columns(50, 1)[:, 0]
    theirs, info = scipy.sparse.linalg.minres(a.numpy(), b.numpy(), rtol=1e-12)
    ours = minres(a, b, tol=1e-9)
    assert info == 0
    assert ours.converged
    np.testing.assert_allclose(ours.solution.numpy(), theirs, atol=1e-6)


def test_all_shifts_are_solved_by_the_same_products():
    a = with_spectrum(torch.linspace(0.1, 3, 60))
    b = columns(60, 3)
    shifts = [0.0, 0.5, 10.0, -5.0]
    result = minres(a, b, shifts=shifts, tol=1e-4)
    assert result.converged
    assert result.solution.shape == (4, 60, 3)
    assert result.residual_norms.shape == (4, 3)
    for shift, x in zip(shifts, result.solution, strict=True):
        shifted = a + shift * torch.eye(60, dtype=torch.float64)
        assert float(true_relative(shifted, x, b).max()) <= 1e-4 * (1 + 1e-9)
    alone = minres(a, b, tol=1e-4)
    assert result.passes <= alone.passes + 3


def test_one_vector_and_several_shifts_give_a_row_each():
    result = minres(np.eye(4), np.ones(4), shifts=[1.0, 3.0], tol=1e-10)
    assert result.solution.shape == (2, 4)
    np.testing.assert_allclose(result.solution, [[0.5] * 4, [0.25] * 4])


def test_half_reaches_what_it_allows_and_auto_the_rest():
    op = kernel_operator(noise=0.2)
    b = columns(200, 2)
    assert minres(op, b, precision="half", tol=2e-2).converged
    tight = minres(op, b, tol=1e-10)
    assert tight.converged
    assert float(true_relative(op.with_precision("double").to_dense(), tight.solution, b).max()) <= 1.01e-10


def test_statuses_and_errors():
    a = with_spectrum(torch.logspace(-6, 0, 80))
    with pytest.warns(ConvergenceWarning):
        assert minres(a, columns(80, 1), tol=1e-9, max_iterations=3).status is Status.MAX_ITERATIONS
    with pytest.raises(InputError, match="shifts"):
        minres(a, columns(80, 1), shifts=[])
    with pytest.raises(InputError, match="tol"):
        minres(a, columns(80, 1), tol=-1.0)
    assert minres(a, torch.zeros(80)).passes == 0


def test_a_singular_consistent_system_is_solved():
    a = with_spectrum(torch.cat([torch.zeros(5), torch.linspace(1, 2, 30)]))
    b = a @ columns(35, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = minres(a, b, tol=1e-8)
    assert result.converged


@pytest.mark.parametrize("precision", ["auto", "single", "double"])
@pytest.mark.parametrize(("zeros", "n"), [(3, 20), (5, 35), (20, 100)])
def test_a_singular_inconsistent_system_ends_at_least_squares(precision, zeros, n):
    a = with_spectrum(torch.cat([torch.zeros(zeros), torch.linspace(0.1, 2, n - zeros)]))
    b = columns(n, 2)
    with pytest.warns(ConvergenceWarning):
        result = minres(a, b, tol=1e-8, precision=precision)
    values, vectors = torch.linalg.eigh(a)
    null = vectors[:, values < 0.05]
    least = (null.T @ b).norm(dim=0) / b.norm(dim=0)
    # Second order in the error of the solution, which a step that is not worth its rounding leaves.
    torch.testing.assert_close(result.residual_norms, least, rtol=1e-4, atol=0)


def test_products_that_are_not_finite_end_at_once():
    with pytest.warns(ConvergenceWarning, match="not finite"):
        result = minres((lambda v: v * torch.nan, 10), torch.ones(10))
    assert result.status is Status.NONFINITE
    assert result.iterations == 1
    assert bool(result.solution.isfinite().all())


@pytest.mark.parametrize("size", [1e300, 1e-290])
def test_matrices_whose_squares_no_format_holds_are_solved(size):
    a, b = (
        with_spectrum(torch.cat([torch.linspace(1.0, 9.0, 40), -torch.linspace(1.0, 5.0, 20)])),
        columns(60, 1),
    )
    found = minres(size * a, b, tol=1e-6)
    assert found.converged
    assert float(true_relative(size * a, found.solution, b).max()) <= 1.01e-6
