from __future__ import annotations

import pytest
import torch
from solvers.systems import columns, kernel_operator, true_relative

from halfgp.errors import ConvergenceWarning, InputError
from halfgp.solvers import Status, alternating_projection


def test_it_reaches_the_tolerance_and_reports_the_true_residual():
    op = kernel_operator(300, noise=0.5)
    b = columns(300, 3)
    result = alternating_projection(op, b, block_size=60, tol=1e-3, max_passes=200)
    true = true_relative(op.with_precision("double").to_dense(), result.solution, b)
    assert result.converged
    torch.testing.assert_close(true, result.residual_norms, rtol=1e-6, atol=1e-12)
    assert result.passes <= 200


def test_one_block_is_a_direct_solve():
    op = kernel_operator(100)
    result = alternating_projection(op, columns(100, 1), tol=1e-3)
    assert result.iterations == 1
    assert result.converged


def test_it_stops_at_the_passes_it_was_given():
    op = kernel_operator(200, noise=1e-3)
    with pytest.warns(ConvergenceWarning):
        result = alternating_projection(op, columns(200, 1), block_size=20, tol=1e-8, max_passes=3)
    assert result.status is Status.MAX_ITERATIONS
    assert result.passes_by_precision["single"] <= 4


def test_a_callable_has_no_blocks():
    with pytest.raises(InputError, match="rows"):
        alternating_projection((lambda v: v, 3), torch.ones(3))
    with pytest.raises(InputError, match="block_size"):
        alternating_projection(torch.eye(3), torch.ones(3), block_size=0)
