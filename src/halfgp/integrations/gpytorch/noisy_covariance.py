"""K + diagonal, whose solves and determinants are ours."""

from __future__ import annotations

import contextlib
import warnings
from functools import cached_property
from typing import Any

import torch
from gpytorch import settings
from linear_operator.operators import AddedDiagLinearOperator
from torch import Tensor

from halfgp.errors import ConvergenceWarning
from halfgp.integrations.gpytorch.covariance import KernelCovariance
from halfgp.integrations.gpytorch.likelihood_terms import LikelihoodTerms, operator_of
from halfgp.operators import KernelOperator
from halfgp.preconditioners import AutomaticPreconditioner, Preconditioner
from halfgp.solvers import SolveResult, cg

SOLVE_TOL = 1e-3  # true relative residual of means, whatever GPyTorch's tolerances are
COLUMNS = 64  # right-hand sides of one solve


class NoisyCovariance(AddedDiagLinearOperator):  # type: ignore[misc]
    """K + D of a `KernelCovariance` K.

    Up to `max_cholesky_size` rows, and for batches of matrices, it is what GPyTorch makes of any matrix.
    Beyond, solves go to a true relative residual of 1e-3 with a preconditioner of ours, and the likelihood
    comes from one Lanczos process: its probes are as many as `num_trace_samples`, its steps at most
    `max_lanczos_quadrature_iterations`.
    """

    @property
    def kernel_matrix(self) -> KernelCovariance:
        """K."""
        matrix: KernelCovariance = self._linear_op
        return matrix

    def inv_quad_logdet(
        self, inv_quad_rhs: Tensor | None = None, logdet: bool = False, reduce_inv_quad: bool = True
    ) -> Any:
        """As any operator's; beyond Cholesky both terms come from one process."""
        if not (self.is_ours and logdet):
            return super().inv_quad_logdet(inv_quad_rhs, logdet, reduce_inv_quad)
        rhs = self._diag_tensor._diagonal().new_zeros(len(self), 1) if inv_quad_rhs is None else inv_quad_rhs
        columns = rhs.unsqueeze(-1) if rhs.ndim == 1 else rhs
        matrix = self.kernel_matrix
        options = {
            "probes": settings.num_trace_samples.value(),
            "max_iterations": settings.max_lanczos_quadrature_iterations.value(),
            "precision": matrix.precision,
        }
        noise = self._diag_tensor._diagonal()
        quadratic, log_det = LikelihoodTerms.apply(  # type: ignore[no-untyped-call]
            matrix.representation_tree(), options, columns, noise, *matrix.representation()
        )
        return quadratic.sum() if reduce_inv_quad else quadratic, log_det

    def solve(self, right_tensor: Tensor, left_tensor: Tensor | None = None) -> Tensor:
        """A^-1 b; ours also where BoTorch has told GPyTorch to take Cholesky factors of any size."""
        theirs = (
            contextlib.nullcontext() if not self.is_ours else settings.fast_computations(True, True, True)
        )
        with theirs:
            solution: Tensor = super().solve(right_tensor, left_tensor)
        return solution

    def _solve(self, rhs: Tensor, preconditioner: Any = None, num_tridiag: int = 0) -> Any:
        if num_tridiag or not self.is_ours:
            return super()._solve(rhs, preconditioner, num_tridiag)
        flat = rhs.movedim(-2, 0).reshape(rhs.shape[-2], -1)
        found = self.solved(flat, tol=SOLVE_TOL)
        shape = (rhs.shape[-2], *rhs.shape[:-2], rhs.shape[-1])
        return found[0].to(rhs).reshape(shape).movedim(0, -2)

    def _solve_preconditioner(self) -> Any:
        return None if self.is_ours else super()._solve_preconditioner()

    @torch.no_grad()
    def solved(self, rhs: Tensor, tol: float, error_tol: float | None = None) -> tuple[Tensor, Tensor]:
        """A^-1 b and the residuals, (n, t) in float64, of right-hand sides (n, t), by `cg` on its ladder.

        Args:
            rhs: b (n, t).
            tol: true relative residual.
            error_tol: beside it the error in the norm of A, as `cg` has it.
        """
        if not rhs.shape[1]:
            return rhs.detach().double(), rhs.detach().double()
        operator, preconditioner = self._prepared
        parts: list[SolveResult] = []
        for start in range(0, rhs.shape[1], COLUMNS):
            columns = rhs[:, start : start + COLUMNS].detach().double()
            parts.append(
                cg(operator, columns, preconditioner=preconditioner, tol=tol, error_tol=error_tol,
                   precision=self.kernel_matrix.precision, warn=False)
            )  # fmt: skip
        failed = next((part for part in parts if not part.converged), None)
        if failed is not None:
            warnings.warn(failed.advice, ConvergenceWarning, stacklevel=3)
        solutions = [torch.as_tensor(part.solution) for part in parts]
        residuals = [torch.as_tensor(part.residual) for part in parts]
        return torch.cat(solutions, dim=1), torch.cat(residuals, dim=1)

    @cached_property
    def _prepared(self) -> tuple[KernelOperator, Preconditioner]:
        """What every solve takes: K + D as our solvers have it, and its preconditioner."""
        operator = operator_of(self.kernel_matrix, self._diag_tensor._diagonal())
        return operator, AutomaticPreconditioner().build(operator)

    @property
    def is_ours(self) -> bool:
        """Whether solves and determinants go our way."""
        return (
            isinstance(self._linear_op, KernelCovariance)
            and not self.batch_shape
            and self.shape[-1] > settings.max_cholesky_size.value()
        )
