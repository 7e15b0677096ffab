"""The marginal log likelihood by our products, in GPyTorch's training loop."""

from __future__ import annotations

from typing import Any

import gpytorch
from torch import Tensor

from halfgp.integrations.gpytorch.enabling import enable
from halfgp.precision import Precision


class ExactMarginalLogLikelihood(gpytorch.mlls.ExactMarginalLogLikelihood):  # type: ignore[misc]
    """GPyTorch's, with value and gradient by halfgp, whichever kernels the model has of those we know.

    Args:
        likelihood: Gaussian.
        model: a `gpytorch.models.ExactGP`.
        precision: as for `enable`.
    """

    def __init__(self, likelihood: Any, model: Any, precision: str | Precision = "auto") -> None:
        super().__init__(likelihood, model)
        Precision.resolve(precision)
        self.precision = precision

    def forward(self, function_dist: Any, target: Tensor, *params: Any, **kwargs: Any) -> Tensor:
        """Per row, as GPyTorch has it."""
        with enable(self.precision):
            value: Tensor = super().forward(function_dist, target, *params, **kwargs)
        return value
