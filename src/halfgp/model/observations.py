"""What a user passed to be learned from, checked: the rows that have targets."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from halfgp.compact import CompactPoints
from halfgp.data import ArrayLike, as_noise, as_points, as_targets, on_device
from halfgp.errors import ConstantColumnsWarning, DataWarning, InputError
from halfgp.model.trend import Trend
from halfgp.persistence import fingerprint
from halfgp.problem import Problem
from halfgp.settings import Settings, as_bytes
from halfgp.standardise import Standardisation


class Pattern(NamedTuple):
    """Targets that are known in the same rows.

    Attributes:
        targets: which columns, ascending.
        rows: (m,) which rows have them, ascending.
    """

    targets: tuple[int, ...]
    rows: Tensor


@dataclass(frozen=True, eq=False)
class Observations:
    """Rows in the user's units, as tensors.

    Attributes:
        points: (n, d), as they came, or compact.
        targets: (n, q); NaN where a row has some of them and not that one.
        variances: (n,) known noise, or None.
        dropped: how many rows had no target.
        single: whether targets came as (n,).
    """

    points: Tensor | CompactPoints
    targets: Tensor
    variances: Tensor | None
    dropped: int
    single: bool

    @classmethod
    def of(
        cls,
        X: ArrayLike | CompactPoints,
        y: ArrayLike,
        noise: ArrayLike | None,
        device: str = "auto",
    ) -> Observations:
        """The rows that have any target, on a device; a warning for the others."""
        if isinstance(X, CompactPoints):
            points: Tensor | CompactPoints = X.to(device)
        else:
            points = on_device(as_points(X, "X"), device).contiguous()
        n = len(points)
        targets, single = as_targets(y, "y", n)
        targets = targets.to(points.device)
        variances = None if noise is None else as_noise(noise, n, points.device).expand(n)
        if variances is not None and targets.shape[1] > 1:
            raise InputError(
                f"`noise` for every row goes with one target; got {targets.shape[1]}. Fit one model for each."
            )
        known = targets.isfinite().any(dim=1)
        dropped = n - int(known.sum())
        if dropped == n:
            raise InputError(f"`y` has no row with a target, of {n}. There is nothing to learn from.")
        if dropped:
            warnings.warn(
                f"{dropped} of {n} rows have no target (NaN in `y`) and are left out.",
                DataWarning,
                stacklevel=4,
            )
            points, targets = points[known], targets[known]
            variances = None if variances is None else variances[known]
        return cls(points, targets, variances, dropped, single)

    def patterns(self, targets: Sequence[int]) -> list[Pattern]:
        """Some targets, those together that the same rows have; in the order of the first of each."""
        known = self.targets.isfinite()
        present, absent = known[:, list(targets)].double(), (~known[:, list(targets)]).double()
        # In how many rows two of them have the same: numbers of targets, and not of rows, leave a device.
        agreed = present.T @ present + absent.T @ absent
        alike: dict[int, list[int]] = {}
        for target, first in zip(targets, (agreed == len(known)).int().argmax(dim=1).tolist(), strict=True):
            alike.setdefault(first, []).append(target)
        return [Pattern(tuple(some), known[:, some[0]].nonzero()[:, 0]) for some in alike.values()]

    def check_known(self) -> None:
        """Refuse a target that no row has."""
        unknown = (~self.targets.isfinite().any(dim=0)).nonzero()[:, 0].tolist()
        if unknown:
            raise InputError(
                f"`y` must have a value of every target in some row; got NaN alone in column {unknown[0]} of"
                f" {self.targets.shape[1]}. There is nothing to learn of it: leave that column out."
            )

    def taken(self, pattern: Pattern) -> Observations:
        """The rows that have some targets, and these alone."""
        if pattern.targets == tuple(range(self.targets.shape[1])):
            return self  # no row has fewer than all
        rows, columns = pattern.rows, list(pattern.targets)
        return Observations(
            self.points[rows],
            self.targets[rows][:, columns],
            None if self.variances is None else self.variances[rows],
            self.dropped + len(self.points) - len(rows),
            single=False,
        )

    def fingerprints(self) -> dict[str, str]:
        """What tells the rows from others, by argument."""
        points: tuple[Tensor, ...]
        if isinstance(self.points, CompactPoints):
            points = self.points.values, self.points.scale.mean, self.points.scale.scale
        else:
            points = (self.points,)
        noise = () if self.variances is None else (self.variances,)
        given = {"X": points, "y": (self.targets,), "noise": noise}
        told = {name: f"{tuple(v[0].shape)} {fingerprint(*v)}" if v else "none" for name, v in given.items()}
        rows = {"number of rows without a target (NaN in `y`)": str(self.dropped)}
        return rows | {f"`{name}`": text for name, text in told.items()}

    def without(self, trend: Trend | None) -> Observations:
        """With targets about a mean function."""
        return self if trend is None else replace(self, targets=self.targets - trend(self.points.double()))

    def scales(self, settings: Settings) -> tuple[Standardisation, Standardisation]:
        """What standardises points and targets; a word about columns of points that are held."""
        points = self.points
        if isinstance(points, CompactPoints):
            x_scale = points.scale
        else:
            x_scale = Standardisation.of(points, settings.standardise_X).holding(points)
        constant = x_scale.constant.nonzero()[:, 0].tolist()
        if constant:
            warnings.warn(ConstantColumnsWarning(constant, len(x_scale.constant)), stacklevel=5)
        return x_scale, Standardisation.of(self.targets, settings.standardise_y)

    def problem(
        self,
        x_scale: Standardisation,
        y_scale: Standardisation,
        settings: Settings,
        dtype: torch.dtype = torch.float64,
    ) -> Problem:
        """Standardised rows, with the options of the settings; points in that format, or as compact ones."""
        points, y = self.points, y_scale.apply(self.targets)
        x = points.values if isinstance(points, CompactPoints) else x_scale.apply(points, dtype)
        for name, values in (("X", x), ("y", y)):
            if not bool(values.isfinite().all()):
                raise InputError(f"`{name}` spans more than double precision can hold. Scale it down.")
        return Problem(
            x,
            y,
            self._fixed_noise(y_scale),
            precision=settings.precision,
            backend=settings.backend,
            threads=settings.threads,
            memory_limit=as_bytes(settings.memory_limit),
        )

    def forgotten(self) -> Observations:
        """The same without the rows: a problem has them, and no copy in the user's units is kept beside."""
        points, targets = (self.targets.new_empty(0, v.shape[1]) for v in (self.points, self.targets))
        variances = None if self.variances is None else self.variances.new_empty(0)
        return replace(self, points=points, targets=targets, variances=variances)

    def _fixed_noise(self, y_scale: Standardisation) -> Tensor | None:
        """Known variances (n,) of standardised targets."""
        if self.variances is None:
            return None
        fixed: Tensor = self.variances / y_scale.scale[0] ** 2
        if not bool((fixed > 0).all()):
            raise InputError(f"`noise` must be positive for every row; got {float(self.variances.min()):g}.")
        return fixed
