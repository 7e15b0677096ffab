"""GPyTorch on our products and solvers: kernels to import instead of its own, or `enable`."""

from halfgp.integrations.gpytorch.covariance import KernelCovariance
from halfgp.integrations.gpytorch.enabling import enable
from halfgp.integrations.gpytorch.kernels import (
    LinearKernel,
    MaternKernel,
    MatrixFreeKernel,
    PeriodicKernel,
    RBFKernel,
    RQKernel,
)
from halfgp.integrations.gpytorch.linear_cg import linear_cg
from halfgp.integrations.gpytorch.mlls import ExactMarginalLogLikelihood
from halfgp.integrations.gpytorch.noisy_covariance import NoisyCovariance

__all__ = [
    "ExactMarginalLogLikelihood",
    "KernelCovariance",
    "LinearKernel",
    "MaternKernel",
    "MatrixFreeKernel",
    "NoisyCovariance",
    "PeriodicKernel",
    "RBFKernel",
    "RQKernel",
    "enable",
    "linear_cg",
]
