"""How exact predictions are: numerical errors beside the deviations that they are to be small against."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from halfgp.precision import Precision

SHARE = 0.1  # of a predictive deviation: what the numerical error may be
QUANTILE = 0.99  # of rows for which it must be
NORMAL = 2.575829  # what 99 % of the sizes of normal numbers are below
ERROR_TOL = SHARE / NORMAL  # so that on the root mean square it must be below this
ROUNDING_ROWS = 256  # that tell how a product rounds
ROUNDING_SHARE = 0.01  # of a deviation: rounding beyond it is worth a product in double
VARIANCE_SHARE = 0.2  # of a variance: what its own rounding may be, a tenth of the deviation


@dataclass(frozen=True)
class Accuracy:
    """What was measured of the numerical error when the weights were found.

    Attributes:
        shares: (q,) of its predictive deviation that the error of a mean is below in 99 % of the rows, each
            left out; estimates.
        floor: (q,) the error's root mean square over those rows, on standardised targets.
        precision: "single" or "double", of products with the weights.
        rounding: of such a product, relative to that of sizes.
        variance_share: of a variance that its own rounding is below in 90 % of the rows.
        trusted: whether the solve ended as it should, without which the share is not to be believed.
    """

    shares: tuple[float, ...]
    floor: tuple[float, ...]
    precision: str
    rounding: float
    variance_share: float
    trusted: bool

    @property
    def share(self) -> float:
        """The largest of any target; NaN where one is."""
        return float(torch.tensor(self.shares, dtype=torch.float64).max())

    @property
    def solved(self) -> bool:
        """Whether errors are as small as they should be."""
        return self.trusted and self.share <= SHARE and self.variance_share <= VARIANCE_SHARE

    def rescaled(self, scales: Tensor, units: Tensor | None = None) -> Accuracy:
        """With variances of targets multiplied by (q,) numbers: the same errors beside other deviations.

        Args:
            scales: (q,).
            units: (q,) that targets are divided by.
        """
        shares = scales.new_tensor(self.shares) / scales.sqrt()
        floor = scales.new_tensor(self.floor) / (1.0 if units is None else units)
        return replace(self, shares=tuple(shares.tolist()), floor=tuple(floor.tolist()))

    def of_means(self, still: Tensor, sizes: Tensor, deviations: Tensor) -> Tensor:
        """Errors (m, q) of means.

        Args:
            still: (m, q) what the estimated error of the weights does to each mean.
            sizes: (m, q) products of sizes, |K| |w|.
            deviations: (m,) predictive ones, as the shares are of.

        An estimate of an error crosses zero where the error itself need not, so that none is taken for
        smaller than the usual one, nor than the usual share of the point's own deviation.
        """
        shares = deviations.new_tensor(self.shares) / NORMAL
        floor = torch.maximum(deviations.new_tensor(self.floor), deviations[:, None] * shares)
        return torch.hypot(still.abs(), floor) + self.rounding * sizes.abs()


IN_DOUBLE = 4.0 * Precision.resolve("double").vectors.eps  # of an entry times a weight: a few last places


def rounding_of(narrow: Tensor, wide: Tensor, sizes: Tensor, deviation: float) -> tuple[str, float]:
    """The precision that means need, and how its products round.

    Args:
        narrow: (m, q) products with the weights in single.
        wide: the same in double.
        sizes: (m, q) products of sizes.
        deviation: that errors should be small against.

    Smooth kernels with little noise have large weights of either sign, whose products cancel. How much they
    do, and how distances were rounded, is seen in what comes out.
    """
    error, least = (narrow - wide).abs(), torch.finfo(torch.float64).tiny
    if not bool(error.isfinite().all()):
        return "double", IN_DOUBLE
    relative = _root_mean_square(error / sizes.abs().clamp_min(least))
    # Where a few rows round worse for their size, all are told so: that has to be small too.
    told = relative * float(sizes.abs().median()) if sizes.numel() else 0.0
    if max(_root_mean_square(error), told) > ROUNDING_SHARE * deviation:
        return "double", IN_DOUBLE
    return "single", NORMAL * relative + IN_DOUBLE


def rounding_in_double(product: Tensor, again: Tensor, sizes: Tensor) -> float:
    """How products in double round, relative to those of sizes (m, q), from two ways to the same one.

    `IN_DOUBLE` holds where every term is rounded the same way. What two programs differ by is what each may
    be off by; where they are the same program they do not differ, and nothing was learned.
    """
    relative = (product - again).abs() / sizes.abs().clamp_min(torch.finfo(torch.float64).tiny)
    return NORMAL * _root_mean_square(relative) if bool((relative > 0).any()) else IN_DOUBLE


def _root_mean_square(values: Tensor) -> float:
    return float(values.double().square().mean().sqrt()) if values.numel() else 0.0
