"""GPyTorch's kernels with our covariance: the same parameters, priors and constraints, another product."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import gpytorch
from gpytorch.kernels import Kernel as GPyTorchKernel
from torch import Tensor

from halfgp import kernels as ours
from halfgp.integrations.gpytorch.covariance import KernelCovariance
from halfgp.integrations.gpytorch.kept import Kept
from halfgp.integrations.gpytorch.prediction import SolvedPredictions
from halfgp.kernels import Kernel
from halfgp.precision import Precision


def _lengths(kernel: GPyTorchKernel, value: Tensor) -> Tensor:
    """(..., d) where every column has one of its own, otherwise (...)."""
    return value[..., 0, :] if kernel.ard_num_dims is not None else value[..., 0, 0]


def _first(value: Tensor, ndim: int) -> Tensor:
    """Those of one matrix of a batch, without a graph: what a structure is made with."""
    detached = value.detach()
    return detached.reshape(-1, *detached.shape[detached.ndim - ndim :])[0]


def _stationary(make: Callable[..., Kernel]) -> Callable[[GPyTorchKernel], tuple[Kernel, list[Tensor]]]:
    def leaf(kernel: GPyTorchKernel) -> tuple[Kernel, list[Tensor]]:
        lengths = _lengths(kernel, kernel.lengthscale)
        return make(lengthscale=_first(lengths, kernel.ard_num_dims is not None)), [lengths]

    return leaf


def _matern(kernel: GPyTorchKernel) -> tuple[Kernel, list[Tensor]]:
    return _stationary(lambda lengthscale: ours.Matern(kernel.nu, lengthscale))(kernel)


def _rational_quadratic(kernel: GPyTorchKernel) -> tuple[Kernel, list[Tensor]]:
    base, lengths = _stationary(ours.RationalQuadratic)(kernel)
    alpha = kernel.alpha[..., 0]
    return base.with_parameters({"alpha": _first(alpha, 0)}), [alpha, *lengths]


def _periodic(kernel: GPyTorchKernel) -> tuple[Kernel, list[Tensor]]:
    values = [_lengths(kernel, kernel.period_length), _lengths(kernel, kernel.lengthscale)]
    period, lengthscale = (_first(value, kernel.ard_num_dims is not None) for value in values)
    return ours.Periodic(period, lengthscale), values


def _linear(kernel: GPyTorchKernel) -> tuple[Kernel, list[Tensor]]:
    variance = _lengths(kernel, kernel.variance)
    return ours.Linear(_first(variance, kernel.ard_num_dims is not None)), [variance]


def _constant(kernel: GPyTorchKernel) -> tuple[Kernel, list[Tensor]]:
    value = kernel.constant[..., 0]
    return ours.Constant(_first(value, 0)), [value]


# What each of GPyTorch's kernels is here: a structure, and its values in the order of its parameters.
LEAVES: dict[type[GPyTorchKernel], Callable[[GPyTorchKernel], tuple[Kernel, list[Tensor]]]] = {
    gpytorch.kernels.RBFKernel: _stationary(ours.RBF),
    gpytorch.kernels.MaternKernel: _matern,
    gpytorch.kernels.RQKernel: _rational_quadratic,
    gpytorch.kernels.PeriodicKernel: _periodic,
    gpytorch.kernels.LinearKernel: _linear,
    gpytorch.kernels.ConstantKernel: _constant,
}

KEPT: WeakKeyDictionary[GPyTorchKernel, Kept] = WeakKeyDictionary()  # of every kernel, while it lives


def covariance(
    kernel: GPyTorchKernel, family: type[GPyTorchKernel], x1: Tensor, x2: Tensor, precision: str | Precision
) -> KernelCovariance:
    """That of a kernel of one of the families in `LEAVES`, on points whose columns it looks at."""
    structure, values = LEAVES[family](kernel)
    kept = KEPT.setdefault(kernel, Kept())
    return KernelCovariance(x1, x2, *values, kernel=structure.detached(), precision=precision, kept=kept)


class MatrixFreeKernel(GPyTorchKernel):  # type: ignore[misc]
    """What the kernels here have in common; each is one of GPyTorch's in everything else.

    Args:
        precision: of products: "auto" for that of the points, "half", "bfloat16", "single" or "double".
        options: those of GPyTorch's kernel of the same name.
    """

    family: type[GPyTorchKernel]

    def __init__(self, *args: Any, precision: str | Precision = "auto", **options: Any) -> None:
        Precision.resolve(precision)
        super().__init__(*args, **options)
        self.precision = precision

    def forward(
        self, x1: Tensor, x2: Tensor, diag: bool = False, last_dim_is_batch: bool = False, **params: Any
    ) -> Any:
        """Our matrix; of its diagonal alone GPyTorch's own."""
        if diag or last_dim_is_batch:
            return super().forward(x1, x2, diag=diag, last_dim_is_batch=last_dim_is_batch, **params)
        return covariance(self, self.family, x1, x2, self.precision)

    def prediction_strategy(self, *args: Any) -> SolvedPredictions:
        """Ours."""
        return SolvedPredictions(*args)


class RBFKernel(MatrixFreeKernel, gpytorch.kernels.RBFKernel):  # type: ignore[misc]
    """`gpytorch.kernels.RBFKernel`, matrix-free."""

    family = gpytorch.kernels.RBFKernel


class MaternKernel(MatrixFreeKernel, gpytorch.kernels.MaternKernel):  # type: ignore[misc]
    """`gpytorch.kernels.MaternKernel` of smoothness 1/2, 3/2 or 5/2, matrix-free."""

    family = gpytorch.kernels.MaternKernel


class RQKernel(MatrixFreeKernel, gpytorch.kernels.RQKernel):  # type: ignore[misc]
    """`gpytorch.kernels.RQKernel`, matrix-free."""

    family = gpytorch.kernels.RQKernel


class PeriodicKernel(MatrixFreeKernel, gpytorch.kernels.PeriodicKernel):  # type: ignore[misc]
    """`gpytorch.kernels.PeriodicKernel`, matrix-free."""

    family = gpytorch.kernels.PeriodicKernel


class LinearKernel(MatrixFreeKernel, gpytorch.kernels.LinearKernel):  # type: ignore[misc]
    """`gpytorch.kernels.LinearKernel`, matrix-free."""

    family = gpytorch.kernels.LinearKernel
