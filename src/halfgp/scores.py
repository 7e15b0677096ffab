"""How good Gaussian predictions are: errors of the mean, and whether the uncertainty was stated rightly."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from halfgp.data import ArrayLike, as_vectors, check_level
from halfgp.errors import InputError

LEVELS = (0.5, 0.8, 0.9, 0.95)


@dataclass(frozen=True)
class Scores:
    """Scores of predictions, means over all values; what needs a standard deviation is None without one.

    Attributes:
        rmse: root of the mean squared error, in units of the target.
        mae: mean absolute error, in units of the target.
        nll: negative log density of a value, in nats; lower is better.
        crps: continuous ranked probability score, in units of the target; lower is better.
        coverage: by level, the share of values inside the central interval of that probability, of a normal
            distribution.
        constant_nll: the NLL of the same means with the one standard deviation that suits them best, which is
            their RMSE: ½ ln(2πe·rmse²). Standard deviations that know more than the average beat it.
        rows: how many rows were scored.
        interval_coverage: by level, the share of values inside intervals that were predicted; None without.
    """

    rmse: float
    mae: float
    nll: float | None
    crps: float | None
    coverage: dict[float, float] | None
    constant_nll: float | None
    rows: int
    interval_coverage: dict[float, float] | None = None

    def as_dict(self) -> dict[str, Any]:
        """All of it in plain types, ready for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        """One line, the most telling figures first."""
        parts = [f"RMSE {self.rmse:.4g}", f"MAE {self.mae:.4g}"]
        if self.nll is not None:
            parts.append(f"NLL {self.nll:.4g} (constant std: {self.constant_nll:.4g})")
            parts.append(f"CRPS {self.crps:.4g}")
        for kind, shares in (("", self.interval_coverage), ("normal ", self.coverage)):
            if shares:
                level, share = max(shares.items())
                parts.append(f"{100 * share:.1f} % inside {kind}{100 * level:g} % intervals")
        return ", ".join(parts) + f"; {self.rows} row{'s' * (self.rows != 1)}"


def score(
    y: ArrayLike,
    mean: ArrayLike,
    std: ArrayLike | None,
    intervals: Mapping[float, tuple[ArrayLike, ArrayLike]] | None = None,
) -> Scores:
    """Every score of predictions N(mean, std²) for the values that came.

    Args:
        y: what came, (m,) or (m, q), finite.
        mean: predicted means, of the same shape.
        std: standard deviations of `y`, noise included, of the same shape and positive; None for means alone.
        intervals: by level, lower and upper ends of the same shape, such as `predict_interval` gives.
    """
    inside = None
    if intervals is not None:
        inside = {level: share_inside(y, *ends) for level, ends in intervals.items()}
    if std is None:
        values, means = _same_shape(y=y, mean=mean)
        error = values - means
        return Scores(_rms(error), error.abs().mean().item(), None, None, None, None, len(error), inside)
    values, means, stds = _gaussian(y, mean, std)
    error = values - means
    spread = _rms(error)
    return Scores(
        rmse=spread,
        mae=error.abs().mean().item(),
        nll=_negative_log_density(error, stds),
        crps=_crps(error, stds),
        coverage={level: _share_normal(error, stds, level) for level in LEVELS},
        constant_nll=0.5 * math.log(2 * math.pi * math.e) + math.log(spread) if spread else -math.inf,
        rows=len(error),
        interval_coverage=inside,
    )


def rmse(y: ArrayLike, mean: ArrayLike) -> float:
    """Root mean squared error of means (m,) or (m, q)."""
    values, means = _same_shape(y=y, mean=mean)
    return _rms(values - means)


def negative_log_likelihood(y: ArrayLike, mean: ArrayLike, std: ArrayLike) -> float:
    """Mean over the values of −ln N(y; mean, std²), in nats; arrays (m,) or (m, q)."""
    values, means, stds = _gaussian(y, mean, std)
    return _negative_log_density(values - means, stds)


def crps(y: ArrayLike, mean: ArrayLike, std: ArrayLike) -> float:
    """Mean over the values of ∫ (Φ((t − mean)/std) − 1[t ≥ y])² dt, in closed form; arrays (m,) or (m, q)."""
    values, means, stds = _gaussian(y, mean, std)
    return _crps(values - means, stds)


def coverage(y: ArrayLike, mean: ArrayLike, std: ArrayLike, level: float) -> float:
    """The share of values inside the central interval that should hold the share `level` of them."""
    return float(calibration(y, mean, std, [level])[0])


def share_inside(y: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> float:
    """The share of values (m,) or (m, q) that are between the ends of intervals, or at one of them."""
    values, low, high = _same_shape(y=y, lower=lower, upper=upper)
    return ((low <= values) & (values <= high)).double().mean().item()


def calibration(
    y: ArrayLike, mean: ArrayLike, std: ArrayLike, levels: Sequence[float]
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Observed shares (k,) inside the central intervals of the levels (k,); calibrated, they are the levels.

    Args:
        y: what came, (m,) or (m, q).
        mean: predicted means, of the same shape.
        std: standard deviations, of the same shape and positive.
        levels: probabilities, each between 0 and 1 and neither.
    """
    values, means, stds = _gaussian(y, mean, std)
    for level in levels:
        check_level(level, "level")
    return np.array([_share_normal(values - means, stds, level) for level in levels], dtype=np.float64)


def _rms(error: Tensor) -> float:
    return math.sqrt(error.square().mean().item())


def _negative_log_density(error: Tensor, std: Tensor) -> float:
    return (0.5 * (error / std).square() + std.log()).mean().item() + 0.5 * math.log(2 * math.pi)


def _crps(error: Tensor, std: Tensor) -> float:
    # σ[z(2Φ(z) − 1) + 2φ(z) − 1/√π] with σz written as the error: right also where z itself overflows.
    z = error / std
    density = (-0.5 * z.square()).exp() / math.sqrt(2 * math.pi)
    inside = torch.erf(z / math.sqrt(2))
    return (error * inside + std * (2 * density - 1 / math.sqrt(math.pi))).mean().item()


def _share_normal(error: Tensor, std: Tensor, level: float) -> float:
    half_width = math.sqrt(2) * torch.erfinv(torch.tensor(level, dtype=torch.float64))
    return (error.abs() <= half_width * std).double().mean().item()


def _gaussian(y: ArrayLike, mean: ArrayLike, std: ArrayLike) -> list[Tensor]:
    tensors = _same_shape(y=y, mean=mean, std=std)
    smallest = tensors[2].min().item()
    if smallest <= 0:
        raise InputError(
            f"`std` must be positive; got {smallest:g}. A predictive standard deviation includes the noise:"
            " without any, pass None and only the means are scored."
        )
    return tensors


def _same_shape(**arrays: ArrayLike) -> list[Tensor]:
    """Finite float64 tensors (m, q) on the CPU. Nothing is broadcast: (m,) against (m, 1) is a mistake."""
    tensors: list[Tensor] = []
    expected: tuple[int, ...] = ()
    for name, array in arrays.items():
        device = array.device if isinstance(array, Tensor) else torch.device("cpu")
        vectors = as_vectors(array, name, None, device, math.inf)
        shape = tuple(vectors.values.shape)[: 1 if vectors.squeeze else 2]
        if not vectors.values.numel():
            raise InputError(f"`{name}` must hold at least one value; got shape {shape}.")
        if tensors and shape != expected:
            raise InputError(
                f"`{name}` must have the shape of `y`, {expected}; got {shape}. Reshape one of them."
            )
        expected = shape
        tensors.append(vectors.values.to("cpu", torch.float64))
    return tensors
