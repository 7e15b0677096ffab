from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from solvers.systems import columns, generator, true_relative, with_spectrum

from halfgp import RBF, KernelOperator
from halfgp.preconditioners import PivotedCholesky
from halfgp.solvers import cg

spectra = st.sampled_from(["geometric", "clustered", "two", "noise floor", "linear"])


def spectrum(kind: str, n: int, condition: float) -> torch.Tensor:
    if kind == "geometric":
        return torch.logspace(0, -torch.log10(torch.tensor(condition)).item(), n, dtype=torch.float64)
    if kind == "clustered":
        return torch.cat([torch.ones(n // 2), torch.full((n - n // 2,), 1 / condition)]).double()
    if kind == "two":
        return torch.cat([torch.tensor([1.0]), torch.full((n - 1,), 1 / condition)]).double()
    if kind == "noise floor":
        return torch.logspace(0, -8, n, dtype=torch.float64) + 1 / condition
    return torch.linspace(1 / condition, 1, n, dtype=torch.float64)


@given(
    spectra,
    st.integers(1, 60),
    st.sampled_from([1, 2, 64]),
    st.floats(0, 4),
    st.floats(-6, 6),
    st.floats(-6, 6),
    st.sampled_from([1e-2, 1e-6]),
    st.integers(0, 10**6),
)
def test_any_spectrum_and_scaling_is_solved(kind, n, t, digits, matrix_scale, vector_scale, tol, seed):
    a = with_spectrum(spectrum(kind, n, 10.0**digits), seed) * 10.0**matrix_scale
    b = columns(n, t, seed + 1) * 10.0**vector_scale
    result = cg(a, b, tol=tol)
    assert result.converged
    assert float(true_relative(a, result.solution, b).max()) <= tol * (1 + 1e-9)


@given(st.integers(2, 60), st.floats(-3, 0), st.integers(0, 5), st.integers(0, 10**6))
def test_repeated_rows_and_rank_deficient_kernels_are_solved(n, noise, rank, seed):
    x = torch.randn(n, 2, dtype=torch.float64, generator=generator(seed))
    x[n // 2 :] = x[: n - n // 2].clone()
    op = KernelOperator(RBF(lengthscale=2.0), x, noise=10.0**noise, backend="reference")
    b = columns(n, 2, seed)
    result = cg(op, b, preconditioner=PivotedCholesky(rank=rank), tol=1e-6)
    assert result.converged
    dense = op.with_precision("double").to_dense()
    assert float(true_relative(dense, result.solution, b).max()) <= 1e-6 * (1 + 1e-9)


@given(st.sampled_from([1e-300, 1e-30, 1e-8, 1e30, 1e300]), st.integers(1, 30))
def test_tiny_and_huge_right_hand_sides_are_solved(scale, n):
    a = with_spectrum(torch.linspace(0.5, 1.0, n))
    b = columns(n, 2) * scale
    result = cg(a, b, tol=1e-8)
    assert result.converged
    torch.testing.assert_close(a @ (result.solution / scale), b / scale, rtol=0, atol=1e-6)


@given(st.integers(0, 10**6), st.floats(1e-12, 1.0))
def test_warm_starts_never_end_worse_than_asked(seed, distance):
    a = with_spectrum(torch.logspace(-2, 0, 30), 3)
    b = columns(30, 2, 4)
    start = torch.linalg.solve(a, b) + distance * columns(30, 2, seed)
    result = cg(a, b, x0=start, tol=1e-6)
    assert result.converged
    if distance < 1e-9:
        assert result.iterations == 0


@pytest.mark.parametrize("t", [1, 64])
def test_one_and_many_columns(t):
    a = with_spectrum(torch.logspace(-3, 0, 100))
    b = columns(100, t)
    result = cg(a, b, tol=1e-6)
    assert result.converged
    assert len(result.column_status) == result.residual_norms.shape[0] == t
