"""The periodic kernel, which is an RBF of the points wound around a circle."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from halfgp.kernels.base import LeafKernel
from halfgp.kernels.profiles import SQUARED_EXPONENTIAL
from halfgp.kernels.program import Leaf, Lowering, Term
from halfgp.parameters import Parameter, ParameterValue, positive


class Periodic(LeafKernel):
    """k(x, y) = exp(-2 sum_k sin^2(pi (x_k - y_k) / period_k) / lengthscale_k).

    The lengthscale is not squared, as in GPyTorch.
    """

    def __init__(
        self,
        period: ParameterValue | Parameter = 1.0,
        lengthscale: ParameterValue | Parameter = 1.0,
        active_dims: Sequence[int] | None = None,
    ) -> None:
        parameters = {
            "period": positive("period", period),
            "lengthscale": positive("lengthscale", lengthscale),
        }
        super().__init__(parameters, active_dims)

    @property
    def period(self) -> Tensor:
        """Scalar or one per active column (d,)."""
        return self._value("period")

    @property
    def lengthscale(self) -> Tensor:
        """Scalar or one per active column (d,)."""
        return self._value("lengthscale")

    def reach(self, fall: float) -> Tensor:
        """The distance within half a period from which on the covariance is so small, or inf."""
        square = self.lengthscale * fall / 2.0
        distance = self.period / math.pi * torch.asin(torch.sqrt(square.clamp(max=1.0)))
        return torch.where(square <= 1.0, distance, math.inf)

    def _evaluate(self, x1: Tensor, x2: Tensor) -> Tensor:
        period, lengthscale = (self._value(name, x1) for name in ("period", "lengthscale"))
        a, b = self._select(x1) / period, self._select(x2) / period
        lengthscale = lengthscale.expand(a.shape[1])
        exponent = x1.new_zeros(len(a), len(b))
        for k in range(a.shape[1]):  # column by column, to hold no (n1, n2, d) tensor
            exponent = exponent - 2.0 * torch.sin(math.pi * (a[:, k, None] - b[:, k])) ** 2 / lengthscale[k]
        return torch.exp(exponent)

    def _diagonal(self, x: Tensor, white: bool) -> Tensor:
        return x.new_ones(len(x))

    def _features(self, x: Tensor) -> Tensor:
        """[cos, sin] of the angles (n, 2 d), whose |difference|^2 is 4 sin^2(difference of angles / 2)."""
        turns = self._select(x) / self._value("period", x)
        # Whole turns go first: the angle of a large number of them would have lost its digits.
        angle = 2.0 * math.pi * (turns - turns.detach().round())
        return torch.cat([torch.cos(angle), torch.sin(angle)], dim=1)

    def _lower(self, lowering: Lowering) -> Term:
        scales = self.lengthscale.rsqrt().reshape(-1)
        return lowering.leaf(
            Leaf(
                SQUARED_EXPONENTIAL,
                self._features,
                scales if len(scales) == 1 else scales.repeat(2),
                feature_parameters=True,
            )
        )
