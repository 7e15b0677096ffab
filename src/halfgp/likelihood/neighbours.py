"""The likelihood of rows that are each given a few nearest earlier ones, and its exact gradient."""

from __future__ import annotations

import math
from dataclasses import dataclass

from halfgp.hyperparameters import Hyperparameters
from halfgp.likelihood.base import Evaluated, add_prior
from halfgp.likelihood.conditioning_sets import ConditioningSets, covariance_gradient
from halfgp.priors import Priors
from halfgp.problem import Problem


@dataclass(frozen=True)
class NeighbourLikelihood:
    """Σ log p(y_i | y_c(i)), c(i) being the nearest of the rows before i in a random order (Vecchia's).

    Every density is exact, and with all earlier rows in c(i) so is their product.

    Attributes:
        problem: all rows.
        sets: the rows whose densities are taken, and what each is given.
        priors: of the hyperparameters.
    """

    problem: Problem
    sets: ConditioningSets
    priors: Priors

    @classmethod
    def around(
        cls,
        hyperparameters: Hyperparameters,
        problem: Problem,
        *,
        rows: int,
        neighbours: int,
        seed: int,
        priors: Priors,
    ) -> NeighbourLikelihood:
        """With the neighbours in the metric of the hyperparameters, of so many random rows among all."""
        sets = ConditioningSets.around(hyperparameters, problem, rows=rows, neighbours=neighbours, seed=seed)
        return cls(problem, sets, priors)

    def __call__(self, hyperparameters: Hyperparameters) -> Evaluated:
        """Minus the log density per row and target, the prior weighed as against all rows, and its gradient.

        O(r k² (k + f)) time.

        Raises:
            InputError: a neighbourhood is not positive definite in double.
        """
        y, rows = self.problem.y, self.sets.count
        found = self.sets.conditionals(hyperparameters, self.problem, hyperparameters.centred(y))
        gradient = covariance_gradient(found, hyperparameters)
        if hyperparameters.mean is not None:
            gradient["mean"] = -(found.residuals * found.factor.sum(dim=1)[:, None]).sum(dim=0)
        q = y.shape[1]
        gradient["loss"] = 0.5 * found.residuals.square().sum() + q * found.deviations.log().sum()
        gradient = self.problem.totals(gradient)
        loss = float(gradient.pop("loss")) + 0.5 * rows * q * math.log(2.0 * math.pi)
        return add_prior(
            Evaluated(loss, gradient), hyperparameters, self.priors, rows / self.problem.rows, rows * q
        )
