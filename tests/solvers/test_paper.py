"""The paper's two algorithms in half: the standard one fails, the stable one does not."""

from __future__ import annotations

import warnings

import pytest
import torch
from solvers.systems import columns, kernel_operator

from halfgp.errors import ConvergenceWarning
from halfgp.preconditioners import PivotedCholesky
from halfgp.solvers import Status, cg


def solve(op, b, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return cg(op, b, preconditioner=PivotedCholesky(rank=15), method="paper", **{"tol": 1e-2, **options})


@pytest.mark.parametrize("storage", ["on_the_fly", "stored"])
def test_standard_cg_in_half_fails_where_stable_cg_works(storage):
    op = kernel_operator(1000, noise=0.1, precision="half", storage=storage)
    b = columns(1000, 3)
    standard = solve(op, b, inner_product="direct", reorthogonalise=False, max_iterations=50)
    stable = solve(op, b, max_iterations=50)
    assert float(standard.residual_norms.max()) > 0.5
    assert float(stable.residual_norms.max()) < 0.5


def test_entries_are_rounded_only_where_they_are_stored():
    b = columns(300, 1)
    stored = solve(kernel_operator(300, precision="half", storage="stored"), b)
    fly = solve(kernel_operator(300, precision="half"), b)
    assert stored.precision == "half entries"
    assert fly.precision == "half inputs"


def test_the_recurrence_alone_would_have_lied():
    result = solve(kernel_operator(600, noise=2e-3, precision="half", storage="stored"), columns(600, 1))
    assert float(result.history[-1].max()) < float(result.residual_norms.max())


@pytest.mark.parametrize("precision", ["half", "bfloat16"])
def test_the_method_is_what_repairs_nothing_and_not_the_precision(precision):
    op, b = kernel_operator(300, noise=0.2), columns(300, 2)
    paper = solve(op, b, precision=precision, tol=1e-6)
    default = cg(op, b, preconditioner=PivotedCholesky(rank=15), precision=precision, tol=1e-6)
    assert paper.precision == default.precision == f"{precision} inputs"
    assert paper.status is Status.STAGNATED
    # Refinement by rho / (1 - rho), with rho far below one, comes below any tolerance that double allows.
    assert default.status is Status.CONVERGED
    assert default.climbs == ()
    assert set(default.passes_by_precision) == {f"{precision} inputs", "double"}


def test_its_true_residual_is_found_once():
    result = solve(kernel_operator(300, noise=1e-3, precision="half", storage="stored"), columns(300, 2))
    assert result.status is Status.STAGNATED
    assert result.passes_by_precision == {"half entries": result.iterations, "double": 1}


def test_half_is_its_precision_unless_another_is_given():
    op, b = kernel_operator(200), columns(200, 2)
    named, unnamed = solve(op, b, precision="half"), solve(op, b)
    assert torch.equal(named.solution, unnamed.solution)
    assert unnamed.precision == "half inputs"
    assert solve(op, b, precision="bfloat16").precision == "bfloat16 inputs"


def test_the_stable_recurrence_needs_no_more_iterations_than_double():
    op = kernel_operator(300, noise=0.2)
    b = columns(300, 2)
    stable = solve(op, b)
    double = cg(op, b, preconditioner=PivotedCholesky(rank=15), tol=1e-2, precision="double")
    assert stable.iterations <= 1.4 * double.iterations
    assert torch.isfinite(stable.solution).all()


def test_a_column_that_stands_still_does_not_disturb_the_others():
    op = kernel_operator(400, noise=0.01)
    b = columns(400, 2)
    easy = op.with_precision("double") @ torch.ones(400, 1, dtype=torch.float64)
    together = solve(op, torch.cat([easy, b], dim=1), max_iterations=80)
    alone = solve(op, b, max_iterations=80)
    assert torch.isfinite(together.history).all()
    torch.testing.assert_close(together.residual_norms[1:], alone.residual_norms, rtol=0.3, atol=0)
