"""A trained model of GPyTorch as one of ours."""

from __future__ import annotations

import math
from typing import Any

import gpytorch
import torch
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from torch import Tensor

from halfgp.errors import InputError
from halfgp.estimator import GPRegressor
from halfgp.integrations.gpytorch.covariance import KernelCovariance
from halfgp.integrations.gpytorch.enabling import enable
from halfgp.integrations.sklearn import all_fixed
from halfgp.kernels import Kernel

COMPARED = 10  # rows at which a model is held against its parts
ROUNDING = 1e-5  # relative, of single


def kernel_of(covar_module: gpytorch.kernels.Kernel, columns: int) -> Kernel:
    """Our kernel of the same covariance on points of so many columns, at the values it has.

    Raises:
        InputError: a part of it is none of ours, or it has a batch.
    """
    # One point whose values are the numbers of its columns tells which of them each part looks at.
    numbers = torch.arange(columns, dtype=torch.float64)[None]
    with enable("double"), torch.no_grad(), gpytorch.settings.lazily_evaluate_kernels(False):
        matrix = covar_module(numbers, numbers)
    if not isinstance(matrix, KernelCovariance) or matrix.batch_shape:
        raise InputError(
            f"`model` must have a kernel of RBF, Matern, RQ, Periodic, Linear and Constant kernels, scaled,"
            f" added and multiplied, without batches; got {type(covar_module).__name__} with another part."
        )
    ((kernel, x, _),) = matrix.elements()
    return kernel.detached().on_columns([int(column) for column in x[0]])


def from_gpytorch(model: Any) -> GPRegressor:
    """A `GPRegressor` with the hyperparameters and rows of an `ExactGP`; nothing is trained.

    Its mean must be constant or zero, its likelihood Gaussian with one noise or one for every row. Where
    BoTorch has standardised the targets, predictions are in their own units, as those of its posterior are.

    Raises:
        InputError: what of the model is none of ours.
    """
    _check_parts(model)
    points = model.train_inputs[0].detach()
    x, y = points.double(), model.train_targets.detach().double()
    if x.ndim != 2 or y.ndim != 1:
        raise InputError(f"`model` must have one batch of rows, (n, d) and (n,); got {tuple(x.shape)}.")
    kernel, constant = kernel_of(model.covar_module, x.shape[1]), _constant(model.mean_module)
    _check_forward(model, points[:: math.ceil(len(points) / COMPARED)])
    shift, scale = _units(getattr(model, "outcome_transform", None), y)
    noise = model.likelihood.noise.detach().double().expand(len(x)) * scale**2
    ours = GPRegressor(
        all_fixed(kernel if scale == 1.0 else scale**2 * kernel),
        standardise_X=False,
        standardise_y=False,
        mean=shift + scale * constant,
        priors=None,
    )
    return ours.fit(x.numpy(), (shift + scale * y).numpy(), noise.numpy())


def _check_parts(model: Any) -> None:
    """Raise unless all is there that is taken over, and nothing else is done to points."""
    if not isinstance(model, gpytorch.models.ExactGP):
        raise InputError(f"`model` must be a gpytorch.models.ExactGP; got {type(model).__name__}.")
    missing = [name for name in ("mean_module", "covar_module") if not hasattr(model, name)]
    if missing:
        raise InputError(
            "`model` must have a `mean_module` and a `covar_module`, as GPyTorch's examples have; got one"
            f" without `{missing[0]}`. Rename them, and what its `forward` calls."
        )
    if not model.train_inputs or model.train_targets is None:
        raise InputError("`model` must have its rows; got none. Call its `set_train_data` first.")
    if not isinstance(model.likelihood, GaussianLikelihood | FixedNoiseGaussianLikelihood):
        raise InputError(
            "`model` must have a GaussianLikelihood or a FixedNoiseGaussianLikelihood; got"
            f" {type(model.likelihood).__name__}."
        )
    transform = getattr(model, "input_transform", None)
    if transform is not None:
        raise InputError(
            f"`model` must have no `input_transform`; got {type(transform).__name__}. Fit one on points that"
            " are transformed before, and transform new ones before `predict`."
        )


def _check_forward(model: Any, x: Tensor) -> None:
    """Raise unless `forward` is nothing but the mean and the kernel of the points, at some of them."""
    with torch.no_grad():
        prior = model.forward(x)
        found = [prior.mean.detach(), prior.covariance_matrix.detach()]
        wanted = [model.mean_module(x).detach(), model.covar_module(x).to_dense().detach()]
    close = [
        a.shape == b.shape and torch.allclose(a, b, rtol=ROUNDING, atol=ROUNDING * float(b.abs().max()))
        for a, b in zip(found, wanted, strict=True)
    ]
    if not all(close):
        raise InputError(
            "`model` must have a `forward` of its `mean_module` and its `covar_module` alone; got one with"
            f" another {'mean' if not close[0] else 'covariance'}. Do to points what it does to them before"
            " the fit, and before `predict`."
        )


def _units(transform: Any, y: Tensor) -> tuple[float, float]:
    """The shift and the scale that take targets as a model has them to those that it was given."""
    if transform is None:
        return 0.0, 1.0
    columns = torch.cat([y.new_tensor([0.0, 1.0]), y])[:, None]
    given = transform.untransform(columns)[0].detach().double().reshape(-1)
    shift, scale = float(given[0]), float(given[1] - given[0])
    if not torch.allclose(given[2:], shift + scale * y, rtol=ROUNDING):
        raise InputError(
            "`model` must have an `outcome_transform` that shifts and scales; got"
            f" {type(transform).__name__}. Transform targets before the fit, and predictions after it."
        )
    return shift, scale


def _constant(mean_module: Any) -> float:
    if isinstance(mean_module, gpytorch.means.ZeroMean):
        return 0.0
    if isinstance(mean_module, gpytorch.means.ConstantMean):
        return float(mean_module.constant.detach())
    raise InputError(
        f"`model` must have a constant mean or none; got {type(mean_module).__name__}. Subtract it from the"
        " targets, and add it to predictions."
    )
