"""Each status is reached on purpose, with one warning that says what to do."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from solvers.systems import (
    columns,
    generator,
    kernel_operator,
    smooth_operator,
    true_relative,
    with_spectrum,
)

from halfgp.errors import ConvergenceWarning
from halfgp.operators import as_operator
from halfgp.solvers import Status, cg
from halfgp.solvers.controller import Controller, Options
from halfgp.solvers.krylov import _solved
from halfgp.solvers.ladder import Ladder


def test_converged_has_no_warning():
    assert cg(kernel_operator(50), columns(50, 1)).status is Status.CONVERGED


def test_max_iterations_names_rank_and_iterations():
    with pytest.warns(ConvergenceWarning, match=r"rank.*max_iterations") as caught:
        result = cg(smooth_operator(), columns(200, 2), tol=1e-8, max_iterations=5)
    assert len(caught) == 1
    assert result.status is Status.MAX_ITERATIONS
    assert result.iterations == 5
    assert str(result.status) == "max_iterations"


def test_breakdown_names_definiteness():
    a = with_spectrum(torch.linspace(-1, 1, 40))
    with pytest.warns(ConvergenceWarning, match=r"not positive definite.*minres"):
        result = cg(a, columns(40, 2))
    assert result.status is Status.BREAKDOWN
    assert bool(torch.as_tensor(result.solution).isfinite().all())


def test_stagnated_names_the_tolerance():
    with pytest.warns(ConvergenceWarning, match="tolerance is below"):
        result = cg(smooth_operator(noise=1e-6), columns(200, 1), tol=1e-16, precision="double")
    assert result.status is Status.STAGNATED


@pytest.mark.parametrize(
    ("method", "operator"),
    [
        ("paper", kernel_operator(noise=1e-3)),
        # Points and entries near 1 are off by up to 2^-12, hundreds of times the noise: no repair helps.
        ("auto", smooth_operator(noise=1e-6)),
        ("auto", smooth_operator(noise=1e-6, precision="half", storage="stored")),
    ],
)
def test_half_alone_stagnates_above_what_it_allows_and_says_so(method, operator):
    with pytest.warns(ConvergenceWarning, match=r"half.*precision=\"auto\""):
        result = cg(operator, columns(200, 1), tol=1e-4, method=method, precision="half")
    assert result.status in (Status.STAGNATED, Status.BREAKDOWN)
    assert result.climbs == ()
    assert float(result.residual_norms.max()) > 1e-4


def test_nonfinite_is_told_and_never_returned():
    # A product beyond the range of half: the standard method overflows.
    a = with_spectrum(torch.linspace(1, 3e4, 300))
    with pytest.warns(ConvergenceWarning, match="overflowed"):
        result = cg(a, 200 * torch.ones(300), method="paper", inner_product="direct", reorthogonalise=False)
    assert result.status is Status.NONFINITE
    assert bool(result.solution.isfinite().all())


def test_a_callable_that_returns_nan_is_nonfinite():
    with pytest.warns(ConvergenceWarning, match="not finite"):
        result = cg((lambda v: v * torch.nan, 10), torch.ones(10))
    assert result.status in (Status.NONFINITE, Status.BREAKDOWN)
    assert bool(result.solution.isfinite().all())


def test_columns_have_statuses_of_their_own():
    a = torch.block_diag(
        torch.eye(20, dtype=torch.float64), with_spectrum(torch.logspace(-8, 0, 60)).double()
    )
    b = torch.zeros(80, 2, dtype=torch.float64)
    b[:20, 0] = 1
    b[20:, 1] = columns(60, 1)[:, 0]
    with pytest.warns(ConvergenceWarning):
        result = cg(a, b, tol=1e-8, max_iterations=6)
    assert result.column_status == (Status.CONVERGED, Status.MAX_ITERATIONS)
    assert result.status is Status.MAX_ITERATIONS


@pytest.mark.parametrize("least", [-1e-3, -1e-4, 0.0])
def test_what_is_returned_is_the_best_that_the_recurrence_met(least):
    """On a matrix that is singular or not quite definite, residuals fall before they rise."""
    eigenvalues = torch.logspace(-3, 0, 80, dtype=torch.float64)
    eigenvalues[0] = least
    a, b = with_spectrum(eigenvalues), columns(80, 2)
    with pytest.warns(ConvergenceWarning):
        result = cg(a, b, tol=1e-6, precision="double")
    lowest = result.history.min(dim=0).values
    assert bool((lowest < 0.9).all())
    # What the recurrence knows in double is the truth to many digits, as long as residuals are near 1.
    assert bool((result.residual_norms <= lowest * (1 + 1e-6)).all())
    torch.testing.assert_close(result.residual_norms, true_relative(a, result.solution, b), rtol=1e-9, atol=0)


def test_an_exhausted_space_is_no_error():
    """Nine dimensions, and the residual is replaced when there is nowhere left to go."""
    g = generator(2358)
    eigenvalues = 10.0 ** (-12 * torch.rand(9, generator=g, dtype=torch.float64))
    b = torch.randn(9, 3, generator=g, dtype=torch.float64)
    q = torch.linalg.qr(torch.randn(9, 9, dtype=torch.float64, generator=g))[0]
    a = (q * eigenvalues) @ q.T
    result = cg((a + a.T) / 2, b, tol=0.05, warn=False)
    assert bool(result.solution.isfinite().all())
    # An exactly singular relation, whatever the arithmetic of this machine made of the above.
    h = np.array([[[1.0, 2.0], [2.0, 4.0]], [[2.0, 0.0], [0.0, 1.0]]])
    c = np.array([[1.0, 2.0], [4.0, 3.0]])
    np.testing.assert_allclose(np.einsum("tij,tj->ti", h, _solved(h, c)), c, rtol=1e-14)


def test_looks_one_iteration_apart_are_no_stagnation():
    """Residuals need not fall from one iteration to the next; over a few of them they must."""
    a, column = with_spectrum(torch.linspace(1.0, 9.0, 20)), torch.tensor([0])
    tolerance = torch.tensor([1e-6], dtype=torch.float64)
    options = Options(tolerance, tolerance, 0, 100, "direct", None, None)
    controller = Controller(Ladder(as_operator(a), "auto"), None, columns(20, 1), options)
    verdicts = []
    for iteration in range(1, 5):
        controller._iteration = iteration
        verdicts.append(controller._reason(column, torch.tensor([0.95], dtype=torch.float64)))
    assert verdicts[:2] == ["", ""]
    assert "stagnation" in verdicts[2:]
    assert controller._reason(column, torch.tensor([3.0], dtype=torch.float64)) == "divergence"


def test_a_residual_that_the_recurrence_knows_may_rise():
    """As after a replacement: only what it does not know of tells that the arithmetic fails."""
    a, column = with_spectrum(torch.linspace(1.0, 9.0, 20)), torch.tensor([0])
    tolerance = torch.tensor([1e-6], dtype=torch.float64)
    options = Options(tolerance, tolerance, 0, 100, "direct", None, None)
    controller = Controller(Ladder(as_operator(a), "auto"), None, columns(20, 1), options)
    controller._known[:] = 2.9
    assert controller._reason(column, torch.tensor([3.0], dtype=torch.float64)) == ""
    controller._known[:] = 0.1
    assert controller._reason(column, torch.tensor([3.0], dtype=torch.float64)) == "divergence"
