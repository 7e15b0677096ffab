"""Named hyperparameters: a value, its bounds, and a map from the whole real line into them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from halfgp.errors import InputError

ParameterValue = float | Sequence[float] | np.ndarray[Any, Any] | Tensor


@dataclass(frozen=True)
class Transform:
    """A smooth increasing map of the real line onto the open interval (lower, upper).

    Half lines are reached by exp, so that a positive parameter is optimised on its logarithm, or by
    softplus, log(1 + exp), as GPyTorch and the paper have it; a finite interval by the logistic function; the
    whole line by the identity.
    """

    lower: float
    upper: float
    softplus: bool = False

    def constrain(self, unconstrained: Tensor) -> Tensor:
        """From the real line into the bounds."""
        if math.isinf(self.lower):
            return unconstrained if math.isinf(self.upper) else self.upper - torch.exp(-unconstrained)
        if math.isinf(self.upper):
            positive = torch.nn.functional.softplus if self.softplus else torch.exp
            return self.lower + positive(unconstrained)
        return self.lower + (self.upper - self.lower) * torch.sigmoid(unconstrained)

    def unconstrain(self, value: Tensor) -> Tensor:
        """From within the bounds onto the real line."""
        if math.isinf(self.lower):
            return value if math.isinf(self.upper) else -torch.log(self.upper - value)
        if math.isinf(self.upper):
            above = value - self.lower
            return above + torch.log(-torch.expm1(-above)) if self.softplus else torch.log(above)
        return torch.log(value - self.lower) - torch.log(self.upper - value)


@dataclass(frozen=True, eq=False)
class Parameter:
    """One hyperparameter; bounds are open, and by default it is positive.

    Attributes:
        value: float64, a scalar or one number per feature (d,); a tensor keeps its autograd graph.
        lower: lower bound, excluded.
        upper: upper bound, excluded.
        name: for error messages.
        fixed: whether training leaves it as it is.
    """

    value: Tensor
    lower: float = 0.0
    upper: float = math.inf
    name: str = "parameter"
    fixed: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", _as_tensor(self.value, self.name))
        values = self.value.tolist()  # numbers of Python are compared sooner than a few of torch
        numbers = values if isinstance(values, list) else [values]
        if all(self.lower < value < self.upper and math.isfinite(value) for value in numbers):
            return
        if self.lower == 0.0 and math.isinf(self.upper):
            required = "positive and finite"
        else:
            required = f"finite and between {self.lower:g} and {self.upper:g}"
        raise InputError(f"`{self.name}` must be {required}; got {values}.")

    @property
    def transform(self) -> Transform:
        """The map between the bounds and the real line."""
        return Transform(self.lower, self.upper)

    @property
    def unconstrained(self) -> Tensor:
        """The value on the real line, differentiable."""
        return self.transform.unconstrain(self.value)

    def with_value(self, value: ParameterValue) -> Parameter:
        """The same parameter with another value."""
        return replace(self, value=_as_tensor(value, self.name))

    def times(self, factor: Tensor) -> Parameter:
        """The parameter of a positive multiple, with its value and its bounds multiplied."""
        by = factor.item()
        value, lower, upper = self.value * factor, self.lower * by, self.upper * by
        return replace(self, value=value, lower=lower, upper=upper)

    def detached(self, requires_grad: bool = False) -> Parameter:
        """A copy whose value is a fresh leaf tensor."""
        return replace(self, value=self.value.detach().clone().requires_grad_(requires_grad))


def fixed(value: ParameterValue) -> Parameter:
    """A positive value that training leaves as it is, as in `RBF(lengthscale=fixed(2.0))`."""
    return Parameter(_as_tensor(value, "value"), name="value", fixed=True)


def positive(name: str, value: ParameterValue | Parameter, *, scalar: bool = False) -> Parameter:
    """A positive parameter from whatever a user writes; a `Parameter` keeps the bounds it came with."""
    given = value if isinstance(value, Parameter) else Parameter(_as_tensor(value, name), name=name)
    parameter = replace(given, name=name)
    if scalar and parameter.value.ndim:
        raise InputError(f"`{name}` must be a single number; got shape {tuple(parameter.value.shape)}.")
    return parameter


def _as_tensor(value: object, name: str) -> Tensor:
    """Float64 of shape () or (d,), with the graph of a tensor intact."""
    try:
        tensor = value if isinstance(value, Tensor) else torch.as_tensor(np.array(value))
    except (TypeError, ValueError) as error:
        raise InputError(f"`{name}` must be a number or a sequence of numbers; got {value!r}.") from error
    if tensor.dtype == torch.bool or tensor.is_complex():
        raise InputError(f"`{name}` must be real; got {value!r}.")
    if tensor.ndim > 1 or tensor.numel() == 0:
        raise InputError(
            f"`{name}` must be one number, or one per feature of shape (d,); got shape {tuple(tensor.shape)}."
        )
    return tensor.to(torch.float64)
