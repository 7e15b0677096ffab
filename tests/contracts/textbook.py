"""Gaussian processes by their definition: dense, in double, with the kernel as it is written down."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from halfgp.hyperparameters import Hyperparameters
from halfgp.kernels import RBF, Constant, Kernel, Linear, Matern, Periodic, RationalQuadratic, White
from halfgp.parameters import Parameter

FLOOR = 1e-4

# On three columns; every profile, and every way to put kernels together.
KERNELS: dict[str, Kernel] = {
    "rbf": RBF([0.7, 1.1, 1.6]),
    "matern12": 1.3 * Matern(0.5, lengthscale=[0.7, 1.1, 1.6]),
    "matern32": Matern(1.5, lengthscale=0.9),
    "matern52": Matern(2.5, lengthscale=[0.7, 1.1, 1.6]),
    "rational_quadratic": RationalQuadratic(alpha=0.8, lengthscale=1.2),
    "periodic": Periodic(period=1.7, lengthscale=0.9, active_dims=[1]),
    "linear": 0.5 * Linear(),
    "constant": Constant(0.6),
    "white": RBF(1.3) + White(0.2),
    "sum": 2.0 * RBF(0.8, active_dims=[0]) + 0.5 * Matern(1.5) + Linear() + Constant(0.3),
    "product": 1.5 * RBF(1.2) * Periodic(period=2.0, active_dims=[2]) * Matern(2.5, lengthscale=2.0),
    "nested": (RBF(0.9) + White(0.1)) * (1.0 + Linear(active_dims=[0])),
}


def points(n: int, d: int = 3, seed: int = 0) -> Tensor:
    """Uniform on [-2, 2]^d, float64."""
    return 4 * torch.rand(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) - 2


def targets(x: Tensor, q: int = 1, noise: float = 0.1, seed: int = 0) -> Tensor:
    """Smooth functions of the points with noise of that variance (n, q)."""
    generator = torch.Generator().manual_seed(seed + 1)
    waves = torch.stack([torch.sin((1 + 0.5 * k) * x.sum(dim=1) + k) + 0.3 * x[:, 0] for k in range(q)], 1)
    return waves + math.sqrt(noise) * torch.randn(waves.shape, generator=generator, dtype=torch.float64)


def at(
    kernel: Kernel, noise: float | None = 0.1, mean: list[float] | None = None, floor: float = FLOOR
) -> Hyperparameters:
    """Hyperparameters at these values."""
    return Hyperparameters(
        kernel,
        None if noise is None else Parameter(torch.tensor(noise, dtype=torch.float64), floor, name="noise"),
        None if mean is None else Parameter(torch.tensor(mean), -math.inf, name="mean"),
    )


def covariance(kernel: Kernel, x: Tensor, noise: Tensor | None = None) -> Tensor:
    """K with White and noise on its diagonal (n, n), differentiable."""
    white = kernel.diagonal(x) - kernel.diagonal(x, white=False)
    return kernel(x, x) + torch.diag(white + (0.0 if noise is None else noise) * torch.ones_like(white))


@dataclass(frozen=True)
class Textbook:
    """Conditioned on rows by the formulas of a textbook.

    Attributes:
        point: hyperparameters.
        x: (n, d).
        y: (n, q).
        fixed_noise: (n,) or None.
    """

    hyperparameters: Hyperparameters
    x: Tensor
    y: Tensor
    fixed_noise: Tensor | None = None

    @property
    def matrix(self) -> Tensor:
        """K + noise (n, n)."""
        with torch.no_grad():
            return covariance(
                self.hyperparameters.kernel, self.x, self.hyperparameters.diagonal_noise(self.fixed_noise)
            )

    @property
    def residual(self) -> Tensor:
        """y - mean (n, q)."""
        return self.hyperparameters.centred(self.y)

    def mean(self, new: Tensor) -> Tensor:
        """(m, q)."""
        explained = self.hyperparameters.kernel(new, self.x) @ torch.linalg.solve(self.matrix, self.residual)
        return explained.detach() + (
            0.0 if self.hyperparameters.mean is None else self.hyperparameters.mean.value
        )

    def covariance(self, new: Tensor) -> Tensor:
        """Of the latent function (m, m)."""
        kernel = self.hyperparameters.kernel
        cross = kernel(self.x, new).detach()
        return kernel(new, new).detach() - cross.T @ torch.linalg.solve(self.matrix, cross)

    def log_likelihood(self) -> float:
        """Of all targets."""
        zero = torch.zeros(len(self.x), dtype=torch.float64)
        normal = torch.distributions.MultivariateNormal(zero, self.matrix)
        return float(normal.log_prob(self.residual.T).sum())
