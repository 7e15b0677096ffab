from __future__ import annotations

import warnings

import pytest
import torch
from solvers.systems import columns, generator, kernel_operator, smooth_operator, with_spectrum

from halfgp import RBF, KernelOperator
from halfgp.errors import ConvergenceWarning, InputError
from halfgp.preconditioners import PivotedCholesky
from halfgp.solvers import lanczos, log_determinant


def test_all_eigenvalues_are_found_when_the_space_is_whole():
    eigenvalues = torch.linspace(0.1, 2, 25, dtype=torch.float64)
    result = lanczos(with_spectrum(eigenvalues), columns(25, 2), steps=25, precision="double")
    for column in range(2):
        torch.testing.assert_close(result.ritz(column)[0], eigenvalues, rtol=0, atol=1e-6)


@pytest.mark.parametrize("precision", ["half", "single", "double"])
def test_the_basis_is_orthonormal_in_every_precision(precision):
    op = smooth_operator(150, noise=1e-2)
    result = lanczos(op, columns(150, 2), steps=40, precision=precision, keep_basis=True)
    for column in range(2):
        q = result.basis[column, : int(result.lengths[column])].double()
        torch.testing.assert_close(q @ q.T, torch.eye(len(q), dtype=torch.float64), rtol=0, atol=2e-6)


def test_half_finds_the_large_eigenvalues():
    op = kernel_operator(200)
    exact = torch.linalg.eigvalsh(op.with_precision("double").to_dense())
    values = lanczos(op, columns(200, 1), steps=60, precision="half").ritz()[0]
    torch.testing.assert_close(values[-5:], exact[-5:], rtol=2e-3, atol=0)


def test_without_reorthogonalisation_ritz_values_repeat():
    a = with_spectrum(torch.cat([torch.logspace(-3, -1, 80), torch.tensor([1.0, 10.0])]))
    kept = lanczos(a, columns(82, 1), steps=60, precision="single")
    lost = lanczos(a, columns(82, 1), steps=60, precision="single", reorthogonalise=False)
    assert int((kept.ritz()[0] > 5).sum()) == 1
    assert int((lost.ritz()[0] > 5).sum()) > 1


def test_an_exhausted_space_ends_early_and_its_neighbour_goes_on():
    a = with_spectrum(torch.linspace(1, 2, 30))
    vector = torch.linalg.eigh(a)[1][:, 4]
    start = torch.stack([vector, columns(30, 1)[:, 0]], dim=1)
    result = lanczos(a, start, steps=10, precision="double")
    assert int(result.lengths[0]) <= 2
    assert int(result.lengths[1]) == 10
    assert bool(result.diagonal.isfinite().all())


@pytest.mark.parametrize("precision", ["half", "single", "double", "auto"])
def test_the_log_determinant_is_within_its_error(precision):
    op = kernel_operator(300, noise=0.3)
    exact = float(torch.logdet(op.with_precision("double").to_dense()))
    estimate = log_determinant(op, probes=32, steps=40, precision=precision)
    assert abs(estimate.value - exact) < 4 * estimate.standard_error
    assert estimate.passes <= 40


def test_steps_end_where_more_would_tell_nothing():
    op = kernel_operator(300, noise=0.3)
    few, many = log_determinant(op, probes=32, steps=40), log_determinant(op, probes=32, steps=300)
    assert few.passes == many.passes < 40
    # One probe has no error that could hide anything; what is left of the value is what its steps are for.
    assert log_determinant(op, probes=1, steps=40).passes == 40
    exact = log_determinant(op, probes=1, steps=300)
    assert log_determinant(op, probes=1, steps=few.passes).value == pytest.approx(
        exact.value, abs=few.standard_error
    )


def test_a_preconditioner_makes_the_log_determinant_precise():
    op = smooth_operator(300, noise=1e-2)
    exact = float(torch.logdet(op.with_precision("double").to_dense()))
    plain = log_determinant(op, probes=8, steps=25)
    better = log_determinant(op, probes=8, steps=25, preconditioner=PivotedCholesky(rank=60))
    assert abs(better.value - exact) < 4 * better.standard_error + 1e-3
    assert better.standard_error < 0.1 * plain.standard_error


@pytest.mark.parametrize("steps", [5, 20, 50, 200])
def test_what_is_cut_off_is_told(steps):
    x = torch.randn(1200, 2, dtype=torch.float64, generator=generator(0))
    op = KernelOperator(RBF(), x, noise=1e-4)
    exact = float(torch.linalg.slogdet(op.with_precision("double").to_dense())[1])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = log_determinant(op, steps=steps)
    assert abs(found.value - exact) <= 4.5 * found.standard_error + found.truncation
    told = any(issubclass(warning.category, ConvergenceWarning) for warning in caught)
    assert told == (found.truncation > found.standard_error) == (steps <= 50)


@pytest.mark.parametrize("call", [lanczos, lambda a, start: log_determinant(a)], ids=["lanczos", "logdet"])
def test_products_that_are_not_finite_are_refused(call):
    with pytest.raises(InputError, match="not finite in double"):
        call((lambda v: v * torch.nan, 10), torch.ones(10))


def test_an_indefinite_matrix_is_refused():
    with pytest.raises(InputError, match="positive definite"):
        log_determinant(with_spectrum(torch.linspace(-1, 1, 30)))


def test_bad_counts_are_refused():
    with pytest.raises(InputError, match="steps"):
        lanczos(torch.eye(3), torch.ones(3), steps=0)
    with pytest.raises(InputError, match="steps"):
        log_determinant(torch.eye(3, dtype=torch.float64), steps=0)
    with pytest.raises(InputError, match="probes"):
        log_determinant(torch.eye(3, dtype=torch.float64), probes=0)
