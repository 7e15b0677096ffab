"""Kernels of scikit-learn as ours, with their bounds, and with what is fixed in them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.base import clone  # type: ignore[import-untyped]
from sklearn.gaussian_process import kernels as theirs  # type: ignore[import-untyped]

from halfgp.errors import InputError
from halfgp.kernels import (
    RBF,
    Constant,
    Kernel,
    Linear,
    Matern,
    Periodic,
    RationalQuadratic,
    Scaled,
    White,
)
from halfgp.parameters import Parameter, fixed

MARGIN = 1e-9  # relative: our bounds are open, and a value that stands on one of theirs has to be within


def as_fixed(kernel: theirs.Kernel) -> theirs.Kernel:
    """The same kernel of scikit-learn, of which training moves nothing."""
    names = [f"{hyperparameter.name}_bounds" for hyperparameter in kernel.hyperparameters]
    return clone(kernel).set_params(**dict.fromkeys(names, "fixed"))


def from_sklearn_kernel(kernel: theirs.Kernel, features: int) -> Kernel:
    """Our kernel of the same covariance, at the same values.

    Args:
        kernel: of scikit-learn, composed at will.
        features: columns of the points.

    Raises:
        InputError: a part of it is none of ours, and what to use instead.
    """
    translate = _TRANSLATIONS.get(type(kernel))
    if translate is None:
        known = ", ".join(cls.__name__ for cls in _TRANSLATIONS)
        raise InputError(
            f"`kernel` must be made of {known}; got scikit-learn's {type(kernel).__name__}. Use one of"
            " those, or a kernel of halfgp."
        )
    return translate(kernel, features)


def _parameter(
    kernel: theirs.Kernel, name: str, change: Callable[[Any], Any] = lambda value: value
) -> Parameter:
    """A hyperparameter of theirs as one of ours, through an increasing change of units."""
    value = torch.as_tensor(np.array(change(np.asarray(getattr(kernel, name), dtype=float))))
    bounds = getattr(kernel, f"{name}_bounds")
    if isinstance(bounds, str):
        return fixed(value)
    limits = change(np.atleast_2d(np.asarray(bounds, dtype=float)))
    if (limits != limits[0]).any():
        raise InputError(
            f"`kernel` must have one pair of bounds for all of `{name}`; got {np.asarray(bounds).tolist()}."
            ' Give one pair, or "fixed" for all, or a product of kernels of some features each, with'
            " `active_dims` of halfgp's own."
        )
    lower, upper = float(limits[0, 0]) * (1 - MARGIN), float(limits[0, 1]) * (1 + MARGIN)
    return Parameter(value, lower, upper, name)


def _square(value: Any) -> Any:
    return np.square(value)


def _lengthscale(kernel: theirs.Kernel) -> Parameter:
    found = _parameter(kernel, "length_scale")
    return found.with_value(found.value[0]) if found.value.shape == (1,) else found


def _rbf(kernel: theirs.Kernel, _features: int) -> Kernel:
    return RBF(_lengthscale(kernel))


def _matern(kernel: theirs.Kernel, _features: int) -> Kernel:
    if math.isinf(kernel.nu):
        return RBF(_lengthscale(kernel))
    return Matern(float(kernel.nu), _lengthscale(kernel))


def _rational_quadratic(kernel: theirs.Kernel, _features: int) -> Kernel:
    return RationalQuadratic(_parameter(kernel, "alpha"), _parameter(kernel, "length_scale"))


def _periodic(kernel: theirs.Kernel, features: int) -> Kernel:
    if features != 1:
        raise InputError(
            "`kernel` must have ExpSineSquared on one feature only, for of more it is the sine of a distance"
            f" and no covariance; got {features} features. Use `halfgp.Periodic`, a product over features."
        )
    # Theirs squares the lengthscale, ours does not.
    return Periodic(_parameter(kernel, "periodicity"), _parameter(kernel, "length_scale", _square))


def _dot_product(kernel: theirs.Kernel, _features: int) -> Kernel:
    linear = Linear(fixed(1.0))
    if kernel.sigma_0 == 0.0 and isinstance(kernel.sigma_0_bounds, str):
        return linear
    return Constant(_parameter(kernel, "sigma_0", _square)) + linear


def _constant(kernel: theirs.Kernel, _features: int) -> Kernel:
    return Constant(_parameter(kernel, "constant_value"))


def _white(kernel: theirs.Kernel, _features: int) -> Kernel:
    return White(_parameter(kernel, "noise_level"))


def _sum(kernel: theirs.Kernel, features: int) -> Kernel:
    return from_sklearn_kernel(kernel.k1, features) + from_sklearn_kernel(kernel.k2, features)


def _product(kernel: theirs.Kernel, features: int) -> Kernel:
    k1, k2 = (from_sklearn_kernel(part, features) for part in (kernel.k1, kernel.k2))
    if isinstance(k1, Constant):  # a factor, as anyone means it who writes one
        return Scaled(dict(k1.named_parameters())["value"], k2)
    return k1 * k2


def _power(kernel: theirs.Kernel, features: int) -> Kernel:
    if float(kernel.exponent) != int(kernel.exponent) or kernel.exponent < 1:
        raise InputError(
            f"`kernel` must have whole powers; got {kernel.exponent}. Others are no covariances."
        )
    return from_sklearn_kernel(kernel.kernel, features) ** int(kernel.exponent)


_TRANSLATIONS: dict[type, Callable[[Any, int], Kernel]] = {
    theirs.RBF: _rbf,
    theirs.Matern: _matern,
    theirs.RationalQuadratic: _rational_quadratic,
    theirs.ExpSineSquared: _periodic,
    theirs.DotProduct: _dot_product,
    theirs.ConstantKernel: _constant,
    theirs.WhiteKernel: _white,
    theirs.Sum: _sum,
    theirs.Product: _product,
    theirs.Exponentiation: _power,
}
