"""The likelihood of neighbourhoods with the gradient of the whole one: what exact steps go down by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from halfgp.hyperparameters import Hyperparameters
from halfgp.likelihood.base import Evaluated
from halfgp.likelihood.neighbours import NeighbourLikelihood


@dataclass(frozen=True)
class CorrectedLikelihood:
    """V(θ) + c·(θ - θ₀), V being that of neighbourhoods and c what the whole one's gradient at θ₀ is off by.

    A gradient on all rows takes a solve, one of neighbourhoods a moment. Near θ₀ the two differ by little but
    that slope, so that one solve is enough for many iterations of a search.

    Attributes:
        neighbours: V.
        origin: θ₀.
        slopes: c by name, in values.
    """

    neighbours: NeighbourLikelihood
    origin: Hyperparameters
    slopes: Mapping[str, Tensor]

    @classmethod
    def at(
        cls, origin: Hyperparameters, gradient: Mapping[str, Tensor], neighbours: NeighbourLikelihood
    ) -> CorrectedLikelihood:
        """With that gradient, by name, of all rows at the origin.

        Raises:
            InputError: a neighbourhood is not positive definite in double.
        """
        known = neighbours(origin).gradient
        return cls(neighbours, origin, {name: gradient[name].cpu() - g for name, g in known.items()})

    def __call__(self, hyperparameters: Hyperparameters) -> Evaluated:
        """The loss per row and target, and its gradient.

        Raises:
            InputError: a neighbourhood is not positive definite in double.
        """
        found, loss = self.neighbours(hyperparameters), 0.0
        here, origin = hyperparameters.named_parameters(), self.origin.named_parameters()
        for name, slope in self.slopes.items():
            loss += float((slope * (here[name].value - origin[name].value).detach()).sum())
        return Evaluated(
            found.loss + loss, {name: g + self.slopes[name] for name, g in found.gradient.items()}
        )
