"""What an estimator of a trace gives: right-hand sides to solve with, and what their solutions meet."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from halfgp.hyperparameters import Hyperparameters
from halfgp.operators import Operator
from halfgp.problem import Problem


@dataclass(frozen=True)
class Probes:
    """½ tr(A^-1 dA) = known + the mean over probes of ½ u'dA v, u = A^-1 b, at some hyperparameters.

    Attributes:
        sides: b (m, s), of the rows held here.
        partners: v (m, s), or None where they are the solutions u themselves.
        known: the part that is exact, by name; zero where it has no name.
        passes: products with A that these took.
    """

    sides: Tensor
    partners: Tensor | None = None
    known: Mapping[str, Tensor] = field(default_factory=dict)
    passes: int = 0


class Trace(ABC):
    """An unbiased estimator whose randomness is frozen, so that what it gives moves smoothly."""

    @classmethod
    @abstractmethod
    def draw(cls, hyperparameters: Hyperparameters, problem: Problem, probes: int, seed: int) -> Trace:
        """Draw what is random, by seed: for all rows the same numbers, wherever they are held.

        Args:
            hyperparameters: where training starts.
            problem: the rows.
            probes: how many.
            seed: of everything.
        """

    @abstractmethod
    def probes(self, hyperparameters: Hyperparameters, operator: Operator) -> Probes:
        """Those for K + noise, which is the operator, at the hyperparameters."""


def random_signs(rows: int, probes: int, generator: torch.Generator) -> Tensor:
    """(rows, probes) of -1 and 1, float64."""
    return torch.randint(0, 2, (rows, probes), generator=generator).double() * 2 - 1
