"""Prior densities of hyperparameters, chosen by the last part of a parameter's name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from halfgp.errors import InputError
from halfgp.parameters import Parameter


@runtime_checkable
class Prior(Protocol):
    """Whatever has a log density. The sum over what `log_density` returns is a parameter's log prior."""

    def log_density(self, value: Tensor) -> Tensor:
        """Of a positive parameter's value, () or (d,): of each number in it or of all together."""
        ...


def _is_prior(value: object) -> bool:
    """Not a class, which has the method but no numbers."""
    return isinstance(value, Prior) and not isinstance(value, type)


@dataclass(frozen=True)
class Gamma:
    """The density b^a x^(a-1) exp(-b x) / Γ(a) on the positive numbers.

    Attributes:
        concentration: a.
        rate: b.
    """

    concentration: float
    rate: float

    def __post_init__(self) -> None:
        if not (0 < self.concentration < math.inf and 0 < self.rate < math.inf):
            raise InputError(
                "A `Gamma` prior needs a positive concentration and rate;"
                f" got {self.concentration!r} and {self.rate!r}."
            )

    def log_density(self, value: Tensor) -> Tensor:
        """Of each value, differentiable."""
        a, b = self.concentration, self.rate
        return a * math.log(b) - math.lgamma(a) + (a - 1) * torch.log(value) - b * value


@dataclass(frozen=True)
class LogNormal:
    """The density on the positive numbers under which log x is normal, by where it is highest.

    Relative to the mode the log density is -½ (log(x / mode) / spread)²: a factor of e^spread up or down
    costs half a nat. The mean of log x is log(mode) + spread².

    Attributes:
        mode: the most probable value.
        spread: standard deviation of log x.
    """

    mode: float
    spread: float

    def __post_init__(self) -> None:
        if not (0 < self.mode < math.inf and 0 < self.spread < math.inf):
            raise InputError(
                "A `LogNormal` prior needs a positive mode and spread;"
                f" got {self.mode!r} and {self.spread!r}."
            )

    def log_density(self, value: Tensor) -> Tensor:
        """Of each value, differentiable."""
        distance = (torch.log(value) - math.log(self.mode)) / self.spread
        highest = -math.log(self.mode * self.spread * math.sqrt(2 * math.pi)) - 0.5 * self.spread**2
        return highest - 0.5 * distance.square()


@dataclass(frozen=True)
class Normal:
    """The normal density, of a positive parameter as far as it goes: its part below zero is left out.

    Attributes:
        mean: where it is highest.
        deviation: its standard deviation.
    """

    mean: float
    deviation: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.mean) and 0 < self.deviation < math.inf):
            raise InputError(
                "A `Normal` prior needs a finite mean and a positive deviation;"
                f" got {self.mean!r} and {self.deviation!r}."
            )

    def log_density(self, value: Tensor) -> Tensor:
        """Of each value, differentiable."""
        above = 0.5 * math.erfc(-self.mean / (self.deviation * math.sqrt(2.0)))
        highest = -math.log(above * self.deviation * math.sqrt(2 * math.pi))
        return highest - 0.5 * ((value - self.mean) / self.deviation).square()


@dataclass(frozen=True)
class HalfCauchy:
    """The density 2 / (π scale (1 + (x / scale)²)) on the positive numbers: half of it is below the scale.

    Attributes:
        scale: the median.
    """

    scale: float

    def __post_init__(self) -> None:
        if not 0 < self.scale < math.inf:
            raise InputError(f"A `HalfCauchy` prior needs a positive scale; got {self.scale!r}.")

    def log_density(self, value: Tensor) -> Tensor:
        """Of each value, differentiable."""
        return math.log(2.0 / (math.pi * self.scale)) - torch.log1p((value / self.scale).square())


@dataclass(frozen=True)
class Overall:
    """A density of one number for all lengthscales of a kernel, so that its weight is the same for any d.

    That number is (Σ 1/l²)^(-1/2), the lengthscale along the diagonal of all features: two random rows of
    standardised features are √2 / it lengthscales apart. One lengthscale is itself; d equal ones l give
    l / √d; and a feature that does not matter, with a long lengthscale, adds nothing and costs nothing.
    Ratios of lengthscales are left free.

    Attributes:
        density: of that number.
    """

    density: Prior

    def __post_init__(self) -> None:
        if not _is_prior(self.density) or isinstance(self.density, Overall):
            raise InputError(
                f"An `Overall` prior needs a density such as LogNormal(1.0, 2.0); got {self.density!r}."
            )

    def log_density(self, value: Tensor) -> Tensor:
        """Of all values together (a scalar), differentiable."""
        return self.density.log_density(value.pow(-2).sum().rsqrt())


Priors = Mapping[str, Prior]

# Of standardised rows. Scales of the function are nearly free: a factor of 50 from the mode costs two nats,
# which few rows outweigh. The noise of a function that is smooth to its rows is not left to run to its floor:
# a factor of 3 costs half a nat, one of 100 eleven.
WEAK: Priors = {
    "noise": LogNormal(0.01, 1.0),
    "outputscale": LogNormal(1.0, 2.0),
    "lengthscale": Overall(LogNormal(1.0, 2.0)),
}
PAPER: Priors = {
    "noise": Gamma(1.1, 0.05),
    "outputscale": Gamma(2.0, 0.15),
    "lengthscale": Gamma(3.0, 6.0),
}
NAMED: Mapping[str, Priors] = {"weak": WEAK, "paper": PAPER}


def as_priors(priors: str | Priors | None) -> Priors:
    """Those of a name in `NAMED`, none for None, or a mapping from names such as "lengthscale" as it is."""
    if priors is None:
        return {}
    if isinstance(priors, str) and priors in NAMED:
        return NAMED[priors]
    if not isinstance(priors, Mapping) or not all(map(_is_prior, priors.values())):
        raise InputError(
            '`priors` must be "weak", "paper", None, or a mapping such as'
            f' {{"noise": LogNormal(0.01, 2.0)}}; got {priors!r}.'
        )
    return priors


def check_names(priors: Priors, parameters: Mapping[str, Parameter]) -> None:
    """Raise unless every prior has a parameter to go with, and only positive ones."""
    known = {name.rpartition(".")[2]: p for name, p in parameters.items() if p.lower >= 0.0}
    for name in priors:
        if name not in known:
            raise InputError(
                f"`priors` must be for positive parameters of the model, {', '.join(known)}; got {name!r}."
            )


def log_prior(parameters: Mapping[str, Parameter], priors: Priors) -> Tensor:
    """The logarithm of the joint density (a scalar), differentiable in the values."""
    total = torch.zeros((), dtype=torch.float64)
    for name, parameter in parameters.items():
        prior = priors.get(name.rpartition(".")[2])
        if prior is not None:
            total = total + prior.log_density(parameter.value).sum()
    return total
