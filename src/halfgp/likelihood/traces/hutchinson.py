"""The trace by random signs, as in the paper's pseudo-loss."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from halfgp.hyperparameters import Hyperparameters
from halfgp.likelihood.traces.base import Probes, Trace, random_signs
from halfgp.operators import Operator
from halfgp.problem import Problem


@dataclass(frozen=True)
class HutchinsonTrace(Trace):
    """tr(A^-1 dA) = E[u'dA z], u = A^-1 z, of random signs z.

    Attributes:
        signs: z (m, s), of the rows held here.
    """

    signs: Tensor

    @classmethod
    def draw(
        cls, hyperparameters: Hyperparameters, problem: Problem, probes: int, seed: int
    ) -> HutchinsonTrace:
        """The signs, which no hyperparameters change."""
        generator = torch.Generator().manual_seed(seed)
        return cls(random_signs(problem.rows, probes, generator)[problem.held])

    def probes(self, hyperparameters: Hyperparameters, operator: Operator) -> Probes:
        """The signs, twice."""
        return Probes(self.signs, self.signs)
