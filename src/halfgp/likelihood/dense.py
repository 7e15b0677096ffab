"""The negative log marginal likelihood and its exact gradient, by a Cholesky factor in double."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from halfgp.errors import InputError
from halfgp.hyperparameters import Hyperparameters
from halfgp.kernels import Kernel, Leaf
from halfgp.kernels.profiles import squared_distances
from halfgp.likelihood.base import Evaluated, add_prior, gradient_by_name
from halfgp.precision import DOUBLE, HALF, SINGLE
from halfgp.priors import Priors

CHUNK = 2**19  # entries of K at a time: a few such arrays stay in the cache


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
    gradient: Mapping[str, Tensor]
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
    factor = _factor(lower_kernel(hyperparameters.kernel, x), hyperparameters.diagonal_noise(fixed_noise))
    r = hyperparameters.centred(y)
    weights = torch.cholesky_solve(r, factor)
    log_det = 2.0 * factor.diagonal().log().sum()
    by_k = torch.cholesky_inverse(factor).mul_(q).addmm_(weights, weights.T, alpha=-1.0).mul_(0.5)
    gradient = _kernel_gradient(hyperparameters.kernel.detached(requires_grad=True), x, by_k)
    if hyperparameters.noise is not None:
        gradient["noise"] = by_k.trace()
    if hyperparameters.mean is not None:
        gradient["mean"] = -weights.sum(dim=0)
    loss = 0.5 * ((r * weights).sum() + q * log_det + n * q * math.log(2 * math.pi))
    found = add_prior(Evaluated(float(loss), gradient), hyperparameters, priors, prior_weight, n * q)
    return DenseLikelihood(found.loss, found.gradient, factor, weights)


def _kernel_gradient(kernel: Kernel, x: Tensor, by_k: Tensor) -> dict[str, Tensor]:
    """The gradient of <by_k, K> in every value of the kernel, under the names of `Hyperparameters`.

    Args:
        kernel: whose values require gradients.
        x: points (n, d).
        by_k: (n, n), symmetric.
    """
    parameters = {f"kernel.{name}": p for name, p in kernel.named_parameters()}
    with torch.enable_grad():
        total = gradient_by_name(kernel.diagonal(x), parameters, by_k.diagonal())
    for rows in _chunks(len(x)):
        # What is below the diagonal counts twice; the diagonal is counted already, White included.
        seed = by_k[rows, : rows.stop].tril(rows.start - 1).mul_(2.0)
        with torch.enable_grad():
            block = _block(kernel, x, rows)
        for name, g in gradient_by_name(block, parameters, seed).items():
            total[name] = total[name] + g
    return total


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


def lower_kernel(kernel: Kernel, x: Tensor) -> Tensor:
    """K (n, n) up to its diagonal; what is above that is not to be read."""
    k = x.new_zeros(len(x), len(x))
    with torch.no_grad():
        for rows in _chunks(len(x)):
            k[rows, : rows.stop] = _block(kernel, x, rows)
        k.diagonal().copy_(kernel.diagonal(x))  # White, which no program has, and exact variances
    return k


def _chunks(n: int) -> Iterator[slice]:
    """Rows whose part of an (n, n) matrix has about `CHUNK` entries."""
    size = max(1, CHUNK // max(n, 1))
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def _block(kernel: Kernel, x: Tensor, rows: slice) -> Tensor:
    """Rows of K up to the diagonal's last column, without White; differentiable in the kernel's values."""
    program = kernel.program()
    values = [_leaf_block(leaf, x[: rows.stop], rows) for leaf in program.leaves]
    return program.evaluate(values, (rows.stop - rows.start, rows.stop))


def _leaf_block(leaf: Leaf, x: Tensor, rows: slice) -> Tensor:
    z = leaf.scaled(x, leaf.centre(x))
    if not leaf.is_stationary:
        return z[rows] @ z.T
    # The root in Matérn-1/2 magnifies what the expansion leaves of a small distance; so do outliers.
    lost = DOUBLE.eps * float(z.detach().square().sum(dim=1).max())
    expand = not leaf.stationary.has_cusp and lost <= HALF.eps * SINGLE.eps
    squared: Tensor = _SquaredDistances.apply(z[rows], z, expand)  # type: ignore[no-untyped-call]
    return leaf.covariance(squared)


class _SquaredDistances(torch.autograd.Function):
    """|z_i - w_j|² (m, n) of features (m, f) and (n, f).

    By |z|² + |w|² - 2zw, exact to eps times the squared spread and many times faster than differences,
    forward and backward; or by differences.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, w: Tensor, expand: bool) -> Tensor:
        ctx.save_for_backward(z, w)
        ctx.expand = expand
        if not expand:
            return squared_distances(z, w)
        inner = torch.addmm(w.square().sum(dim=1), z, w.T, alpha=-2.0)
        return inner.add_(z.square().sum(dim=1)[:, None]).clamp_min_(0.0)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        z, w = ctx.saved_tensors
        if not ctx.expand:
            by_z, by_w = torch.empty_like(z), torch.empty_like(w)
            for k in range(z.shape[1]):  # one feature at a time: a block has the size of a cache
                part = gradient * (z[:, k, None] - w[:, k])
                by_z[:, k], by_w[:, k] = part.sum(dim=1), -part.sum(dim=0)
            return 2.0 * by_z, 2.0 * by_w, None
        by_z = gradient.sum(dim=1)[:, None] * z - gradient @ w
        by_w = gradient.sum(dim=0)[:, None] * w - gradient.T @ z
        return 2.0 * by_z, 2.0 * by_w, None
