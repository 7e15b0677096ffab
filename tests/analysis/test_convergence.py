"""Histories of solves: thin over `cg`, so what is tested is that each name is the solver it says."""

from __future__ import annotations

import math

import pytest
import torch

from halfgp import KernelOperator, Matern, PivotedCholesky, cg
from halfgp.analysis import SOLVERS, history
from halfgp.errors import InputError


def operator(noise: float = 0.1, n: int = 1000, **options: object) -> KernelOperator:
    x = torch.randn(n, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(7))
    return KernelOperator(1.5 * Matern(1.5), x, noise=noise, backend="reference", **options)  # type: ignore[arg-type]


def right(n: int = 1000, t: int = 1) -> torch.Tensor:
    return torch.randn(n, t, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_standard_cg_in_half_fails_where_stable_cg_converges():
    op = operator(precision="half", storage="stored")
    standard = history(op, right(), solver="standard", rank=15, max_iterations=50)
    stable = history(op, right(), solver="stable", rank=15, max_iterations=50)
    assert standard.residual > 0.5
    assert stable.residual < 0.5
    assert stable.history[-1] < 0.01
    assert stable.precision == "half entries"


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_history_is_of_every_iteration(solver):
    op = operator(n=300)
    found = history(op, right(300, 2), solver=solver, rank=15, tol=0.1, max_iterations=30)
    assert len(found.history) == found.iterations
    assert found.label == f"{solver}, rank 15"
    assert found.residual >= 0
    assert (found.status == "converged") == (found.residual <= 0.1)
    assert found.passes > found.iterations or found.iterations == 0


def test_it_is_cg():
    op, b = operator(n=300), right(300, 2)
    plain = cg(op, b, preconditioner=PivotedCholesky(rank=15), precision="double", tol=1e-3)
    found = history(op, b, solver="double", rank=15, tol=1e-3, label="ours")
    assert found.label == "ours"
    assert found.history == tuple(plain.history.max(dim=1).values.tolist())
    assert found.residual == float(plain.residual_norms.max())
    assert found.precision == plain.precision == "double"


def test_options_override_those_of_the_solver():
    op, b = operator(n=300), right(300)
    assert history(op, b, solver="single", precision="double").precision == "double"
    recipe = PivotedCholesky(rank=60)
    assert history(op, b, preconditioner=recipe).iterations < history(op, b).iterations


def test_rank_zero_is_no_preconditioner():
    a = operator(n=300).to_dense()  # a matrix that does not know its noise can have none
    assert history(a, right(300), rank=0, solver="double").status == "converged"
    with pytest.raises(InputError, match="noise"):
        history(a, right(300), rank=5)


def test_what_overflows_is_told_and_not_warned_of():
    found = history(operator(noise=1e-5, n=600), 1e4 * right(600), solver="standard", max_iterations=60)
    assert found.status != "converged"
    assert math.isfinite(found.residual)  # of the best iterate


def test_mistakes_are_named():
    with pytest.raises(InputError, match="`solver` must be one of standard, stable"):
        history(operator(n=50), right(50), solver="stabel")
    with pytest.raises(InputError, match="`tol`"):
        history(operator(n=50), right(50), tol=0.0)


def test_a_solve_without_iterations_has_no_history():
    """As one that overflows before its first."""
    found = history(operator(n=200), right(200, 2), solver="double", max_iterations=0)
    assert found.history == ()
    assert found.iterations == 0
    assert found.residual == 1.0
