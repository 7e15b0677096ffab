"""What training climbs: a loss with its gradient, and the prior that is part of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from halfgp.backends.chain_rule import pull_back
from halfgp.hyperparameters import Hyperparameters
from halfgp.parameters import Parameter
from halfgp.priors import Priors, log_prior


class Evaluated(NamedTuple):
    """A loss at some hyperparameters, and its gradient in every value, by name."""

    loss: float
    gradient: Mapping[str, Tensor]


def add_prior(
    found: Evaluated, hyperparameters: Hyperparameters, priors: Priors, weight: float, count: int
) -> Evaluated:
    """Minus the log posterior density, per row and target, from minus the log likelihood.

    Args:
        found: of all rows and targets.
        hyperparameters: where.
        priors: of the hyperparameters.
        weight: of the prior; n / N on n of N rows, so that it weighs what it weighs against all of them.
        count: rows times targets.
    """
    named = hyperparameters.named_parameters().items()
    leaves = {name: parameter.detached(requires_grad=True) for name, parameter in named}
    with torch.enable_grad():
        prior = weight * log_prior(leaves, priors)
    by_prior = gradient_by_name(prior, leaves, torch.ones_like(prior))
    # Parameters, and so gradients in them, are on the CPU, wherever the rows are.
    gradient = {name: (g.cpu() - by_prior[name]) / count for name, g in found.gradient.items()}
    return Evaluated((found.loss - float(prior.detach())) / count, gradient)


def gradient_by_name(output: Tensor, parameters: Mapping[str, Parameter], seed: Tensor) -> dict[str, Tensor]:
    """Of <seed, output> in every parameter, by name; zero where the output does not depend on it."""
    leaves = {name: parameter.value for name, parameter in parameters.items()}
    return dict(zip(leaves, pull_back([output], [seed], list(leaves.values())), strict=True))
