"""Mean functions other than a learned constant: what is taken off targets before a fit, and added again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Protocol

import torch
from torch import Tensor

from halfgp.compact import CompactPoints
from halfgp.data import as_real
from halfgp.errors import InputError


class Trend(Protocol):
    """A mean function of some targets."""

    def __call__(self, points: Tensor) -> Tensor:
        """Means (m, q) at points (m, d) in the user's units."""

    def of_targets(self, targets: Sequence[int]) -> Trend:
        """That of some of them."""


@dataclass(frozen=True, eq=False)
class LinearTrend:
    """A plane: x'slopes + level.

    Attributes:
        slopes: (d, q).
        level: (q,).
    """

    slopes: Tensor
    level: Tensor

    @classmethod
    def through(cls, points: Tensor, targets: Tensor) -> LinearTrend:
        """By least squares, where rows (n, d) and (n, q) are; the least slopes where they leave a choice."""
        middle, mean = points.mean(dim=0), targets.mean(dim=0)
        q, r = torch.linalg.qr(points - middle)
        about = r.cpu(), (q.mT @ (targets - mean)).cpu()  # where the driver is that takes any rank
        least = torch.finfo(r.dtype).eps * max(points.shape)  # of singular values, as for all rows
        found = torch.linalg.lstsq(*about, rcond=least, driver="gelsd")
        slopes: Tensor = found.solution.to(points.device)
        return cls(slopes, mean - middle @ slopes)

    def __call__(self, points: Tensor) -> Tensor:
        """At points (m, d)."""
        return points @ self.slopes + self.level

    def of_targets(self, targets: Sequence[int]) -> LinearTrend:
        """That of some targets."""
        return LinearTrend(self.slopes[:, list(targets)], self.level[list(targets)])


@dataclass(frozen=True, eq=False)
class CallableTrend:
    """A user's function of points (m, d), a NumPy array, to (m,) or (m, q).

    Attributes:
        function: the user's.
        targets: q.
        taken: those of them that are asked for.
    """

    function: Callable[..., object]
    targets: int
    taken: tuple[int, ...]

    def __call__(self, points: Tensor) -> Tensor:
        """At points (m, d), checked."""
        given = self.function(points.cpu().numpy())
        values = as_real(given, "mean").double()  # type: ignore[arg-type]
        if values.ndim == 1:
            values = values[:, None]
        if values.shape[0] != len(points) or values.shape[1] not in (1, self.targets):
            raise InputError(
                f"`mean` must give ({len(points)},) or ({len(points)}, {self.targets}) numbers for so many"
                f" points; got shape {tuple(values.shape)}."
            )
        if not bool(values.isfinite().all()):
            raise InputError("`mean` must give finite numbers; got NaN or infinity.")
        return values.expand(len(points), self.targets)[:, list(self.taken)].to(points.device)

    def of_targets(self, targets: Sequence[int]) -> CallableTrend:
        """That of some targets, of those that are asked for."""
        return replace(self, taken=tuple(self.taken[target] for target in targets))


def trend_of(
    mean: object, points: Tensor | CompactPoints, targets: Tensor, taken: tuple[int, ...], of: int
) -> Trend | None:
    """That of the setting "linear", of a number or of a function; None for what is learned, or zero.

    Args:
        mean: the setting.
        points: (n, d), in whatever format.
        targets: (n, q) at them.
        taken: which these are.
        of: so many targets that a function is about.
    """
    if mean == "linear":
        return LinearTrend.through(points.double(), targets)
    if isinstance(mean, Real):
        d, q = points.shape[1], targets.shape[1]
        return LinearTrend(targets.new_zeros(d, q), targets.new_full((q,), float(mean)))
    return CallableTrend(mean, of, taken) if callable(mean) else None
