from __future__ import annotations

import pytest
from solvers.systems import columns, kernel_operator, true_relative

from halfgp.errors import InputError
from halfgp.operators import as_operator
from halfgp.preconditioners import PivotedCholesky
from halfgp.solvers import refine
from halfgp.solvers.ladder import Ladder
from halfgp.solvers.refine import contraction


def test_half_inner_solves_reach_a_tolerance_far_below_half():
    op = kernel_operator(300, noise=0.5)
    b = columns(300, 2)
    assert contraction(Ladder(as_operator(op), "half")) < 1
    result = refine(op, b, precision="half", preconditioner=PivotedCholesky(rank=15), tol=1e-9)
    assert result.converged
    assert float(true_relative(op.with_precision("double").to_dense(), result.solution, b).max()) <= 1.01e-9
    assert set(result.passes_by_precision) == {"half inputs", "double"}


def test_it_is_refused_where_it_cannot_contract():
    op = kernel_operator(300, noise=1e-5, precision="half", storage="stored")
    assert contraction(Ladder(as_operator(op), "half")) >= 1
    with pytest.raises(InputError, match="would not converge"):
        refine(op, columns(300, 1))
