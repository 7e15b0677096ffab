"""Leave-one-out residuals in their deviations: the quantiles of them that intervals are made of."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from halfgp.precision import DOUBLE

# Rows that are left out, or all where there are fewer. The share that an interval of 95 % holds is then
# known to √(0.95 · 0.05 / 4096), a third of a point.
SAMPLE = 4096


@dataclass(frozen=True, eq=False)
class LeftOut:
    """Targets of some rows, each given all the others.

    Attributes:
        rows: (m,).
        variances: (m,) noise included; exact from a factor, otherwise given landmarks and the nearest rows
            alone, and never too small.
        noise: (m,) what of them no other row explains.
        near: (m, q) residuals given landmarks and the nearest rows alone; None with a factor.
        share: of these variances that exact ones are, on average.
    """

    rows: Tensor
    variances: Tensor
    noise: Tensor
    near: Tensor | None = None
    share: float = 1.0

    def joined(self, other: LeftOut) -> LeftOut:
        """These rows, then those of the other."""
        near = None if self.near is None or other.near is None else torch.cat([self.near, other.near])
        return LeftOut(
            torch.cat([self.rows, other.rows]),
            torch.cat([self.variances, other.variances]),
            torch.cat([self.noise, other.noise]),
            near,
            self.share,
        )

    def of(self, share: float) -> LeftOut:
        """With exact variances that are such a share of these."""
        return replace(self, share=share)

    def residuals(self, weights: Tensor) -> Tensor:
        """What the targets (m, q) were off by, with weights (m, q) of these rows: w v, v the exact variance.

        Where that is not known, it is taken for the share of the one that is, and no less than the noise.
        """
        exact = torch.maximum(self.share * self.variances, self.noise)
        return weights * (self.variances if self.near is None else exact)[:, None]


@dataclass(frozen=True, eq=False)
class Residuals:
    """What targets of m rows were off by, each predicted from all other rows, in predictive deviations.

    A new target is off by as many deviations as one more of these would be, whatever their distribution is:
    it is as likely to fall between any two neighbours of them. So the j-th from either end leaves j in m + 1
    outside, as in conformal prediction.

    Attributes:
        ordered: (m, q), ascending in every column; each target has its own.
    """

    ordered: Tensor

    @classmethod
    def of(cls, weights: Tensor, rows: LeftOut, errors: Tensor) -> Residuals:
        """Of some rows, with their weights (m, q) and estimated numerical errors (m, q) of their means.

        Deviations are those that predictions have, without what numerical errors may add to them: a solve
        that is not exact enough then widens intervals as it widens deviations. But where tails are heavy most
        residuals are far smaller than a deviation, and an error that is small beside that may not be so
        beside them. New means have errors of either sign, and so every other row takes its own to one side:
        quantiles are no narrower than errors are wide.
        """
        sides = torch.ones_like(errors)
        sides[1::2] = -1.0
        residuals = (rows.residuals(weights) + sides * errors.abs()) / rows.variances.sqrt()[:, None]
        return cls(residuals.sort(dim=0).values)

    def interval(self, level: float) -> tuple[Tensor, Tensor]:
        """Its ends (q,), in deviations from the mean; a new target is outside either with (1 - level) / 2.

        Where fewer than one of m + 1 should be outside an end, no residual tells where it is. From the
        outermost one on it moves as that of a normal distribution does, and is at least as far out as that.

        Args:
            level: between 0 and 1, and neither.

        Of two levels the higher one has the wider interval, or the same.
        """
        m, tail = len(self.ordered), 0.5 * (1.0 - level)
        # A level such as 0.9 is no binary number: its rounding must not cost a row.
        outside = math.floor((m + 1) * tail * (1.0 + 4.0 * DOUBLE.eps))
        if outside:
            return self.ordered[outside - 1], self.ordered[m - outside]
        normal, outermost = -torch.special.ndtri(torch.tensor([tail, 1.0 / (m + 1)], dtype=torch.float64))
        beyond = normal - outermost
        return (
            torch.minimum(self.ordered[0] - beyond, -normal),
            torch.maximum(self.ordered[-1] + beyond, normal),
        )

    def rescaled(self, scales: Tensor) -> Residuals:
        """With variances of targets multiplied by (q,) numbers, and means as they are."""
        return Residuals(self.ordered / scales.sqrt())
