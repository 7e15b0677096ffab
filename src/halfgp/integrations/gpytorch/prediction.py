"""Predictions of GPyTorch's exact models whose variances no global tolerance changes."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import torch
from gpytorch import settings
from gpytorch.models.exact_prediction_strategies import DefaultPredictionStrategy
from linear_operator import to_dense, to_linear_operator
from torch import Tensor

from halfgp.integrations.gpytorch.noisy_covariance import NoisyCovariance

VARIANCE_SHARE = 1e-3  # of the least noise: what a variance may be too large by
VARIANCE_TOL = 1e-2  # true relative residual of their solves, at least


class SolvedPredictions(DefaultPredictionStrategy):  # type: ignore[misc]
    """GPyTorch's own strategy, but for covariances beyond Cholesky.

    With S near A^-1 k and its residual R = k - A S, which is known, k'S + S'R is below k'A^-1 k by R'A^-1 R:
    the error is of second order, and variances are too large by it, never negative. Solves go on until it is
    a thousandth of the noise. Gradients in the points need no further solve.
    """

    def exact_predictive_covar(self, test_test_covar: Any, test_train_covar: Any) -> Any:
        """The covariance (..., m, m) of the function at new points."""
        train = self._train
        if train is None or _left_to_theirs() or settings.skip_posterior_variances.on():
            return super().exact_predictive_covar(test_test_covar, test_train_covar)
        cross = to_dense(test_train_covar)
        noise = float(train._diag_tensor._diagonal().detach().min())
        error = math.sqrt(VARIANCE_SHARE * noise / train.shape[-1])
        flat = cross.detach().mT.movedim(-2, 0).reshape(train.shape[-1], -1)
        solved, residual = (
            w.reshape(train.shape[-1], *cross.shape[:-2], cross.shape[-2]).movedim(0, -2)
            for w in train.solved(flat, tol=VARIANCE_TOL, error_tol=error)
        )
        explained = _explained(cross, solved, residual).to(cross)
        return to_linear_operator(to_dense(test_test_covar) - explained)

    @cached_property
    def _evaluated(self) -> Any:
        """K + noise of the rows, once for all predictions, with what solves it."""
        return self.lik_train_train_covar.evaluate_kernel()

    @property
    def _train(self) -> NoisyCovariance | None:
        """The same where its solves are ours."""
        matrix = self._evaluated
        return matrix if isinstance(matrix, NoisyCovariance) and matrix.is_ours else None


def _left_to_theirs() -> bool:
    """Whether GPyTorch was told to do otherwise.

    Who wants gradients in hyperparameters through predictions does not want solutions as constants. Fast
    variances are those of a few Lanczos vectors, unless, as with BoTorch, roots are to be exact.
    """
    fast = settings.fast_pred_var.on() and settings.fast_computations.covar_root_decomposition.on()
    return bool(settings.detach_test_caches.off() or fast)


def _explained(cross: Tensor, solved: Tensor, residual: Tensor) -> Tensor:
    """k'A^-1 k (..., m, m), differentiable in k, from what is known of A^-1 k.

    Args:
        cross: k' (..., m, n), with its graph.
        solved: S (..., n, m), a constant.
        residual: k - A S (..., n, m).
    """
    half = cross.double() @ solved
    with torch.no_grad():
        value = half + solved.mT @ residual
        value = 0.5 * (value + value.mT)
        constant = value - half - half.mT
    # Its derivative is dk'S + S'dk, as that of the true form.
    return half + half.mT + constant
