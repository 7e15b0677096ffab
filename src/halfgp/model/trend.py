"""Mean functions other than a learned constant: what is taken off targets before a fit, and added again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from halfgp.data import as_real
from halfgp.errors import InputError

Trend = Callable[[Tensor], Tensor]  # points (m, d) in the user's units to means (m, q)


@dataclass(frozen=True, eq=False)
class LinearTrend:
    """A plane through the rows, by least squares: x'slopes + level.

    Attributes:
        slopes: (d, q).
        level: (q,).
    """

    slopes: Tensor
    level: Tensor

    @classmethod
    def through(cls, points: Tensor, targets: Tensor) -> LinearTrend:
        """Of rows (n, d) and (n, q); the least slopes where rows leave a choice. Rows stay where they are."""
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


@dataclass(frozen=True, eq=False)
class CallableTrend:
    """A user's function of points (m, d), a NumPy array, to (m,) or (m, q).

    Attributes:
        function: the user's.
        targets: q.
    """

    function: Callable[..., object]
    targets: int

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
        return values.to(points.device).expand(len(points), self.targets)


def trend_of(mean: object, points: Tensor, targets: Tensor) -> Trend | None:
    """That of the setting "linear" or of a function; None for what is learned with the kernel, or zero."""
    if mean == "linear":
        return LinearTrend.through(points, targets)
    return CallableTrend(mean, targets.shape[1]) if callable(mean) else None
