"""Rows in a random order, each with a few nearest earlier ones: what Vecchia's densities are given."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from halfgp.backends import get_backend
from halfgp.backends.conditionals import Conditionals, Neighbourhoods
from halfgp.errors import InputError
from halfgp.hyperparameters import Hyperparameters
from halfgp.nearest import NearestSearch, metric
from halfgp.precision import Precision
from halfgp.problem import Problem


@dataclass(frozen=True)
class ConditioningSets:
    """Rows and, for each, the nearest of those before it in a random order of all rows.

    Early rows have far neighbours and late ones near, so that lengthscales of every size are seen.

    Attributes:
        rows: (r,) in their order; where rows are shared out, those that are done here.
        members: (r, k) rows that each is given; -1 where it has fewer.
        count: of the rows that are done anywhere.
    """

    rows: Tensor
    members: Tensor
    count: int

    @classmethod
    def around(
        cls, hyperparameters: Hyperparameters, problem: Problem, *, rows: int, neighbours: int, seed: int
    ) -> ConditioningSets:
        """Of so many random rows, with their neighbours among all in the metric of the hyperparameters."""
        n = problem.rows
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(n, generator=generator).to(problem.device)
        positions = torch.randperm(n, generator=generator)[:rows].sort().values.to(order.device)
        chosen = order[positions][problem.part.of(len(positions))]
        search = NearestSearch.among_earlier(metric(hyperparameters.kernel, problem.points), order, chosen)
        backend = get_backend(problem.backend, problem.device)
        members = backend.nearest(search, min(neighbours, n - 1), threads=problem.threads)
        return cls(chosen, members, len(positions))

    def conditionals(
        self, hyperparameters: Hyperparameters, problem: Problem, targets: Tensor
    ) -> Conditionals:
        """The densities of targets (n, q) of all rows, with their gradient; O(r k² (k + f)) time, in double.

        Raises:
            InputError: a neighbourhood is not positive definite in double.
        """
        noise = hyperparameters.diagonal_noise(problem.fixed_noise)
        with torch.no_grad():
            diagonal = hyperparameters.kernel.diagonal(problem.x) + noise
        backend = get_backend(problem.backend, problem.device, hyperparameters.kernel)
        found = backend.conditionals(
            hyperparameters.kernel,
            Neighbourhoods(problem.points, self.rows, self.members, diagonal, targets),
            precision=Precision.resolve("double"),
            threads=problem.threads,
            gradient=True,
        )
        if int(problem.total((~found.deviations.isfinite()).sum())):
            raise InputError(
                f"K + noise is not positive definite: the noise, {float(noise.min()):.1e}, is too small for"
                " double. Raise `noise_floor`."
            )
        return found


def covariance_gradient(found: Conditionals, hyperparameters: Hyperparameters) -> dict[str, Tensor]:
    """Of the loss, in all that K + noise depends on, under the names of `Hyperparameters`."""
    assert found.gradient is not None
    assert found.by_diagonal is not None
    gradient = {f"kernel.{name}": g for name, g in found.gradient.items()}
    if hyperparameters.noise is not None:
        gradient["noise"] = found.by_diagonal.sum()
    return gradient
