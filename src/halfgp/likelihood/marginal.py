"""The log marginal likelihood and its gradient at any hyperparameters, without priors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from halfgp.hyperparameters import Hyperparameters
from halfgp.likelihood.dense import dense_likelihood
from halfgp.likelihood.krylov import krylov_terms
from halfgp.preconditioners import SparseInverseCholesky
from halfgp.problem import Problem

RECIPE = SparseInverseCholesky(neighbours=30, landmarks=64)
PROBES, ITERATIONS = 16, 100


@dataclass(frozen=True)
class MarginalLikelihood:
    """At some hyperparameters.

    Attributes:
        value: the logarithm, of all rows and targets.
        standard_error: of the estimate; zero by a factor.
        gradient: in every value, by name.
    """

    value: float
    standard_error: float
    gradient: Mapping[str, Tensor]


def marginal_likelihood(
    hyperparameters: Hyperparameters, problem: Problem, *, dense: bool, seed: int = 0
) -> MarginalLikelihood:
    """By a Cholesky factor in double, or by one Lanczos process.

    Args:
        hyperparameters: where.
        problem: the rows.
        dense: which of the two.
        seed: of the probes.
    """
    n, q = problem.y.shape
    if dense:
        found = dense_likelihood(
            hyperparameters, problem.x, problem.y, fixed_noise=problem.fixed_noise, priors={}
        )
        gradient = {name: -g * n * q for name, g in found.gradient.items()}
        return MarginalLikelihood(-found.loss * n * q, 0.0, gradient)
    system = problem.system(hyperparameters, "auto")
    terms = krylov_terms(
        system,
        RECIPE,
        hyperparameters.centred(problem.y),
        probes=PROBES,
        max_iterations=ITERATIONS,
        seed=seed,
    )
    value = -0.5 * (float(terms.quadratic.sum()) + q * terms.log_det + n * q * math.log(2 * math.pi))
    left = torch.cat([0.5 * terms.solutions, terms.left * (-0.5 * q / PROBES)], dim=1)
    right = torch.cat([terms.solutions, terms.right], dim=1)
    inner, _, _ = system.bilinear_gradient(left, right)
    gradient = {f"kernel.{name}": g for name, g in inner.items()}
    if hyperparameters.noise is not None:
        gradient["noise"] = system.dot(left, right).sum()
    if hyperparameters.mean is not None:
        gradient["mean"] = terms.solutions.sum(dim=0)
    return MarginalLikelihood(value, 0.5 * q * terms.standard_error, gradient)
