"""The trace by neighbours exactly, and by probes what those leave."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from halfgp.backends import get_backend
from halfgp.hyperparameters import Hyperparameters
from halfgp.likelihood.conditioning_sets import ConditioningSets, covariance_gradient
from halfgp.likelihood.traces.base import Probes, Trace, random_signs
from halfgp.operators import Operator
from halfgp.problem import Problem

# Half the error of 50, which would take four times the probes. The factor costs a dozen passes at 8,000 rows.
NEIGHBOURS = 100


@dataclass(frozen=True)
class NeighbourTrace(Trace):
    """½ tr(A^-1 dA) = ½ d log det P + ½ E[w'dA v], with a factor P^-1 = G'G of neighbours as control variate.

    Row i of G is that of A's own inverse factor, were i and the nearest k rows before it all there is. So
    diag(G A G') = 1 whatever the hyperparameters, tr(P^-1 dA) = d log det P, and ½ tr(A^-1 dA) is that half,
    which neighbourhoods give exactly, plus ½ tr((A^-1 - P^-1) dA). For the rest, z = G^-1 ε of random signs ε
    has the covariance P, v = P^-1 z = G'ε, and A w = z - A v. It is unbiased for any neighbours, and its
    variance falls with P - A: with all earlier rows as neighbours w is zero. To solve for w, and not for
    A^-1 z, holds the tolerance of a solve to what is random.

    Order, neighbours and signs are drawn once, the neighbours in the metric of where training starts. The
    factor follows the hyperparameters: O(n k² (k + f)) time, and some 70 n k bytes. Where rows are shared
    out, every share computes its part of the factor, has all of it, and solves with it as the others do.

    Attributes:
        problem: the rows.
        sets: rows in an order, with k earlier ones each; those that are done here.
        order: (n,) all of them.
        columns: (n, k) places of those in the order; -1 where there are fewer.
        signs: ε (n, s), in the order.
    """

    problem: Problem
    sets: ConditioningSets
    order: Tensor
    columns: Tensor
    signs: Tensor

    @classmethod
    def draw(
        cls,
        hyperparameters: Hyperparameters,
        problem: Problem,
        probes: int,
        seed: int,
        neighbours: int = NEIGHBOURS,
    ) -> NeighbourTrace:
        """Order, neighbours and signs.

        Args:
            hyperparameters: in whose metric rows are near.
            problem: the rows.
            probes: how many.
            seed: of order and signs.
            neighbours: of a row.
        """
        n = problem.rows
        generator = torch.Generator().manual_seed(seed)
        signs = random_signs(n, probes, generator).to(problem.device)
        # A seed of its own, as frequencies of prior samples have one.
        another = int(torch.randint(2**62, (), generator=generator))
        sets = ConditioningSets.around(hyperparameters, problem, rows=n, neighbours=neighbours, seed=another)
        order, members = problem.gathered(sets.rows, n), problem.gathered(sets.members, n)
        places = torch.argsort(order)
        columns = torch.where(members >= 0, places[members], -1)
        return cls(problem, sets, order, columns, signs)

    def probes(self, hyperparameters: Hyperparameters, operator: Operator) -> Probes:
        """One factor and one product with A, both in double.

        Raises:
            InputError: a neighbourhood is not positive definite in double.
        """
        problem = self.problem
        none = problem.y.new_zeros(problem.rows, 1)  # of targets: what is left is the log-determinant
        found = self.sets.conditionals(hyperparameters, problem, none)
        backend = get_backend(problem.backend, problem.device, hyperparameters.kernel)
        entries = problem.gathered(found.factor, problem.rows)
        factor = backend.sparse_factor(self.columns, entries, threads=problem.threads)
        z = self._by_rows(factor.solve(self.signs))
        v = self._by_rows(factor.multiply(self.signs, transposed=True))
        # In double: what is left of z may be little more than single rounds of it.
        left = z - operator.with_precision("double").matmul(v)
        gradient = problem.totals(covariance_gradient(found, hyperparameters))
        return Probes(left, v, gradient, passes=1)

    def _by_rows(self, ordered: Tensor) -> Tensor:
        """Vectors (m, s) of the rows held here from those (n, s) in the order."""
        placed = torch.empty_like(ordered)
        placed[self.order] = ordered
        return placed[self.problem.held]
