"""The overall variance of each target, learned from all rows: leave-one-out residuals of a few tell it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from halfgp.hyperparameters import Hyperparameters
from halfgp.kernels import Scaled

SMALLEST = 1e-6  # beyond, targets are explained to the last digit, and the scale is that of rounding


def scales_of(hyperparameters: Hyperparameters, squares: Tensor) -> Tensor:
    """What every target's variances should be multiplied by (q,), as leave-one-out residuals ask for.

    Hyperparameters come from a subset, where the data say less and a kernel that is too rough or too smooth
    for them shows less; or from several targets at once, which share a kernel and a noise that are too large
    for some and too small for others. To multiply K + noise by a number changes no mean, and every variance
    by it. The number of the highest leave-one-out density is the mean of squared residuals over their
    variances. Where residuals are not normal, intervals of 95 % then hold more or fewer rows than that; a
    scale that made them hold 95 % would spoil the density, and every other interval.

    That mean is one of a sample, and of residuals with heavy tails a few rows decide it, while training has
    heard more rows than these. So its logarithm l, of standard error s, counts for l (1 - s²/l²), and for
    nothing where s is more: what chance would do to a scale that is right is left alone.

    Args:
        hyperparameters: where, not yet scaled.
        squares: (m, q) of leave-one-out residuals, over their variances.

    Returns:
        1 where the kernel has no outputscale, where rows have fixed variances, and where every residual of a
        target is zero.
    """
    if hyperparameters.noise is None or not isinstance(hyperparameters.kernel, Scaled):
        return squares.new_ones(squares.shape[1])
    by_density = squares.mean(dim=0)
    asked = torch.where(by_density > 0, by_density.clamp_min(SMALLEST), 1.0).log()
    spread = squares.std(dim=0, correction=0) / by_density.clamp_min(torch.finfo(torch.float64).tiny)
    error = spread / math.sqrt(len(squares))
    believed = 1.0 - (error / asked.abs().clamp_min(torch.finfo(torch.float64).tiny)).square()
    return (asked * believed.clamp_min(0.0)).exp()
