"""Systems whose condition is beyond single, which the default has to solve all the same."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from solvers.systems import columns, generator, true_relative

from halfgp import RBF, KernelOperator, Matern
from halfgp.preconditioners import PivotedCholesky
from halfgp.solvers import cg, lanczos


def points(n, d):
    return torch.randn(n, d, dtype=torch.float64, generator=generator(0))


def solved(op, b, **options):
    result = cg(op, b, tol=1e-3, **options)
    true = true_relative(op.with_precision("double").to_dense(), result.solution, b)
    assert result.converged
    # Two orders of summation of a product differ by n eps |A| |x|, far below the tolerance.
    assert float(true.max()) <= 1e-3 * (1 + 1e-2)
    return result


@pytest.mark.parametrize(("d", "noise"), [(1, 1e-8), (2, 1e-7), (3, 1e-8)])
def test_the_default_solves_without_a_preconditioner(d, noise):
    op = KernelOperator(RBF(), points(400, d), noise=noise)
    result = solved(op, columns(400, 3))
    # In exact arithmetic as many iterations as there are clusters of eigenvalues; plain CG takes thousands.
    exact = int((torch.linalg.eigvalsh(op.with_precision("double").to_dense()) > 100 * noise).sum())
    assert result.iterations <= 2 * exact + 20


def test_the_default_solves_with_a_preconditioner():
    op = KernelOperator(Matern(nu=0.5), points(400, 2), noise=1.5e-8)
    solved(op, columns(400, 3), preconditioner=PivotedCholesky(rank=50))


@pytest.mark.parametrize("precision", ["auto", "single", "double"])
def test_many_copies_of_a_few_points(precision):
    few = points(4, 2)[torch.randint(0, 4, (1000,), generator=generator(3))]
    op = KernelOperator(RBF(), few, noise=8.7e-5)
    result = solved(op, columns(1000, 3), precision=precision)
    assert result.iterations <= 15  # five eigenvalues, twice refined


def test_lanczos_in_double_finds_the_noise():
    """Rounded to single, its basis would leave eps |A| of the leading vectors in every new one."""
    noise = 1e-8
    op = KernelOperator(RBF(), points(200, 1), noise=noise)
    process = lanczos(op, columns(200, 1), steps=60, precision="double")
    least = float(process.ritz()[0].min())
    # A Ritz value is at least the smallest eigenvalue, but for 200 eps |A|.
    assert abs(least - noise) <= 0.01 * noise


@pytest.mark.parametrize("kind", [np.float32, np.float16, torch.float32, torch.float16])
@pytest.mark.parametrize("noise", [1e-4, 1e-6])
def test_what_is_reported_is_what_is_returned(kind, noise):
    x = points(200, 1)
    b = torch.sin(3 * x) * 100
    b = b.numpy().astype(kind) if isinstance(kind, type) else b.to(kind)
    op = KernelOperator(RBF(), x, noise=noise)
    result = cg(op, b, tol=1e-4)
    solution = torch.as_tensor(result.solution)
    wide = torch.as_tensor(b).double()
    true = true_relative(op.with_precision("double").to_dense(), solution, wide)
    assert result.converged
    assert solution.dtype == torch.float64
    assert type(result.solution) is type(b)
    torch.testing.assert_close(true, torch.as_tensor(result.residual_norms), rtol=1e-2, atol=1e-9)
