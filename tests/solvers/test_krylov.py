"""The basis and the relation that a replaced residual is solved with."""

from __future__ import annotations

import pytest
import torch
from solvers.systems import columns, with_spectrum

from halfgp.operators import as_operator
from halfgp.precision import DOUBLE, SINGLE, Precision
from halfgp.solvers.recurrence import Arithmetic, Recurrence
from halfgp.solvers.reorthogonalise import Basis


def recurrence(a, b, steps, window=None):
    system = as_operator(a)
    double = Precision.resolve("double")
    process = Recurrence(
        system,
        None,
        arithmetic=Arithmetic.of(double),
        inner_product="direct",
        window=window,
        x=torch.zeros_like(b),
        r=b.clone(),
    )
    for _ in range(steps):
        process.step(torch.ones(b.shape[1], dtype=torch.bool))
    return process


@pytest.mark.parametrize("fmt", [SINGLE, DOUBLE], ids=lambda fmt: fmt.name)
def test_a_basis_projects_and_combines_across_its_chunks(fmt):
    basis = Basis(as_operator(torch.eye(50)), None, fmt)
    kept = [columns(50, 3, seed) for seed in range(70)]
    for v in kept:
        basis.append(v)
    v = columns(50, 3, 99)
    expected = torch.stack([(u * v).sum(0) for u in kept])
    error = 500 * fmt.eps  # fifty terms of a few units, each rounded
    torch.testing.assert_close(basis.coefficients(v), expected, rtol=error, atol=error)
    c = columns(70, 3, 5)
    combined = sum(u * c[k] for k, u in enumerate(kept))
    torch.testing.assert_close(basis.combine(c).double(), combined, rtol=error, atol=error)
    assert basis.complete


def test_a_window_keeps_the_latest():
    basis = Basis(as_operator(torch.eye(20)), 3, SINGLE)
    kept = [columns(20, 1, seed) for seed in range(8)]
    for v in kept:
        basis.append(v)
    v = columns(20, 1, 99)
    got = sorted(basis.coefficients(v)[:, 0].tolist())
    expected = sorted(float((u * v).sum()) for u in kept[-3:])
    torch.testing.assert_close(torch.tensor(got), torch.tensor(expected), rtol=1e-4, atol=1e-4)
    assert len(basis) == 3
    assert not basis.complete


def test_a_foreign_residual_is_solved_on_the_space_so_far():
    a = with_spectrum(torch.logspace(-3, 0, 60))
    b = columns(60, 2)
    process = recurrence(a, b, 25)
    best = process.x.clone()
    # An error in the space of the directions is repaired without a product.
    process.x = 0.7 * process.x
    process.replace(b - a @ process.x)
    torch.testing.assert_close(process.x, best, rtol=0, atol=1e-4 * float(best.abs().max()))
    torch.testing.assert_close(process.r, b - a @ process.x, rtol=0, atol=1e-4)


def test_directions_after_a_replacement_are_conjugate_to_those_before():
    a = with_spectrum(torch.logspace(-2, 0, 60))
    b = columns(60, 1)
    process = recurrence(a, b, 10)
    early = process.d.clone()
    seen = [early]
    process.step(torch.ones(1, dtype=torch.bool))
    process.x = process.x + 0.01 * columns(60, 1, 5)
    process.replace(b - a @ process.x)
    for _ in range(5):
        seen.append(process.d.clone())
        process.step(torch.ones(1, dtype=torch.bool))
    directions = torch.cat(seen, dim=1)
    energy = directions.T @ a @ directions
    scale = energy.diagonal().sqrt()
    off = (energy / scale / scale[:, None]).fill_diagonal_(0.0)
    assert float(off.abs().max()) < 1e-4


def test_the_residual_stays_the_true_one_with_reorthogonalisation():
    a = with_spectrum(torch.logspace(-6, 0, 80))
    b = columns(80, 1)
    process = recurrence(a, b, 60)
    torch.testing.assert_close(process.r, b - a @ process.x, rtol=0, atol=1e-10)
