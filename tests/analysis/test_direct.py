from __future__ import annotations

import torch

from halfgp import KernelOperator, Matern
from halfgp.analysis.direct import direct_route
from halfgp.precision import DOUBLE, HALF
from halfgp.preconditioners import PivotedCholesky
from halfgp.solvers import cg


def test_direct_solves_in_half_fail_where_cg_does_not():
    x = torch.randn(400, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    op = KernelOperator(Matern(nu=1.5, lengthscale=2.0), x, noise=0.01, backend="reference")
    b = torch.randn(400, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    half = direct_route(op, b, [5, 20, 80], HALF)
    exact = direct_route(op, b, [5, 20, 80, 400], DOUBLE)
    assert min(half.residuals) > 0.5
    # At full rank the route is exact, but for the rounding of a solve: n eps times the condition.
    spectrum = torch.linalg.eigvalsh(torch.as_tensor(op.with_precision("double").to_dense()))
    assert exact.residuals[-1] < 400 * DOUBLE.eps * float(spectrum[-1] / spectrum[0])
    solved = cg(op, b, preconditioner=PivotedCholesky(rank=15), tol=1e-2)
    assert float(solved.residual_norms.max()) <= 1e-2
