from __future__ import annotations

import pytest
import torch
from contracts.textbook import KERNELS, Textbook, at, points, targets

import halfgp.prediction.factor
from halfgp.errors import InputError
from halfgp.kernels import RBF
from halfgp.operators import KernelOperator
from halfgp.prediction.factor import CholeskyFactor
from halfgp.problem import Problem

N = 80
HYPERPARAMETERS = at(KERNELS["white"], noise=0.1)
BOOK = Textbook(HYPERPARAMETERS, points(N), targets(points(N)))
# n eps times the condition number, some hundreds.
TOLERANCES = {torch.float64: 1e-11, torch.float32: 2e-3}


def built(dtype):
    return CholeskyFactor.build(Problem(BOOK.x, BOOK.y).operator(HYPERPARAMETERS, "single"), dtype)


@pytest.mark.parametrize("block", [7, 40, 1024])
@pytest.mark.parametrize("dtype", TOLERANCES)
def test_all_it_gives_is_of_k_plus_noise(dtype, block, monkeypatch):
    monkeypatch.setattr(halfgp.prediction.factor, "BLOCK", block)
    factor, tolerance = built(dtype), TOLERANCES[dtype]
    assert factor.lower.dtype == dtype
    inverse = torch.linalg.inv(BOOK.matrix)
    b = targets(BOOK.x, q=3, seed=5)
    torch.testing.assert_close(factor.solve(b), inverse @ b, rtol=0, atol=tolerance)
    white = factor.whiten(b).double()
    torch.testing.assert_close(white.T @ white, b.T @ inverse @ b, rtol=tolerance, atol=tolerance)
    back = factor.whiten(factor.whiten(b), transposed=True)  # in the format of b, whatever the factor's
    assert back.dtype == b.dtype
    torch.testing.assert_close(back, inverse @ b, rtol=0, atol=tolerance)
    rows = torch.tensor([3, 79, 0, 40])
    diagonal = inverse.diagonal()[rows]
    torch.testing.assert_close(factor.inverse_diagonal(rows), diagonal, rtol=tolerance, atol=0)
    assert factor.log_determinant() == pytest.approx(float(torch.logdet(BOOK.matrix)), abs=tolerance)


def test_a_column_far_below_the_range_of_its_format_is_solved():
    """A residual may be 1e-60 of anything; float32 ends at 1e-38."""
    b = BOOK.y * torch.tensor([[1e-60]], dtype=torch.float64)
    found = built(torch.float32).solve(b)
    torch.testing.assert_close(found * 1e60, torch.linalg.solve(BOOK.matrix, BOOK.y), rtol=0, atol=2e-3)
    assert torch.equal(built(torch.float32).solve(torch.zeros_like(b)), torch.zeros_like(b))


def test_nothing_is_denormal_however_short_the_lengthscale(monkeypatch):
    """Neighbours on a line: every entry of L is a product of those before it, down to nothing."""
    monkeypatch.setattr(halfgp.prediction.factor, "BLOCK", 64)
    x = torch.arange(400, dtype=torch.float64)[:, None]
    operator = KernelOperator(RBF(0.7), x, noise=0.1, precision="single", truncate=False)
    factor = CholeskyFactor.build(operator, torch.float32)
    white = factor.whiten(torch.eye(400)[:, :3])
    assert torch.linalg.cholesky(operator.to_dense().float()).abs().gt(0).sum() > factor.lower.gt(0).sum()
    for found in (factor.lower, white, factor.whiten(white, transposed=True)):
        assert not bool(((found != 0) & (found.abs() < torch.finfo(torch.float32).tiny)).any())


def test_too_little_noise_is_refused_with_the_remedy():
    x = points(200)
    operator = Problem(x, targets(x)).operator(at(RBF(30.0), noise=1e-9, floor=0.0), "single")
    with pytest.raises(InputError, match=r"float32 at row \d+: the noise is too small.*`noise_floor`"):
        CholeskyFactor.build(operator, torch.float32)
    CholeskyFactor.build(operator, torch.float64)
