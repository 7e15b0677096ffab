"""In which units sixteen bits hold the covariances of points whose variances differ."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from halfgp.kernels import Kernel

LEAST_EXPONENT = -50  # of a unit: the product of two, and half's digits below it, stay in the range of single


def relative_units(kernel: Kernel, points: Sequence[Tensor]) -> list[Tensor]:
    """Powers of two w (n,), float64, by set of points: deviations relative to the largest, rounded down.

    With a the amplitude, |K_ij| / (a w_i w_j) is below 4, whatever the deviations of the two points: so
    what is negligible depends on the pair, and one outlying point does not make the others vanish. All
    are 1 where the variance is the same everywhere. A point without variance has no covariances either.
    """
    amplitude = kernel.amplitude(*points)
    units = []
    for x in points:
        deviation = (kernel.diagonal(x.to(torch.float64), white=False) / amplitude).sqrt()
        exponent = torch.frexp(deviation).exponent.double() - 1.0
        units.append(torch.exp2(torch.where(deviation > 0.0, exponent, 0.0).clamp(LEAST_EXPONENT, 0.0)))
    return units
