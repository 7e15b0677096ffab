"""Which covariances a product takes for zero, and whether it looks at tiles that have no others."""

from __future__ import annotations

from dataclasses import dataclass

from halfgp.errors import InputError
from halfgp.kernels import Kernel
from halfgp.precision import Precision


@dataclass(frozen=True)
class Truncation:
    """How a kernel matrix is cut off.

    Attributes:
        cutoff: covariances of at most this, relative to the deviations of their two points, are zero, beside
            those that the format itself rounds to zero.
        skip: whether tiles of zeros are passed by, which changes no bit of a result.
    """

    cutoff: float = 0.0
    skip: bool = True

    def vanishing(self, precision: Precision) -> float:
        """The largest relative covariance that is zero."""
        by_format = 2.0**precision.inputs.vanishing_exponent if precision.is_sixteen_bit else 0.0
        return max(self.cutoff, by_format)


EXACT = Truncation()


@dataclass(frozen=True)
class TruncationReport:
    """What truncation saves and costs.

    Attributes:
        cutoff: covariances of at most this, relative to the variances, are zero; 0 for none but those below
            the range of the format.
        skipped: of all entries, the share that a product does not look at.
        error: at least the largest sum over a row of |entries| that are taken for zero. With E the matrix of
            these, no number of E v is larger than `error` times the largest of v; of a square matrix it
            also bounds the norm of E, and so |E v| by `error` |v|.
        rho: `error` relative to the least noise of a square matrix; inf without noise. Below 1, weights with
            the residual r in the truncated system have one of at most |r| + rho / (1 - rho) (|y| + |r|) in
            the whole one.
    """

    cutoff: float
    skipped: float
    error: float
    rho: float


def resolve_truncation(
    truncate: bool | str | float, kernel: Kernel, columns: int, precision: Precision
) -> Truncation:
    """What `KernelOperator(truncate=...)` means for a kernel matrix of so many columns.

    "auto" cuts off at u / n, with u the unit roundoff of the vectors' format: what a row of n covariances
    loses is then at most u times the variance, less than one rounding of its diagonal. It does so where the
    variance is the same everywhere and falls to zero with distance; 16-bit formats cut off more themselves.
    """
    if isinstance(truncate, bool):
        return Truncation(skip=truncate)
    if truncate == "auto":
        program = kernel.program()
        if precision.is_sixteen_bit or not columns or not program.has_support:
            return EXACT
        return Truncation(precision.vectors.unit_roundoff / columns)
    if isinstance(truncate, str) or not 0.0 < truncate < 1.0:
        raise InputError(
            f'`truncate` must be "auto", True, False, or a relative cutoff between 0 and 1; got {truncate!r}.'
        )
    return Truncation(float(truncate))
