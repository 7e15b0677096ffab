"""The negative log marginal likelihood and its exact gradient, by a Cholesky factor in double."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from halfgp.errors import InputError
from halfgp.hyperparameters import Hyperparameters
from halfgp.kernels import Kernel, Leaf
from halfgp.priors import Priors, log_prior


@dataclass(frozen=True)
class DenseLikelihood:
    """A value, its gradient, and what was computed on the way.

    Attributes:
        loss: minus the log posterior density of the hyperparameters, per row and target.
        gradient: of the loss in every value, by name.
        factor: (n, n) lower Cholesky factor of K + noise.
        weights: (n, q) (K + noise)^-1 (y - mean).
    """

    loss: float
    gradient: dict[str, Tensor]
    factor: Tensor
    weights: Tensor


def dense_likelihood(
    hyperparameters: Hyperparameters,
    x: Tensor,
    y: Tensor,
    *,
    fixed_noise: Tensor | None = None,
    priors: Priors,
    prior_weight: float = 1.0,
) -> DenseLikelihood:
    """½ r'α + (q/2) log det + (nq/2) log 2π - prior, per row and target, with r = y - mean.

    Args:
        hyperparameters: where.
        x: points (n, d), float64.
        y: targets (n, q), float64.
        fixed_noise: (n,) variances of the rows where they are given.
        priors: of the hyperparameters.
        prior_weight: of the prior; n / N on a subset, so that it weighs what it weighs against all N rows.

    O(n³) time: a factor, an inverse, and O(n² d) for the gradient; some n×n matrices of memory.

    Raises:
        InputError: K + noise is not positive definite in double.
    """
    n, q = y.shape
    point = hyperparameters.detached(requires_grad=True)
    with torch.enable_grad():
        k = dense_kernel(point.kernel, x)
        prior = prior_weight * log_prior(point.named_parameters(), priors)
    factor = _factor(k.detach().clone(), hyperparameters.diagonal_noise(fixed_noise))
    r = hyperparameters.centred(y)
    weights = torch.cholesky_solve(r, factor)
    log_det = 2.0 * factor.diagonal().log().sum()
    loss = 0.5 * ((r * weights).sum() + q * log_det + n * q * math.log(2 * math.pi)) - prior.detach()
    by_k = torch.cholesky_inverse(factor).mul_(q).addmm_(weights, weights.T, alpha=-1.0).mul_(0.5)
    gradient = _gradient(point, k, prior, by_k, weights)
    scale = 1.0 / (n * q)
    scaled = {name: g * scale for name, g in gradient.items()}
    return DenseLikelihood(float(loss) * scale, scaled, factor, weights)


def _gradient(
    point: Hyperparameters, k: Tensor, prior: Tensor, by_k: Tensor, weights: Tensor
) -> dict[str, Tensor]:
    """The gradient in every value of the point, by name.

    Args:
        point: whose values k and the prior were computed from.
        k: the kernel's matrix (n, n), with its graph.
        prior: (), with its graph if it has one.
        by_k: (n, n) the gradient in K.
        weights: (n, q).
    """
    leaves = {name: p.value for name, p in point.named_parameters().items()}
    outputs, seeds = [k], [by_k]
    if prior.requires_grad:
        outputs, seeds = [k, prior], [by_k, -torch.ones_like(prior)]
    found = torch.autograd.grad(outputs, list(leaves.values()), seeds, allow_unused=True)
    gradient = {
        name: torch.zeros_like(leaves[name]) if g is None else g
        for name, g in zip(leaves, found, strict=True)
    }
    if "noise" in gradient:
        gradient["noise"] = gradient["noise"] + by_k.trace()
    if "mean" in gradient:
        gradient["mean"] = gradient["mean"] - weights.sum(dim=0)
    return gradient


def _factor(k: Tensor, noise: Tensor) -> Tensor:
    """The lower Cholesky factor of k + noise; k is overwritten."""
    k.diagonal().add_(noise)
    factor: Tensor
    factor, failed = torch.linalg.cholesky_ex(k)
    if int(failed):
        raise InputError(
            f"K + noise is not positive definite at row {int(failed) - 1}: the noise,"
            f" {float(noise.min()):.1e}, is too small for double. Raise `noise_floor`."
        )
    return factor


def dense_kernel(kernel: Kernel, x: Tensor) -> Tensor:
    """K (n, n) with its diagonal, differentiable in the kernel's values, by matrix products.

    Distances by |x|² + |y|² - 2xy: exact to eps times the squared spread, which in double is far below any
    noise, and many times faster than differences, forward and backward.
    """
    program = kernel.program()
    values = [_leaf_value(leaf, x) for leaf in program.leaves]
    k = program.evaluate(values, (len(x), len(x)))
    diagonal = kernel.diagonal(x)
    return k + torch.diag(diagonal - k.diagonal())  # White, which no program has, and exact variances


def _leaf_value(leaf: Leaf, x: Tensor) -> Tensor:
    features = leaf.features(x)
    if leaf.profile == "linear":
        z = features * leaf.scales
        return z @ z.T
    z = (features - features.detach().mean(dim=0)) * leaf.scales
    squared: Tensor = _SquaredDistances.apply(z)  # type: ignore[no-untyped-call]
    if leaf.profile == "rational_quadratic":
        assert leaf.shape is not None
        return torch.exp(-leaf.shape * torch.log1p(squared / (2.0 * leaf.shape)))
    profiled: Tensor = _Profile.apply(squared, leaf.profile)  # type: ignore[no-untyped-call]
    return profiled


class _SquaredDistances(torch.autograd.Function):
    """|z_i - z_j|² (n, n) of features (n, f)."""

    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        ctx.save_for_backward(z)
        norms = z.square().sum(dim=1)
        squared = torch.addmm(norms, z, z.T, alpha=-2.0).add_(norms[:, None]).clamp_min_(0.0)
        squared.fill_diagonal_(0.0)
        return squared

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        z: Tensor
        (z,) = ctx.saved_tensors
        # The gradient is symmetric, for K is: both sides at once.
        return 4.0 * (gradient.sum(dim=1, keepdim=True) * z - gradient @ z)


class _Profile(torch.autograd.Function):
    """A stationary profile of the squared distance, with its derivative taken along in place.

    Written out because autograd would keep six n×n matrices, and because √ has no derivative at zero where
    the profile has one.
    """

    @staticmethod
    def forward(ctx: Any, squared: Tensor, profile: str) -> Tensor:
        value, derivative = PROFILES[profile](squared)
        ctx.save_for_backward(derivative)
        return value

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (derivative,) = ctx.saved_tensors
        return gradient * derivative, None


def _rbf(s: Tensor) -> tuple[Tensor, Tensor]:
    value = torch.exp(-0.5 * s)
    return value, -0.5 * value


def _matern12(s: Tensor) -> tuple[Tensor, Tensor]:
    r = s.sqrt()
    value = torch.exp(-r)
    # -exp(-r) / (2 r), infinite at zero, where two points are one and nothing moves.
    return value, torch.where(r > 0, -0.5 * value / r, 0.0)


def _matern32(s: Tensor) -> tuple[Tensor, Tensor]:
    a = (3.0 * s).sqrt_()
    decay = torch.exp(-a)
    return a.add_(1.0).mul_(decay), decay.mul(-1.5)


def _matern52(s: Tensor) -> tuple[Tensor, Tensor]:
    a = (5.0 * s).sqrt_()
    decay = torch.exp(-a)
    value = torch.addcmul(a + 1.0, a, a, value=1.0 / 3.0).mul_(decay)
    return value, a.add_(1.0).mul_(decay).mul_(-5.0 / 6.0)


# Values and derivatives in the squared distance.
PROFILES: dict[str, Callable[[Tensor], tuple[Tensor, Tensor]]] = {
    "rbf": _rbf,
    "matern12": _matern12,
    "matern32": _matern32,
    "matern52": _matern52,
}
