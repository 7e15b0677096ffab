"""What a diagnosis is about: standardised points, right-hand sides, a kernel and the noise."""

from __future__ import annotations

import math
import warnings
from typing import NamedTuple

import torch
from torch import Tensor

from halfgp.data import ArrayLike, as_noise, as_points, as_targets
from halfgp.errors import DataWarning, InputError
from halfgp.estimator import GPRegressor
from halfgp.hyperparameters import kernel_by_name
from halfgp.kernels import Kernel
from halfgp.model import ExactGP
from halfgp.settings import Settings
from halfgp.standardise import Standardisation

LEAST_ROWS = 8  # so that a quarter of them is a matrix


class Case(NamedTuple):
    """Standardised points (N, d), right-hand sides (N, t), and what covariance and noise they have."""

    x: Tensor
    b: Tensor
    kernel: Kernel
    noise: Tensor
    origin: str
    dropped: int


def make_case(
    X: ArrayLike,
    y: ArrayLike | None,
    kernel: str | Kernel | None,
    noise: float | ArrayLike | None,
    model: GPRegressor | ExactGP | None,
    standardise: bool,
    seed: int,
) -> Case:
    """From the arguments of `diagnose`, checked."""
    points = as_points(X, "X").double()
    targets = None if y is None else as_targets(y, "y", len(points))[0]
    variances = None if noise is None else as_noise(noise, len(points), points.device)
    whole = torch.ones(len(points), dtype=torch.bool) if targets is None else targets.isfinite().all(dim=1)
    dropped = len(points) - int(whole.sum())
    if dropped:
        warnings.warn(
            f"{dropped} of {len(points)} rows have no target (NaN in `y`) and are left out.",
            DataWarning,
            stacklevel=3,
        )
    points, targets = points[whole], None if targets is None else targets[whole]
    if variances is not None and variances.ndim:
        variances = variances[whole]
    if len(points) < LEAST_ROWS:
        raise InputError(
            f"`X` must have at least {LEAST_ROWS} rows, with targets where `y` is given; got {len(points)}."
        )
    gp = _fitted(model, kernel)
    given = isinstance(kernel, Kernel) or variances is not None
    origin = "fitted" if gp is not None else "given" if given else "default"
    if gp is None:
        x_scale, y_scale = Standardisation.of(points, standardise), None
        kernel, own = _kernel(kernel, points.shape[1]), _default(variances)
    else:
        x_scale, y_scale = gp.x_scale, gp.y_scale
        kernel, own = gp.hyperparameters.kernel, _model_noise(gp, variances)
        if points.shape[1] != len(x_scale.mean):
            raise InputError(
                f"`X` must have {len(x_scale.mean)} columns, as in `fit`; got {points.shape[1]}."
            )
    kernel.check_columns(points.shape[1])
    b = _right_hand_sides(targets, y_scale, len(points), standardise, seed)
    return Case(x_scale.apply(points), b, kernel, own, origin, dropped)


def _fitted(model: GPRegressor | ExactGP | None, kernel: object) -> ExactGP | None:
    if model is None:
        return None
    if kernel is not None:
        raise InputError("`kernel` and `model` exclude each other: a model has its own. Leave one out.")
    gp = getattr(model, "model_", model)
    if not isinstance(gp, ExactGP) or not gp.is_fitted:
        raise InputError(f"`model` must be a fitted `GPRegressor` or `ExactGP`; got {model!r:.80}.")
    return gp


def _kernel(kernel: str | Kernel | None, d: int) -> Kernel:
    """A kernel as it is, or by its name where `GPRegressor` would start."""
    if isinstance(kernel, Kernel):
        return kernel
    start = max(1.0, math.sqrt(d)) / 2
    return kernel_by_name(
        str(Settings.kernel) if kernel is None else kernel,
        d,
        ard=Settings.ard,
        lengthscale=start,
        outputscale=Settings.outputscale,
    )


def _default(variances: Tensor | None) -> Tensor:
    return torch.tensor(Settings.noise, dtype=torch.float64) if variances is None else variances


def _model_noise(gp: ExactGP, variances: Tensor | None) -> Tensor:
    """The model's own, or what its rows have, in standardised units."""
    learned = gp.hyperparameters.noise
    if (learned is None) != (variances is not None):
        raise InputError(
            "`noise` must be given with a `model` exactly if that was fitted with variances of its rows."
        )
    if learned is not None:
        return learned.value.detach().double()
    assert variances is not None
    return variances / gp.y_scale.scale[0] ** 2


def _right_hand_sides(
    targets: Tensor | None, scale: Standardisation | None, rows: int, standardise: bool, seed: int
) -> Tensor:
    if targets is None:
        return torch.randn(rows, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    scale = scale or Standardisation.of(targets, standardise)
    if targets.shape[1] != len(scale.mean):
        raise InputError(f"`y` must have {len(scale.mean)} targets, as in `fit`; got {targets.shape[1]}.")
    b = scale.apply(targets)
    b = b - b.mean(dim=0)
    if not bool((b.abs().amax(dim=0) > 0).all()):
        raise InputError("`y` must vary: a constant has nothing to solve for. Leave it out.")
    return b
