"""`KernelOperator(truncate=...)`: what is zero, what is told of it, and what is refused."""

from __future__ import annotations

import math

import pytest
import torch
from contracts.textbook import KERNELS, points

from halfgp import RBF, Constant, KernelOperator, Linear, Matern, cg
from halfgp.errors import InputError
from halfgp.precision import DOUBLE, SINGLE
from halfgp.truncation import EXACT, resolve_truncation

X = 3.0 * points(900, 2)
V = torch.randn(900, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize("truncate", ["always", -1e-3, 0.0, 1.0, math.nan, 2])
def test_what_is_no_cutoff_is_refused(truncate: object) -> None:
    with pytest.raises(InputError, match=r'`truncate` must be "auto", True, False, or a relative cutoff'):
        KernelOperator(RBF(), X, truncate=truncate)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "fmt"), [("single", SINGLE), ("double", DOUBLE)])
def test_auto_loses_less_than_a_rounding_of_the_variance(name: str, fmt: object) -> None:
    kernel = 7.0 * Matern(1.5, 0.1)
    told = KernelOperator(kernel, X, noise=0.5, precision=name).truncation
    assert told.cutoff == fmt.unit_roundoff / 900  # type: ignore[attr-defined]
    assert 0.0 < told.skipped < 1.0
    assert 0.0 < told.error <= 1.001 * 7.0 * fmt.unit_roundoff  # type: ignore[attr-defined]
    assert told.rho == told.error / 0.5
    assert KernelOperator(kernel, X, precision=name).truncation.rho == math.inf


def test_truncation_differs_from_none_by_no_more_than_its_error() -> None:
    """In the largest number and, since E is symmetric, in the norm."""
    kernel = Matern(0.5, 0.3) + 0.2 * RBF(0.5)
    whole = KernelOperator(kernel, X, noise=0.1, precision="double", truncate=False)
    for cutoff in (1e-9, 1e-6, 1e-3):
        cut = KernelOperator(kernel, X, noise=0.1, precision="double", truncate=cutoff)
        lost = torch.as_tensor(whole @ V) - torch.as_tensor(cut @ V)
        rounding = 1e-12 * V.abs().sum()
        assert lost.abs().max() <= cut.truncation.error * V.abs().max() + rounding
        assert (lost.norm(dim=0) <= cut.truncation.error * V.norm(dim=0) + rounding).all()
        assert lost.abs().max() > 0.0


def test_a_truncated_solution_has_the_residual_that_rho_allows() -> None:
    kernel = Matern(1.5, 0.3)
    whole = KernelOperator(kernel, X, noise=0.1, precision="double", truncate=False)
    cut = KernelOperator(kernel, X, noise=0.1, precision="double", truncate=1e-6)
    rho, y = cut.truncation.rho, V[:, :1]
    assert 0.0 < rho < 1.0
    w = torch.as_tensor(cg(cut, y, tol=1e-10).solution)
    own, true = ((y - torch.as_tensor(k @ w)).norm() for k in (cut, whole))
    assert own < true <= own + rho / (1.0 - rho) * (y.norm() + own)


def test_each_rung_is_cut_off_by_its_own_format() -> None:
    operator = KernelOperator(RBF(0.1), X, precision="half")
    cutoffs = [operator.with_precision(name).truncation.cutoff for name in ("half", "single", "double")]
    assert cutoffs == [2.0**-25, 2.0**-24 / 900, 2.0**-53 / 900]


@pytest.mark.parametrize("kernel", [*KERNELS.values(), RBF() + Constant(0.1), RBF() * Linear()])
def test_auto_is_for_kernels_that_fall_to_zero_and_have_one_variance(kernel: object) -> None:
    found = resolve_truncation("auto", kernel, 10, KernelOperator(RBF(), X, precision="single").precision)  # type: ignore[arg-type]
    x = torch.cat([torch.zeros(1, 3), torch.full((1, 3), 1e6)]).double()
    far, near = kernel(x[:1], x[1:]), kernel.diagonal(x)  # type: ignore[operator, attr-defined]
    periodic = "Periodic" in repr(kernel)
    falls = bool((far.abs() < 1e-3).all()) and bool(near[0] == near[1]) and bool(near[0] > 0)
    assert (found != EXACT) == (falls or periodic)  # of which the engine sees sines and cosines
