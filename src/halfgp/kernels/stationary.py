"""Kernels of the scaled distance r = |(x - y) / lengthscale|: RBF, Matérn, rational quadratic."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from halfgp.errors import InputError
from halfgp.kernels.base import LeafKernel
from halfgp.kernels.profiles import (
    MATERN12,
    MATERN32,
    MATERN52,
    RATIONAL_QUADRATIC,
    SQUARED_EXPONENTIAL,
    HalfIntegerMatern,
    StationaryProfile,
)
from halfgp.kernels.program import Leaf, Lowering, Term
from halfgp.parameters import Parameter, ParameterValue, positive

MATERN_PROFILES = {0.5: MATERN12, 1.5: MATERN32, 2.5: MATERN52}  # by nu
MOST_SMOOTH = 20.5  # beyond it differs from `RBF` by less than its polynomial rounds


class Stationary(LeafKernel):
    """A profile of the scaled distance; a new kernel of this kind names its `profile`, and is complete."""

    def __init__(
        self,
        lengthscale: ParameterValue | Parameter = 1.0,
        active_dims: Sequence[int] | None = None,
        **parameters: Parameter,
    ) -> None:
        super().__init__({**parameters, "lengthscale": positive("lengthscale", lengthscale)}, active_dims)

    @property
    @abstractmethod
    def profile(self) -> StationaryProfile:
        """The covariance of the squared scaled distance, in most kernels an attribute of the class."""

    @property
    def lengthscale(self) -> Tensor:
        """Scalar or one per active column (d,)."""
        return self._value("lengthscale")

    @property
    def shape(self) -> Tensor | None:
        """The shape parameter of the profile, if it has one."""
        return None

    def reach(self, fall: float) -> Tensor:
        """As far as the profile says, per lengthscale; infinite where it does not."""
        return self.lengthscale * self.profile.reach(fall, None if self.shape is None else self.shape.item())

    def _evaluate(self, x1: Tensor, x2: Tensor) -> Tensor:
        lengthscale = self._value("lengthscale", x1)
        z1, z2 = (self._select(x) / lengthscale for x in (x1, x2))
        return self.profile.between(z1, z2, self.shape)

    def _diagonal(self, x: Tensor, white: bool) -> Tensor:
        return x.new_ones(len(x))

    def _lower(self, lowering: Lowering) -> Term:
        scales = (1.0 / self.lengthscale).reshape(-1)
        return lowering.leaf(
            Leaf(self.profile, self._select, scales, shape=self.shape, columns=self._active_dims)
        )


class RBF(Stationary):
    """k(x, y) = exp(-r^2/2)."""

    profile = SQUARED_EXPONENTIAL

    def __init__(
        self, lengthscale: ParameterValue | Parameter = 1.0, active_dims: Sequence[int] | None = None
    ) -> None:
        super().__init__(lengthscale, active_dims)


class Matern(Stationary):
    """Matérn covariance of smoothness nu = p + 1/2: a polynomial in a = sqrt(2 nu) r, times exp(-a).

    Of 1/2, 3/2 and 5/2 the engine has it; of others the reference serves.
    """

    def __init__(
        self,
        nu: float = 1.5,
        lengthscale: ParameterValue | Parameter = 1.0,
        active_dims: Sequence[int] | None = None,
    ) -> None:
        known = isinstance(nu, int | float) and 0.5 <= nu <= MOST_SMOOTH and float(nu - 0.5).is_integer()
        if not known:
            raise InputError(
                f"`nu` must be 0.5, 1.5, 2.5 or another half integer up to {MOST_SMOOTH}; got {nu!r}."
                " `RBF` is the limit of large `nu`."
            )
        super().__init__(lengthscale, active_dims)
        self._nu = float(nu)

    @property
    def profile(self) -> StationaryProfile:
        """That of the smoothness."""
        return MATERN_PROFILES.get(self._nu) or HalfIntegerMatern(int(2 * self._nu))

    @property
    def nu(self) -> float:
        """Smoothness."""
        return self._nu

    def _options(self) -> dict[str, Any]:
        return {"nu": self._nu}


class RationalQuadratic(Stationary):
    """k(x, y) = (1 + r^2 / (2 alpha))^-alpha."""

    profile = RATIONAL_QUADRATIC

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
