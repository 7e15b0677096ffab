"""How far a kernel reaches in a format, and how many pairs of points are within its reach."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from halfgp.analysis.matrices import as_format
from halfgp.data import ArrayLike, as_points
from halfgp.errors import InputError
from halfgp.kernels import Kernel, Periodic, Scaled, Stationary
from halfgp.precision import Format

CHUNK = 2**22  # numbers of a temporary


@dataclass(frozen=True)
class Share:
    """Of the pairs of distinct rows.

    Attributes:
        share: between 0 and 1.
        standard_error: of it, as an estimate; 0 where all pairs were looked at.
        pairs: how many were looked at.
    """

    share: float
    standard_error: float
    pairs: int


def largest_distance(kernel: Kernel, fmt: str | Format) -> float:
    """The distance from which on a stationary kernel rounds to zero in a format.

    Rounding is to nearest: zero is what is at most half the smallest subnormal number, 2^-25 in half. The
    outputscale counts, as in a matrix whose entries are held in the format as they are; our operators hold
    them relative to their largest.

    Args:
        kernel: stationary or periodic, scaled or not.
        fmt: the format.

    Returns:
        In the units of the points. With one lengthscale per feature, along the longest. For a periodic
        kernel, of one feature and within half a period. Infinite where no distance makes it zero, or none
        that double could hold; 0 where the variance itself vanishes.
    """
    fall = as_format(fmt).vanishing_fall
    while isinstance(kernel, Scaled):
        fall += math.log(float(kernel.outputscale))
        kernel = kernel.kernel
    if not isinstance(kernel, Stationary | Periodic):
        raise InputError(
            f"`kernel` must be stationary or periodic, scaled or not; got {kernel!r}."
            " Ask its factors or terms one by one."
        )
    if fall <= 0.0:
        return 0.0
    reach = kernel.reach(fall)
    if isinstance(kernel, Periodic) and reach.numel() > 1:
        raise InputError(
            f"`kernel` must have one period and one lengthscale; got {kernel!r}. Ask for each feature alone."
        )
    return float(reach.max())


def vanishing_share(
    kernel: Kernel, X: ArrayLike, fmt: str | Format, *, pairs: int = 100_000, seed: int = 0
) -> Share:
    """The share of pairs of rows whose covariance rounds to zero in a format; the outputscale counts.

    Args:
        kernel: any.
        X: points (n, d), at least two.
        fmt: the format.
        pairs: how many to draw; all, where there are no more.
        seed: of the draw.
    """
    threshold = 2.0 ** as_format(fmt).vanishing_exponent  # zero for double, where nothing else is below it
    return _share(kernel, X, lambda k: k.abs() <= threshold, pairs, seed)


def negligible_share(
    kernel: Kernel, X: ArrayLike, fmt: str | Format, *, pairs: int = 100_000, seed: int = 0
) -> Share:
    """The share of pairs whose covariance is below the format's resolution next to the largest variance.

    Args:
        kernel: any.
        X: points (n, d), at least two.
        fmt: the format, whose spacing at 1 is its `eps`.
        pairs: how many to draw; all, where there are no more.
        seed: of the draw.
    """
    threshold = as_format(fmt).eps * float(kernel.amplitude(as_points(X, "X").double()))
    return _share(kernel, X, lambda k: k.abs() < threshold, pairs, seed)


@torch.no_grad()
def pair_covariances(kernel: Kernel, x1: Tensor, x2: Tensor) -> Tensor:
    """The covariances (m,) of points (m, d) with as many others, pair by pair, without White."""
    program = kernel.program()
    values = []
    for leaf in program.leaves:
        z1, z2 = leaf.scaled(x1), leaf.scaled(x2)
        if leaf.is_stationary:
            values.append(leaf.covariance((z1 - z2).square().sum(dim=1)))
        else:
            values.append((z1 * z2).sum(dim=1))
    return program.evaluate(values, (len(x1),)).double()


def _share(kernel: Kernel, X: ArrayLike, wanted: Callable[[Tensor], Tensor], pairs: int, seed: int) -> Share:
    x = as_points(X, "X").double()
    kernel.check_columns(x.shape[1])
    if isinstance(pairs, bool) or not isinstance(pairs, int) or pairs < 1:
        raise InputError(f"`pairs` must be a positive integer; got {pairs!r}.")
    if len(x) < 2:
        raise InputError(f"`X` must have at least two rows to make a pair; got {len(x)}.")
    i, j, complete = _pairs(len(x), pairs, seed)
    found, step = 0, max(1, CHUNK // x.shape[1])
    for start in range(0, len(i), step):
        some = slice(start, start + step)
        found += int(wanted(pair_covariances(kernel, x[i[some]], x[j[some]])).sum())
    share = found / len(i)
    if complete:
        return Share(share, 0.0, len(i))
    # From one more of each kind, so that a draw in which all agree does not pass for certain.
    likely = (found + 1) / (len(i) + 2)
    return Share(share, math.sqrt(likely * (1.0 - likely) / len(i)), len(i))


def _pairs(n: int, count: int, seed: int) -> tuple[Tensor, Tensor, bool]:
    """Rows of pairs, and whether these are all there are."""
    if n * (n - 1) // 2 <= count:
        i, j = torch.triu_indices(n, n, offset=1)
        return i, j, True
    generator = torch.Generator().manual_seed(seed)
    i = torch.randint(n, (count,), generator=generator)
    j = (i + 1 + torch.randint(n - 1, (count,), generator=generator)) % n
    return i, j, False
