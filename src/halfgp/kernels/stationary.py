"""Kernels of the scaled distance r = |(x - y) / lengthscale|: RBF, Matérn, rational quadratic."""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from halfgp.errors import InputError
from halfgp.kernels.base import LeafKernel
from halfgp.kernels.program import Leaf, Lowering, Term
from halfgp.parameters import Parameter, ParameterValue, positive
from halfgp.precision import Format


def distances(z1: Tensor, z2: Tensor) -> Tensor:
    """Distances (n1, n2) by explicit differences, which unlike |x|^2 + |y|^2 - 2xy do not cancel."""
    return torch.cdist(z1, z2, compute_mode="donot_use_mm_for_euclid_dist")


def rbf(r: Tensor) -> Tensor:
    """exp(-r^2/2)."""
    return torch.exp(-0.5 * r * r)


def matern12(r: Tensor) -> Tensor:
    """exp(-r)."""
    return torch.exp(-r)


def matern32(r: Tensor) -> Tensor:
    """(1 + a) exp(-a), a = sqrt(3) r."""
    a = math.sqrt(3.0) * r
    return (1.0 + a) * torch.exp(-a)


def matern52(r: Tensor) -> Tensor:
    """(1 + a + a^2/3) exp(-a), a = sqrt(5) r."""
    a = math.sqrt(5.0) * r
    return (1.0 + a + a * a / 3.0) * torch.exp(-a)


def rational_quadratic(r: Tensor, alpha: Tensor) -> Tensor:
    """(1 + r^2 / (2 alpha))^-alpha, by log1p because large alpha brings the base close to 1."""
    return torch.exp(-alpha * torch.log1p(r * r / (2.0 * alpha)))


class Stationary(LeafKernel):
    """A profile of the scaled distance."""

    profile: str

    def __init__(
        self,
        lengthscale: ParameterValue | Parameter,
        active_dims: Sequence[int] | None,
        **parameters: Parameter,
    ) -> None:
        super().__init__({**parameters, "lengthscale": positive("lengthscale", lengthscale)}, active_dims)

    @property
    def lengthscale(self) -> Tensor:
        """Scalar or one per active column (d,)."""
        return self._value("lengthscale")

    @property
    def shape(self) -> Tensor | None:
        """The shape parameter of the profile, if it has one."""
        return None

    def support(self, format: Format) -> Tensor:
        """The largest distance at which the covariance is not zero in the format, per lengthscale."""
        return self.lengthscale * self._scaled_support(format.vanishing_exponent)

    @abstractmethod
    def _profile(self, r: Tensor) -> Tensor:
        """The covariance at the scaled distance r."""

    @abstractmethod
    def _scaled_support(self, exponent: int) -> float | Tensor:
        """The scaled distance at which the covariance is 2**exponent."""

    def _evaluate(self, x1: Tensor, x2: Tensor) -> Tensor:
        lengthscale = self._value("lengthscale", x1)
        return self._profile(distances(self._select(x1) / lengthscale, self._select(x2) / lengthscale))

    def _diagonal(self, x: Tensor, white: bool) -> Tensor:
        return x.new_ones(len(x))

    def _lower(self, lowering: Lowering) -> Term:
        scales = (1.0 / self.lengthscale).reshape(-1)
        return lowering.leaf(
            Leaf(self.profile, self._select, scales, shape=self.shape, columns=self._active_dims)
        )


class RBF(Stationary):
    """k(x, y) = exp(-r^2/2)."""

    profile = "rbf"

    def __init__(
        self, lengthscale: ParameterValue | Parameter = 1.0, active_dims: Sequence[int] | None = None
    ) -> None:
        super().__init__(lengthscale, active_dims)

    def _profile(self, r: Tensor) -> Tensor:
        return rbf(r)

    def _scaled_support(self, exponent: int) -> float:
        return math.sqrt(-2.0 * exponent * math.log(2.0))


class Matern(Stationary):
    """Matérn covariance of smoothness 1/2, 3/2 or 5/2: a polynomial in a = sqrt(2 nu) r, times exp(-a)."""

    def __init__(
        self,
        nu: float = 1.5,
        lengthscale: ParameterValue | Parameter = 1.0,
        active_dims: Sequence[int] | None = None,
    ) -> None:
        profiles = {0.5: "matern12", 1.5: "matern32", 2.5: "matern52"}
        if nu not in profiles:
            raise InputError(f"`nu` must be 0.5, 1.5 or 2.5; got {nu!r}. `RBF` is the limit of large `nu`.")
        super().__init__(lengthscale, active_dims)
        self._nu = float(nu)
        self.profile = profiles[self._nu]

    @property
    def nu(self) -> float:
        """Smoothness."""
        return self._nu

    def _options(self) -> dict[str, Any]:
        return {"nu": self._nu}

    def _profile(self, r: Tensor) -> Tensor:
        return {0.5: matern12, 1.5: matern32, 2.5: matern52}[self._nu](r)

    def _scaled_support(self, exponent: int) -> float:
        return matern_support(self._nu, exponent)


class RationalQuadratic(Stationary):
    """k(x, y) = (1 + r^2 / (2 alpha))^-alpha."""

    profile = "rational_quadratic"

    def __init__(
        self,
        alpha: ParameterValue | Parameter = 1.0,
        lengthscale: ParameterValue | Parameter = 1.0,
        active_dims: Sequence[int] | None = None,
    ) -> None:
        super().__init__(lengthscale, active_dims, alpha=positive("alpha", alpha, scalar=True))

    @property
    def alpha(self) -> Tensor:
        """How fast the tail falls."""
        return self._value("alpha")

    @property
    def shape(self) -> Tensor:
        """Alpha."""
        return self.alpha

    def _profile(self, r: Tensor) -> Tensor:
        return rational_quadratic(r, self._value("alpha", r))

    def _scaled_support(self, exponent: int) -> Tensor:
        # sqrt(2 alpha (2^(-exponent/alpha) - 1)), with the power out of the root, where it overflows later.
        root_of_power = torch.exp2(-exponent / (2.0 * self.alpha))
        return (
            torch.sqrt(2.0 * self.alpha * -torch.expm1(exponent * math.log(2.0) / self.alpha)) * root_of_power
        )


@functools.cache
def matern_support(nu: float, exponent: int) -> float:
    """The root of profile(r) = 2**exponent.

    In logarithms the root satisfies a = log(polynomial(a)) - exponent log 2 with a = sqrt(2 nu) r. The right
    side has a slope below 1/6 at the roots of all formats (a > 17), so that the iteration converges, even in
    double, where 2**exponent itself is zero.
    """
    target = -exponent * math.log(2.0)
    a, previous = target, 0.0
    while abs(a - previous) > 1e-15 * a:
        polynomial = {0.5: 0.0, 1.5: a, 2.5: a + a * a / 3.0}[nu]
        a, previous = target + math.log1p(polynomial), a
    return a / math.sqrt(2.0 * nu)
