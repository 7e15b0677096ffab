"""Kernels without a length: linear, constant, white."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from halfgp.kernels.base import LeafKernel
from halfgp.kernels.profiles import INNER_PRODUCT
from halfgp.kernels.program import Leaf, Lowering, Term
from halfgp.parameters import Parameter, ParameterValue, positive

if TYPE_CHECKING:
    from typing_extensions import Self


class Linear(LeafKernel):
    """k(x, y) = sum_k variance_k x_k y_k."""

    def __init__(
        self, variance: ParameterValue | Parameter = 1.0, active_dims: Sequence[int] | None = None
    ) -> None:
        super().__init__({"variance": positive("variance", variance)}, active_dims)

    @property
    def variance(self) -> Tensor:
        """Scalar or one per active column (d,)."""
        return self._value("variance")

    def _evaluate(self, x1: Tensor, x2: Tensor) -> Tensor:
        return (self._select(x1) * self._value("variance", x1)) @ self._select(x2).T

    def _diagonal(self, x: Tensor, white: bool) -> Tensor:
        return (self._select(x) ** 2 * self._value("variance", x)).sum(dim=1)

    def _lower(self, lowering: Lowering) -> Term:
        scales = self.variance.sqrt().reshape(-1)
        return lowering.leaf(Leaf(INNER_PRODUCT, self._select, scales, columns=self._active_dims))


class _Blind(LeafKernel):
    """A kernel that looks at no column."""

    def on_columns(self, columns: Sequence[int]) -> Self:
        """Itself."""
        return self


class Constant(_Blind):
    """k(x, y) = value."""

    def __init__(self, value: ParameterValue | Parameter = 1.0) -> None:
        super().__init__({"value": positive("value", value, scalar=True)})

    @property
    def value(self) -> Tensor:
        """The covariance of any two points."""
        return self._value("value")

    def _evaluate(self, x1: Tensor, x2: Tensor) -> Tensor:
        return self._value("value", x1).expand(len(x1), len(x2))

    def _diagonal(self, x: Tensor, white: bool) -> Tensor:
        return self._value("value", x).expand(len(x))

    def _lower(self, lowering: Lowering) -> Term:
        return Term(self.value, None)


class White(_Blind):
    """Independent noise: the variance on the diagonal of a square operator, zero everywhere else."""

    def __init__(self, variance: ParameterValue | Parameter = 1.0) -> None:
        super().__init__({"variance": positive("variance", variance, scalar=True)})

    @property
    def variance(self) -> Tensor:
        """The variance of the noise."""
        return self._value("variance")

    @property
    def _vanishes(self) -> bool:
        return True

    def _evaluate(self, x1: Tensor, x2: Tensor) -> Tensor:
        return x1.new_zeros(len(x1), len(x2))

    def _diagonal(self, x: Tensor, white: bool) -> Tensor:
        return self._value("variance", x).expand(len(x)) if white else x.new_zeros(len(x))

    def _white(self, x: Tensor) -> Tensor:
        return self._diagonal(x, white=True)

    def _lower(self, lowering: Lowering) -> Term:
        raise AssertionError("a vanishing kernel is dropped before it lowers itself")
