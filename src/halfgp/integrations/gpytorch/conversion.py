"""A trained model of GPyTorch as one of ours."""

from __future__ import annotations

from typing import Any

import gpytorch
import torch

from halfgp.errors import InputError
from halfgp.estimator import GPRegressor
from halfgp.integrations.gpytorch.covariance import KernelCovariance
from halfgp.integrations.gpytorch.enabling import enable
from halfgp.integrations.sklearn import all_fixed
from halfgp.kernels import Kernel


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

    Its mean must be constant or zero, its likelihood Gaussian with one noise or one for every row.

    Raises:
        InputError: what of the model is none of ours.
    """
    if not isinstance(model, gpytorch.models.ExactGP):
        raise InputError(f"`model` must be a gpytorch.models.ExactGP; got {type(model).__name__}.")
    x, y = model.train_inputs[0].detach().double(), model.train_targets.detach().double()
    if x.ndim != 2 or y.ndim != 1:
        raise InputError(f"`model` must have one batch of rows, (n, d) and (n,); got {tuple(x.shape)}.")
    noise = model.likelihood.noise.detach().double()
    ours = GPRegressor(
        all_fixed(kernel_of(model.covar_module, x.shape[1])),
        standardise_X=False,
        standardise_y=False,
        mean=_constant(model.mean_module),
        priors=None,
    )
    return ours.fit(x.numpy(), y.numpy(), noise.expand(len(x)).numpy())


def _constant(mean_module: Any) -> float:
    if isinstance(mean_module, gpytorch.means.ZeroMean):
        return 0.0
    if isinstance(mean_module, gpytorch.means.ConstantMean):
        return float(mean_module.constant.detach())
    raise InputError(
        f"`model` must have a constant mean or none; got {type(mean_module).__name__}. Subtract it from the"
        " targets, and add it to predictions."
    )
