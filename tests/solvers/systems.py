"""Matrices for the tests of solvers: random ones with a prescribed spectrum, and kernel operators."""

from __future__ import annotations

import torch
from torch import Tensor

from halfgp import RBF, KernelOperator, Matern


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def with_spectrum(eigenvalues: Tensor, seed: int = 0) -> Tensor:
    """A symmetric matrix with these eigenvalues and random eigenvectors."""
    n = len(eigenvalues)
    q = torch.linalg.qr(torch.randn(n, n, dtype=torch.float64, generator=generator(seed)))[0]
    a = (q * eigenvalues.double()) @ q.T
    return (a + a.T) / 2


def columns(n: int, t: int, seed: int = 1) -> Tensor:
    return torch.randn(n, t, dtype=torch.float64, generator=generator(seed))


def kernel_operator(n: int = 200, noise: float = 0.05, d: int = 3, **options: object) -> KernelOperator:
    x = torch.randn(n, d, dtype=torch.float64, generator=generator(7))
    kernel = 1.5 * Matern(nu=1.5, lengthscale=1.0)
    return KernelOperator(kernel, x, noise=noise, backend="reference", **options)  # type: ignore[arg-type]


def smooth_operator(n: int = 200, noise: float = 1e-3, **options: object) -> KernelOperator:
    """An RBF with a long lengthscale: a few large eigenvalues, the rest is noise."""
    x = torch.randn(n, 2, dtype=torch.float64, generator=generator(8))
    return KernelOperator(RBF(lengthscale=1.5), x, noise=noise, backend="reference", **options)  # type: ignore[arg-type]


def true_relative(a: Tensor, x: Tensor, b: Tensor) -> Tensor:
    return (b - a @ x).norm(dim=0) / b.norm(dim=0)
