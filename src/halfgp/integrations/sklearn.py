"""A trained Gaussian process of scikit-learn as one of ours."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor  # type: ignore[import-untyped]

from halfgp.errors import InputError
from halfgp.estimator import GPRegressor
from halfgp.kernels import Kernel
from halfgp.sklearn_kernels import as_fixed, from_sklearn_kernel


def all_fixed(kernel: Kernel) -> Kernel:
    """The same kernel, of which training moves nothing."""
    held = {name: replace(p.detached(), fixed=True) for name, p in kernel.named_parameters()}
    return kernel.with_parameters(held)


def from_sklearn(regressor: GaussianProcessRegressor) -> GPRegressor:
    """A `GPRegressor` with the hyperparameters and rows of a fitted `GaussianProcessRegressor`.

    Its predictions are the same, by our solvers. Nothing is trained.

    Raises:
        InputError: it is not fitted, or its kernel has a part that is none of ours.
    """
    if not isinstance(regressor, GaussianProcessRegressor):
        raise InputError(
            f"`regressor` must be a GaussianProcessRegressor; got {type(regressor).__name__}. `GPRegressor`"
            " takes kernels of scikit-learn as they are."
        )
    if not hasattr(regressor, "X_train_"):
        raise InputError("`regressor` must be fitted; got one that is not. Call its `fit` first.")
    targets = np.asarray(regressor.y_train_)
    if targets.ndim > 1 and targets.shape[1] != 1:
        raise InputError(
            f"`regressor` must have one target; got {targets.shape[1]}. Fit one for each, or"
            " `GPRegressor` with its kernel, which takes several."
        )
    x = np.asarray(regressor.X_train_, dtype=np.float64)
    scale, mean = np.asarray(regressor._y_train_std), np.asarray(regressor._y_train_mean)
    y = targets.reshape(-1) * scale + mean
    ours = GPRegressor(
        all_fixed(from_sklearn_kernel(as_fixed(regressor.kernel_), x.shape[1])),
        standardise_X=False,
        standardise_y=bool(regressor.normalize_y),
        mean="zero",
        priors=None,
    )
    noise = np.broadcast_to(np.asarray(regressor.alpha, dtype=np.float64), (len(x),))
    return ours.fit(x, y, noise * np.square(scale).reshape(-1)[0])
