from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg
import torch
from solvers.systems import columns, kernel_operator, smooth_operator, true_relative, with_spectrum

from halfgp import RBF, KernelOperator, Matern, SparseInverseCholesky
from halfgp.errors import ConvergenceWarning, InputError
from halfgp.preconditioners import PivotedCholesky
from halfgp.solvers import Status, cg
from halfgp.solvers.ladder import CONTRACTION


def laplacian(n: int = 120) -> scipy.sparse.csr_matrix:
    return scipy.sparse.diags_array(
        [np.full(n, 2.1), np.full(n - 1, -1.0), np.full(n - 1, -1.0)], offsets=[0, 1, -1], format="csr"
    )


def test_it_agrees_with_scipy_in_double():
    a = with_spectrum(torch.logspace(-2, 1, 80))
    b = columns(80, 1)[:, 0]
    theirs, info = scipy.sparse.linalg.cg(a.numpy(), b.numpy(), rtol=1e-10, maxiter=1000)
    ours = cg(a, b, tol=1e-10, precision="double")
    assert info == 0
    assert ours.status is Status.CONVERGED
    np.testing.assert_allclose(ours.solution.numpy(), theirs, rtol=0, atol=1e-8 * np.abs(theirs).max())


@pytest.mark.parametrize("precision", ["auto", "single", "double"])
@pytest.mark.parametrize("tol", [1e-2, 1e-6, 1e-9])
def test_the_reported_residual_is_the_true_one(precision, tol):
    op = kernel_operator()
    b = columns(200, 3)
    result = cg(op, b, preconditioner=PivotedCholesky(rank=15), tol=tol, precision=precision)
    dense = op.with_precision("double").to_dense()
    true = true_relative(dense, result.solution, b)
    assert result.converged
    assert bool((true <= tol * (1 + 1e-6)).all())
    torch.testing.assert_close(true, result.residual_norms, rtol=1e-3, atol=1e-13)


def test_every_kind_of_matrix_is_accepted():
    a = laplacian()
    b = columns(120, 2)
    dense = a.toarray()
    kinds = {
        "numpy": dense,
        "torch": torch.from_numpy(dense),
        "sparse": a,
        "linear operator": scipy.sparse.linalg.aslinearoperator(a),
        "pair": (lambda v: torch.from_numpy(dense) @ v, 120),
    }
    for name, matrix in kinds.items():
        result = cg(matrix, b, tol=1e-8)
        assert result.converged, name
        assert float(true_relative(torch.from_numpy(dense), result.solution, b).max()) <= 1.01e-8, name


def test_a_sparse_system_in_half_reaches_what_half_allows():
    result = cg(laplacian(), np.ones(120), precision="half", tol=2e-2)
    assert result.converged
    assert isinstance(result.solution, np.ndarray)
    assert result.precision == "half entries"


@pytest.mark.parametrize("kind", ["numpy32", "torch32", "torch64", "integers"])
def test_the_solution_has_the_library_and_shape_of_b_and_is_wide(kind):
    a = laplacian().toarray()
    b = {
        "numpy32": np.ones(120, dtype=np.float32),
        "torch32": torch.ones(120, 2, dtype=torch.float32),
        "torch64": torch.ones(120, dtype=torch.float64),
        "integers": np.ones((120, 1), dtype=np.int64),
    }[kind]
    solution = cg(a, b).solution
    assert type(solution) is type(b)
    assert solution.shape == b.shape
    assert solution.dtype == (np.float64 if isinstance(solution, np.ndarray) else torch.float64)


def test_zero_columns_cost_nothing_and_zero_systems_return_at_once():
    op = kernel_operator(50)
    result = cg(op, torch.zeros(50, 3, dtype=torch.float64))
    assert result.converged
    assert result.passes == result.iterations == 0
    assert not bool(result.solution.any())
    b = columns(50, 2)
    b[:, 0] = 0
    mixed = cg(op, b, tol=1e-8)
    assert mixed.converged
    assert not bool(mixed.solution[:, 0].any())


def test_an_exact_start_returns_at_once_and_a_near_one_sooner():
    op = kernel_operator()
    b = columns(200, 2)
    dense = op.with_precision("double").to_dense()
    x = torch.linalg.solve(dense, b)
    exact = cg(op, b, x0=x, tol=1e-6)
    assert exact.iterations == 0
    assert exact.passes == 1
    torch.testing.assert_close(exact.solution, x, rtol=0, atol=0)
    cold = cg(op, b, tol=1e-6)
    warm = cg(op, b, x0=x + 1e-4 * columns(200, 2, seed=2), tol=1e-6)
    assert warm.converged
    assert warm.iterations < cold.iterations


def test_columns_do_not_depend_on_their_neighbours_or_order():
    op = kernel_operator()
    b = columns(200, 5)
    order = torch.tensor([3, 0, 4, 2, 1])
    # Each residual is 1e-8 of b at most, which the inverse makes larger by one over the noise.
    apart = 2 * 1e-8 * float(b.norm(dim=0).max() / op.noise)
    forward = cg(op, b, tol=1e-8)
    backward = cg(op, b[:, order], tol=1e-8)
    torch.testing.assert_close(backward.solution, forward.solution[:, order], rtol=0, atol=apart)
    alone = cg(op, b[:, 2], tol=1e-8)
    torch.testing.assert_close(alone.solution, forward.solution[:, 2], rtol=0, atol=apart)


def test_an_easy_column_does_not_hide_a_hard_one():
    eigenvalues = torch.logspace(-3, 0, 100)
    a = with_spectrum(eigenvalues)
    hard = columns(100, 1)
    easy = torch.linalg.eigh(a)[1][:, -30:]
    result = cg(a, torch.cat([easy, hard], dim=1), tol=1e-6)
    assert result.converged
    assert float(result.residual_norms[-1]) <= 1e-6


def test_the_default_takes_no_more_passes_than_plain_cg_in_double():
    op = smooth_operator(400, noise=1e-3)
    b = columns(400, 4)
    for tol in (1e-2, 1e-6):
        for rank in (0, 15):
            recipe = PivotedCholesky(rank=rank)
            plain = cg(op, b, preconditioner=recipe, tol=tol, precision="double", reorthogonalise=False)
            ours = cg(op, b, preconditioner=recipe, tol=tol)
            assert ours.converged
            assert plain.converged
            assert ours.passes <= plain.passes
            # Single stays as long as every check in double finds the residual a digit lower, and one ends it.
            assert ours.passes_by_precision["double"] <= 1 + math.log(tol, CONTRACTION)


def test_a_replaced_residual_does_not_start_again():
    # In single the products alone err by more than the tolerance, so that a solve must replace its residual.
    op = smooth_operator(400, noise=1e-4)
    b = columns(400, 2)
    exact = cg(op, b, tol=1e-9, precision="double")
    ours = cg(op, b, tol=1e-9, precision="single")
    assert ours.converged
    assert ours.passes_by_precision["double"] >= 2
    assert ours.iterations < 1.5 * exact.iterations  # to start again is to take as many once more


def test_a_window_and_no_reorthogonalisation_converge_too():
    op = kernel_operator()
    b = columns(200, 2)
    for reorthogonalise in (False, 4):
        result = cg(op, b, tol=1e-8, reorthogonalise=reorthogonalise)
        assert result.converged


def test_log_inner_products_change_nothing_where_sums_are_wide():
    op = kernel_operator(100)
    b = columns(100, 2)
    direct = cg(op, b, tol=1e-6, precision="double")
    log = cg(op, b, tol=1e-6, precision="double", inner_product="log")
    assert abs(direct.iterations - log.iterations) <= 1
    apart = 2 * 1e-6 * float(b.norm(dim=0).max() / op.noise)  # by their residuals
    torch.testing.assert_close(direct.solution, log.solution, rtol=0, atol=apart)


def test_the_callback_sees_every_iteration():
    seen = []
    result = cg(kernel_operator(60), columns(60, 2), callback=lambda k, r: seen.append((k, r.clone())))
    assert [k for k, _ in seen] == list(range(1, result.iterations + 1))
    torch.testing.assert_close(torch.stack([r for _, r in seen]), result.history)


def test_a_result_prints_in_a_few_lines_and_plots():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    result = cg(kernel_operator(60), columns(60, 2))
    assert 2 <= len(str(result).splitlines()) <= 6
    assert "converged" in str(result)
    assert "passes" in str(result)
    assert result.plot().get_ylabel() == "relative residual"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"A": torch.zeros(3, 4)}, "square"),
        ({"A": torch.full((3, 3), torch.nan)}, "finite"),
        ({"A": object()}, "shape"),
        ({"b": torch.ones(4)}, r"shape \(3,\)"),
        ({"b": torch.tensor([1.0, torch.inf, 0.0])}, "finite"),
        ({"x0": torch.ones(3, 2)}, "x0"),
        ({"tol": -1.0}, "tol"),
        ({"tol": 0.0}, "tol"),
        ({"max_iterations": -1}, "max_iterations"),
        ({"inner_product": "cosine"}, "inner_product"),
        ({"reorthogonalise": -2}, "reorthogonalise"),
        ({"precision": "quarter"}, "precision"),
        ({"method": "papre"}, '`method` must be "auto" or "paper"; got \'papre\''),
        (
            {"method": "paper", "precision": "single"},
            '"half" or "bfloat16" with `method="paper"`; got \'single\'',
        ),
        ({"preconditioner": 3}, "preconditioner"),
        ({"preconditioner": PivotedCholesky(rank=1)}, "noise"),
        ({"A": (lambda v: v, 3), "precision": "half"}, "products"),
    ],
)
def test_bad_input_gets_a_clear_error(arguments, message):
    given = {"A": torch.eye(3, dtype=torch.float64), "b": torch.ones(3)} | arguments
    with pytest.raises(InputError, match=message):
        cg(given.pop("A"), given.pop("b"), **given)


def test_the_start_rung_follows_rho_and_tolerance_together():
    noisy, quiet = kernel_operator(noise=0.5), kernel_operator(noise=1e-5)
    b = columns(200, 1)
    assert "half inputs" in cg(noisy, b, tol=0.1).passes_by_precision
    assert "half inputs" not in cg(quiet, b, tol=0.1).passes_by_precision
    assert "half inputs" not in cg(noisy, b, tol=1e-9).passes_by_precision


@pytest.mark.parametrize(("lengthscale", "rung"), [(1.0, "double"), (0.01, "single")])
def test_a_preconditioner_near_the_matrix_tells_whether_single_holds_it(lengthscale, rung):
    """The noise, and so rho, is the same: what A^-1 makes of a residual is not."""
    x = torch.rand(600, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    op = KernelOperator(Matern(1.5, lengthscale), x, noise=1e-6, precision="single")
    result = cg(op, columns(600, 1), preconditioner=SparseInverseCholesky(20), tol=1e-6)
    assert result.converged
    assert not result.climbs
    assert result.passes_by_precision[rung] >= result.iterations


def test_a_start_that_is_too_low_climbs_and_keeps_the_best_iterate():
    op = kernel_operator(200, noise=0.02)
    b = columns(200, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        result = cg(op, b, tol=1e-10)
    assert result.converged


def test_no_column_stops_before_the_least_iterations() -> None:
    a = torch.diag(torch.linspace(1.0, 50.0, 40, dtype=torch.float64))
    b = torch.ones(40, 2, dtype=torch.float64)
    free, held = cg(a, b, tol=1.0), cg(a, b, tol=1.0, min_iterations=7)
    assert free.iterations == 1
    assert held.iterations == 7
    assert held.converged
    again = cg(a, b, x0=held.solution, tol=1.0, min_iterations=3)
    assert again.iterations == 3
    with pytest.raises(InputError, match="min_iterations"):
        cg(a, b, min_iterations=-1)


def test_true_residuals_may_be_taken_in_single() -> None:
    x = torch.randn(300, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    operator = KernelOperator(RBF(), x, noise=0.1)
    result = cg(operator, x[:, 0], tol=1e-3, residual_precision="single")
    assert "double" not in result.passes_by_precision
    truth = (x[:, 0] - operator.with_precision("double") @ result.solution).norm() / x[:, 0].norm()
    assert truth <= 1e-3 * (1 + 1e-2)  # single's rounding of A, 1e-6, beside a residual of 1e-3


def test_every_column_may_have_a_tolerance_of_its_own() -> None:
    operator, b = kernel_operator(), columns(200, 3)
    recipe = PivotedCholesky(rank=15)
    result = cg(operator, b, preconditioner=recipe, tol=[1e-8, 1e-1, 1e-3])
    assert result.converged
    assert bool((torch.as_tensor(result.residual_norms) <= torch.tensor([1e-8, 1e-1, 1e-3])).all())
    # A loose one stands still while the others go on.
    assert float(result.residual_norms[1]) > 1e-3
    first = result.columns(1)
    assert torch.equal(first.solution, result.solution[:, :1])
    assert first.column_status == (Status.CONVERGED,)
    assert len(first.residual_norms) == first.history.shape[1] == 1
    with pytest.raises(InputError, match="one for each of the 3 columns; got 2"):
        cg(operator, b, tol=[1e-2, 1e-2])
    with pytest.raises(InputError, match="`tol` must be a positive finite number"):
        cg(operator, b, tol=[1e-2, 0.0, 1e-2])


@pytest.mark.parametrize("how", [{}, {"precision": "half"}, {"method": "paper"}])
def test_a_loose_solve_from_a_start_within_the_tolerance_still_comes_nearer(how):
    """Its residual grows before it falls, and the start would have been the "best" of all."""
    a = with_spectrum(torch.logspace(-3, 1, 150))
    x, noise = columns(150, 3), columns(150, 3, seed=1)
    b = a @ x
    values, vectors = torch.linalg.eigh(a)
    # Off where A is small above all: little residual, much error.
    off = torch.where(values < 0.05, 30.0, 0.1)
    start = x - vectors @ (off[:, None] * (vectors.T @ noise))
    result = cg(a, b, x0=start, tol=1.0, min_iterations=5, **how)

    def error(found):
        e = torch.as_tensor(found) - x
        return ((a @ e) * e).sum(dim=0)

    assert result.status is Status.CONVERGED
    assert bool((error(result.solution) < 0.5 * error(start)).all())
    assert bool((result.residual_norms > 1.5 * true_relative(a, start, b)).all())
