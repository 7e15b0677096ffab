"""r'A^-1 r and log det A of a covariance with noise, with gradients, as autograd sees them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from halfgp.integrations.gpytorch.covariance import KernelCovariance
from halfgp.kernels.first_derivative import first_derivative
from halfgp.likelihood.krylov import krylov_terms
from halfgp.operators import KernelOperator


class LikelihoodTerms(torch.autograd.Function):
    """Of one matrix: (q,) quadratic forms and the log-determinant, from one Lanczos process.

    Backward is one pass over K for all hyperparameters, and for the points where they want it.
    """

    @staticmethod
    def forward(
        ctx: Any, tree: Any, options: dict[str, Any], rhs: Tensor, noise: Tensor, *matrix: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Solve.

        Args:
            ctx: of autograd.
            tree: what makes a `KernelCovariance` of its tensors.
            options: probes and iterations, as for `krylov_terms`.
            rhs: r (n, q).
            noise: (n,) variances.
            matrix: the tensors of K.
        """
        covariance: KernelCovariance = tree(*matrix)
        operator = operator_of(covariance, noise)
        kept, r = covariance.kept, rhs.double()
        preconditioner = kept.preconditioner(operator.bound)
        terms = krylov_terms(operator.bound, preconditioner, r, start=kept.start(r), **options)
        kept.weights = terms.solutions
        ctx.tree, ctx.terms, ctx.rhs = tree, terms, rhs
        ctx.save_for_backward(noise, *matrix)
        log_det = torch.tensor(terms.log_det, dtype=rhs.dtype)
        return terms.quadratic.to(rhs), log_det

    @staticmethod
    def backward(ctx: Any, by_quadratic: Tensor, by_log_det: Tensor) -> tuple[Any, ...]:
        """-w'dA w, and tr(A^-1 dA)."""
        noise, *matrix = ctx.saved_tensors
        terms, tree = ctx.terms, ctx.tree
        solutions = terms.solutions
        left = torch.cat([-solutions * by_quadratic, terms.left * (by_log_det / terms.left.shape[1])], dim=1)
        right = torch.cat([solutions, terms.right], dim=1)
        wanted = [t.detach().requires_grad_(w) for t, w in zip(matrix, ctx.needs_input_grad[4:], strict=True)]
        # Estimates are far coarser than single, which is half the time of double.
        covariance = tree(*wanted).with_precision("single")
        found = covariance._bilinear_derivative(left.float(), right.float())
        by_noise = (left * right).sum(dim=1).to(noise) if ctx.needs_input_grad[3] else None
        by_rhs = (2.0 * solutions * by_quadratic).to(ctx.rhs) if ctx.needs_input_grad[2] else None
        return (
            None,
            None,
            *(
                None if part is None else first_derivative(part, ctx.rhs, noise, *matrix)
                for part in (by_rhs, by_noise, *found)
            ),
        )


def operator_of(covariance: KernelCovariance, noise: Tensor) -> KernelOperator:
    """K + noise of one matrix, as our solvers take it.

    Args:
        covariance: square, without a batch.
        noise: (n,) variances.
    """
    ((kernel, x, _),) = covariance.elements()
    # One number where all are alike, which preconditioners make use of.
    variances = noise.detach().double()
    same = bool((variances == variances[0]).all())
    precision = "single" if covariance.precision == "auto" else covariance.precision
    return KernelOperator(
        kernel.detached(), x.detach(), noise=variances[0] if same else variances, precision=precision
    )
