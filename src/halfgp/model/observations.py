"""What a user passed to be learned from, checked: the rows that have targets."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

from torch import Tensor

from halfgp.data import ArrayLike, as_noise, as_points, as_targets, on_device
from halfgp.errors import ConstantColumnsWarning, DataWarning, InputError
from halfgp.model.trend import Trend
from halfgp.persistence import fingerprint
from halfgp.problem import Problem
from halfgp.settings import Settings, as_bytes
from halfgp.standardise import Standardisation


@dataclass(frozen=True, eq=False)
class Observations:
    """Rows in the user's units, as tensors.

    Attributes:
        points: (n, d).
        targets: (n, q).
        variances: (n,) known noise, or None.
        dropped: how many rows had no target.
        single: whether targets came as (n,).
    """

    points: Tensor
    targets: Tensor
    variances: Tensor | None
    dropped: int
    single: bool

    @classmethod
    def of(cls, X: ArrayLike, y: ArrayLike, noise: ArrayLike | None, device: str = "auto") -> Observations:
        """The rows that have targets, on a device; a warning for the others."""
        points = on_device(as_points(X, "X"), device).double().contiguous()
        n = len(points)
        targets, single = as_targets(y, "y", n)
        targets = targets.to(points.device)
        variances = None if noise is None else as_noise(noise, n, points.device).expand(n)
        whole = targets.isfinite().all(dim=1)
        dropped = n - int(whole.sum())
        if dropped == n:
            raise InputError(f"`y` has no row with a target, of {n}. There is nothing to learn from.")
        if dropped:
            warnings.warn(_about_missing(targets, whole), DataWarning, stacklevel=3)
            points, targets = points[whole], targets[whole]
            variances = None if variances is None else variances[whole]
        return cls(points, targets, variances, dropped, single)

    def fingerprints(self) -> dict[str, str]:
        """What tells the rows from others, by argument."""
        given = {"X": self.points, "y": self.targets, "noise": self.variances}
        told = {
            name: "none" if v is None else f"{tuple(v.shape)} {fingerprint(v)}" for name, v in given.items()
        }
        rows = {"number of rows without a target (NaN in `y`)": str(self.dropped)}
        return rows | {f"`{name}`": text for name, text in told.items()}

    def without(self, trend: Trend | None) -> Observations:
        """With targets about a mean function."""
        return self if trend is None else replace(self, targets=self.targets - trend(self.points))

    def scales(self, settings: Settings) -> tuple[Standardisation, Standardisation]:
        """What standardises points and targets; a word about columns of points that are held."""
        x_scale = Standardisation.of(self.points, settings.standardise_X).holding(self.points)
        constant = x_scale.constant.nonzero()[:, 0].tolist()
        if constant:
            warnings.warn(ConstantColumnsWarning(constant, len(x_scale.constant)), stacklevel=3)
        return x_scale, Standardisation.of(self.targets, settings.standardise_y)

    def problem(self, x_scale: Standardisation, y_scale: Standardisation, settings: Settings) -> Problem:
        """Standardised rows, with the options of the settings."""
        x, y = x_scale.apply(self.points), y_scale.apply(self.targets)
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

    def _fixed_noise(self, y_scale: Standardisation) -> Tensor | None:
        """Known variances (n,) of standardised targets."""
        if self.variances is None:
            return None
        if self.targets.shape[1] > 1:
            raise InputError(
                f"`noise` for every row goes with one target; got {self.targets.shape[1]}."
                " Fit one model for each."
            )
        fixed: Tensor = self.variances / y_scale.scale[0] ** 2
        if not bool((fixed > 0).all()):
            raise InputError(f"`noise` must be positive for every row; got {float(self.variances.min()):g}.")
        return fixed


def _about_missing(targets: Tensor, whole: Tensor) -> str:
    """What is left out, and how to keep what it had to say."""
    missing = f"{int((~whole).sum())} of {len(whole)} rows have no target (NaN in `y`) and are left out."
    partial = int((targets.isfinite().any(dim=1) & ~whole).sum())
    if not partial:
        return missing
    return (
        f"{missing} {partial} of them have some of their {targets.shape[1]} targets: these share one set of"
        " rows here. Fit a model for each target, `fit(X, y[:, k])`, and it uses all rows of its own."
    )
