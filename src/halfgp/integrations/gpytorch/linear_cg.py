"""Our conjugate gradients behind the signature and the warnings of `linear_operator.utils.linear_cg`."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from linear_operator import settings
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor

from halfgp.integrations.gpytorch.tridiagonal import tridiagonals
from halfgp.operators.adapters import CallableOperator
from halfgp.precision import Precision
from halfgp.solvers import cg

Closure = Callable[[Tensor], Tensor]


def linear_cg(
    matmul_closure: Tensor | Closure,
    rhs: Tensor,
    n_tridiag: int = 0,
    tolerance: float | None = None,
    eps: float = 1e-10,
    stop_updating_after: float = 1e-10,
    max_iter: int | None = None,
    max_tridiag_iter: int | None = None,
    initial_guess: Tensor | None = None,
    preconditioner: Closure | None = None,
) -> Any:
    """Solve A x = b for b (..., n, t) or (n,); residuals are true ones, and the best iterate is returned.

    Args:
        matmul_closure: A, or what multiplies by it.
        rhs: b.
        n_tridiag: of so many of the first columns the tridiagonal matrices are returned too, for one product
            more each of their rows.
        tolerance: relative residual of every column; None takes `cg_tolerance`.
        eps: norms of right-hand sides below it are zero.
        stop_updating_after: a relative residual that no column needs to go below.
        max_iter: None takes `max_cg_iterations`.
        max_tridiag_iter: the largest size of those; None takes `max_lanczos_quadrature_iterations`.
        initial_guess: where to start.
        preconditioner: what multiplies by P^-1.

    Returns:
        x, in the shape and dtype of b; with `n_tridiag` also (n_tridiag, ..., k, k). A `NumericalWarning`
        where the tolerance was not reached.
    """
    if not torch.is_tensor(matmul_closure) and not callable(matmul_closure):
        raise RuntimeError("matmul_closure must be a tensor, or a callable object!")
    most = settings.max_cg_iterations.value() if max_iter is None else max_iter
    if max_tridiag_iter is not None and max_tridiag_iter > most:
        raise RuntimeError(
            "Getting a tridiagonalization larger than the number of CG iterations run is not possible!"
        )
    wanted = settings.cg_tolerance.value() if tolerance is None else tolerance
    multiply = matmul_closure.matmul if isinstance(matmul_closure, Tensor) else matmul_closure
    columns = rhs.unsqueeze(-1) if rhs.ndim == 1 else rhs
    system = _Batch(multiply, columns)
    b = system.flat(columns)
    b = torch.where(b.norm(dim=0) < eps, 0.0, b)
    start = None if initial_guess is None else system.flat(initial_guess.reshape(columns.shape))
    result = cg(
        system.operator,
        b,
        preconditioner=None if preconditioner is None else _Closure(preconditioner, system),
        x0=start,
        tol=max(wanted, stop_updating_after),
        max_iterations=most,
        warn=False,
    )
    if not result.converged:
        average = float(torch.as_tensor(result.residual_norms).mean())
        warnings.warn(
            f"CG terminated in {result.iterations} iterations with average residual norm {average} which is"
            f" larger than the tolerance of {wanted}. {result.advice}",
            NumericalWarning,
            stacklevel=2,
        )
    solution = system.restored(torch.as_tensor(result.solution)).to(rhs)
    solution = solution.squeeze(-1) if rhs.ndim == 1 else solution
    if not n_tridiag:
        return solution
    size = (
        settings.max_lanczos_quadrature_iterations.value() if max_tridiag_iter is None else max_tridiag_iter
    )
    left = columns if initial_guess is None else columns - multiply(initial_guess.reshape(columns.shape))
    return solution, tridiagonals(multiply, left[..., :n_tridiag].detach(), min(size, most), preconditioner)


class _Batch:
    """A batch of matrices as one block-diagonal matrix: vectors (b n, t) one below the other."""

    def __init__(self, multiply: Closure, like: Tensor) -> None:
        self._multiply, self._shape, self._dtype = multiply, like.shape, like.dtype
        size = math.prod(like.shape[:-1])
        rung = Precision.resolve("double" if like.dtype == torch.float64 else "single")
        self.operator = CallableOperator(self._product, size, "torch", rung)

    def flat(self, v: Tensor) -> Tensor:
        """(..., n, t) as (b n, t), float64."""
        return v.detach().expand(self._shape).reshape(-1, self._shape[-1]).double()

    def restored(self, v: Tensor) -> Tensor:
        """(b n, s) as (..., n, s)."""
        return v.reshape(*self._shape[:-1], v.shape[-1])

    def through(self, closure: Closure, v: Tensor) -> Tensor:
        """What a closure of the caller makes of vectors (b n, s)."""
        made = closure(self.restored(v).to(self._dtype).contiguous())
        return made.reshape(-1, v.shape[-1]).to(v.dtype)

    def _product(self, v: Tensor) -> Tensor:
        return self.through(self._multiply, v)


class _Closure:
    """A caller's preconditioner."""

    def __init__(self, closure: Closure, system: _Batch) -> None:
        self._closure, self._system = closure, system

    def solve(self, v: Tensor) -> Tensor:
        """P^-1 v, in float64."""
        return self._system.through(self._closure, v).double()
