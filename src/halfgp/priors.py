"""Prior densities of hyperparameters, chosen by the last part of a parameter's name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from halfgp.errors import InputError
from halfgp.parameters import Parameter


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


Priors = Mapping[str, Gamma]

PAPER: Priors = {
    "noise": Gamma(1.1, 0.05),
    "outputscale": Gamma(2.0, 0.15),
    "lengthscale": Gamma(3.0, 6.0),
}


def as_priors(priors: str | Priors | None) -> Priors:
    """The paper's Gammas for "paper", none for None, or a mapping from names such as "lengthscale"."""
    if priors is None:
        return {}
    if priors == "paper":
        return PAPER
    if not isinstance(priors, Mapping) or not all(isinstance(p, Gamma) for p in priors.values()):
        raise InputError(
            '`priors` must be "paper", None, or a mapping such as {"lengthscale": Gamma(3.0, 6.0)};'
            f" got {priors!r}."
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
