"""The likelihood of rows that are each given a few nearest earlier ones, and its exact gradient."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from halfgp.backends import get_backend
from halfgp.backends.conditionals import Neighbourhoods
from halfgp.errors import InputError
from halfgp.hyperparameters import Hyperparameters
from halfgp.likelihood.base import Evaluated, add_prior
from halfgp.nearest import NearestSearch, metric
from halfgp.precision import Precision
from halfgp.priors import Priors
from halfgp.problem import Problem


@dataclass(frozen=True)
class NeighbourLikelihood:
    """Σ log p(y_i | y_c(i)), c(i) being the nearest of the rows before i in a random order (Vecchia's).

    Every density is exact, and with all earlier rows in c(i) so is their product. Early rows have far
    neighbours and late ones near, so that lengthscales of every size are seen.

    Attributes:
        problem: all rows.
        rows: (r,) whose densities are taken.
        members: (r, k) rows that each is given; -1 where it has fewer.
        priors: of the hyperparameters.
    """

    problem: Problem
    rows: Tensor
    members: Tensor
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
        n = problem.rows
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(n, generator=generator)
        positions = torch.randperm(n, generator=generator)[:rows].sort().values
        chosen = order[positions]
        search = NearestSearch.among_earlier(metric(hyperparameters.kernel, problem.x), order, chosen)
        backend = get_backend(problem.backend, problem.x.device)
        members = backend.nearest(search, min(neighbours, n - 1), threads=problem.threads)
        return cls(problem, chosen, members, priors)

    def __call__(self, hyperparameters: Hyperparameters) -> Evaluated:
        """Minus the log density per row and target, the prior weighed as against all rows, and its gradient.

        O(r k² (k + f)) time.

        Raises:
            InputError: a neighbourhood is not positive definite in double.
        """
        problem = self.problem
        q, noise = problem.y.shape[1], hyperparameters.diagonal_noise(problem.fixed_noise)
        with torch.no_grad():
            diagonal = hyperparameters.kernel.diagonal(problem.x) + noise
        of = Neighbourhoods(problem.x, self.rows, self.members, diagonal, hyperparameters.centred(problem.y))
        backend = get_backend(problem.backend, problem.x.device, hyperparameters.kernel)
        found = backend.conditionals(
            hyperparameters.kernel,
            of,
            precision=Precision.resolve("double"),
            threads=problem.threads,
            gradient=True,
        )
        if not bool(found.deviations.isfinite().all()):
            raise InputError(
                f"K + noise is not positive definite: the noise, {float(noise.min()):.1e}, is too small for"
                " double. Raise `noise_floor`."
            )
        assert found.gradient is not None
        assert found.by_diagonal is not None
        gradient = {f"kernel.{name}": g for name, g in found.gradient.items()}
        if hyperparameters.noise is not None:
            gradient["noise"] = found.by_diagonal.sum()
        if hyperparameters.mean is not None:
            gradient["mean"] = -(found.residuals * found.factor.sum(dim=1)[:, None]).sum(dim=0)
        count = len(self.rows) * q
        loss = 0.5 * float(found.residuals.square().sum()) + q * float(found.deviations.log().sum())
        loss += 0.5 * count * math.log(2.0 * math.pi)
        return add_prior(
            Evaluated(loss, gradient), hyperparameters, self.priors, len(self.rows) / problem.rows, count
        )
