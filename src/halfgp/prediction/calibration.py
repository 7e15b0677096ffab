"""The overall variance of each target, learned from all rows: leave-one-out residuals of a few tell it."""

from __future__ import annotations

import torch
from torch import Tensor

from halfgp.hyperparameters import Hyperparameters
from halfgp.kernels import Scaled

SMALLEST = 1e-6  # beyond, targets are explained to the last digit, and the scale is that of rounding
NORMAL = 1.959964**2  # what 95 % of squared normal numbers are below
TAILS = 1 / 3  # of what the density asks for: below, residuals far out would cost more than 0.45 nats a row


def scales_of(point: Hyperparameters, squares: Tensor) -> Tensor:
    """What every target's variances should be multiplied by (q,), as leave-one-out residuals ask for.

    Hyperparameters come from a subset, where the data say less and a kernel that is too rough or too smooth
    for them shows less; or from several targets at once, which share a kernel and a noise that are too large
    for some and too small for others. To multiply K + noise by a number changes no mean, and every variance
    by it. Two numbers are asked for: the one at which intervals of 95 % hold 95 % of the rows; and the one
    with the highest leave-one-out density, the mean of squared residuals over their variances. They agree
    where residuals are normal. Where a few are far out, the second is the larger, and intervals that are to
    hold those hold too much else: the first is taken then, but no less than a third of the second.

    Args:
        point: where, not yet scaled.
        squares: (m, q) of leave-one-out residuals, over their variances.

    Returns:
        1 where the kernel has no outputscale, where rows have fixed variances, and where every residual of a
        target is zero.
    """
    if point.noise is None or not isinstance(point.kernel, Scaled):
        return torch.ones(squares.shape[1], dtype=torch.float64)
    by_density, by_coverage = squares.mean(dim=0), squares.quantile(0.95, dim=0) / NORMAL
    wanted = torch.maximum(by_coverage, TAILS * by_density).clamp_min(SMALLEST)
    return torch.where(by_density > 0, wanted, 1.0)
