"""Numbers at the ends of the range, nothing at all, and arrays in every layout."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from solvers.systems import columns, kernel_operator, true_relative, with_spectrum

from halfgp import RBF, KernelOperator
from halfgp.errors import ConvergenceWarning, InputError
from halfgp.preconditioners import PivotedCholesky
from halfgp.solvers import (
    Status,
    alternating_projection,
    cg,
    lanczos,
    log_determinant,
    minres,
    refine,
)

A = with_spectrum(torch.logspace(-2, 0, 30))


@pytest.mark.parametrize("solve", [cg, minres])
@pytest.mark.parametrize("factor", [1e40, 1e-46])
def test_a_matrix_of_any_size_is_solved(solve, factor):
    b = columns(30, 2)
    result = solve(A * factor, b, tol=1e-6)
    assert result.converged
    assert float(true_relative(A * factor, result.solution, b).max()) <= 1e-6 * (1 + 1e-6)


@pytest.mark.parametrize("solve", [cg, minres])
@pytest.mark.parametrize("size", [1e300, 1e-310])
def test_a_right_hand_side_of_any_size_is_solved(solve, size):
    result = solve(A, torch.full((30,), size, dtype=torch.float64), tol=1e-6)
    assert result.converged
    assert bool(result.solution.isfinite().all())


@pytest.mark.parametrize("solve", [cg, minres])
def test_a_solution_beyond_the_range_is_told_and_not_returned(solve):
    b = torch.ones(30, 2, dtype=torch.float64)
    b[:, 1] *= 1e308
    with pytest.warns(ConvergenceWarning, match="finite"):
        result = solve(A, b, tol=1e-6)
    assert result.column_status == (Status.CONVERGED, Status.NONFINITE)
    assert bool(result.solution.isfinite().all())
    assert float(result.residual_norms[1]) == 1.0


@pytest.mark.parametrize("solve", [cg, minres, alternating_projection, refine])
@pytest.mark.parametrize(("n", "t"), [(20, 0), (0, 2), (0, 0)])
def test_nothing_is_solved_at_once(solve, n, t):
    b = torch.zeros(n, t, dtype=torch.float64)
    for matrix in (torch.eye(n), kernel_operator(n)):
        result = solve(matrix, b)
        assert result.converged
        assert result.solution.shape == (n, t)
        assert result.passes == 0
        assert "converged" in str(result)


def test_nothing_has_no_spectrum():
    with pytest.raises(InputError, match="start"):
        lanczos(kernel_operator(20), torch.zeros(20, 0))
    with pytest.raises(InputError, match="at least one row"):
        log_determinant(torch.zeros(0, 0))


def test_matrices_of_any_layout_and_byte_order_are_taken():
    b, wanted = columns(30, 1), A.numpy()
    flipped = wanted[::-1, ::-1].copy()[::-1, ::-1]
    for matrix in (flipped, wanted.astype(">f8"), np.asfortranarray(wanted)):
        assert cg(matrix, b, tol=1e-8).converged
    with pytest.raises(InputError, match="to_dense"):
        cg(A.to_sparse(), b)


@pytest.mark.parametrize("noise", [1e-8, 1e-12, 1e-14, 1e-16])
def test_a_preconditioner_stays_definite_however_small_the_noise(noise):
    x = torch.randn(300, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    built = PivotedCholesky(rank=60).build(KernelOperator(RBF(), x, noise=noise))
    v = torch.linalg.eigh(built.matmul(torch.eye(300, dtype=torch.float64)))[1]  # the worst come last
    assert bool(((v * built.solve(v)).sum(dim=0) > 0).all())


def test_auto_skips_rungs_that_cannot_hold_the_points():
    seconds = torch.linspace(0, 30 * 86400, 120, dtype=torch.float64)[:, None]
    for kernel, x in ((RBF(30.0), seconds), (1e-40 * RBF(), columns(120, 1))):
        noise = 0.1 * float(kernel.amplitude(x))
        result = cg(KernelOperator(kernel, x, noise=noise), columns(120, 1), tol=1e-2)
        assert result.converged
        assert not any("half" in name for name in result.passes_by_precision)
