"""First-order optimisers whose whole state is a handful of tensors, so that a fit can be resumed exactly."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import torch
from torch import Tensor


class Optimiser(ABC):
    """Takes a vector and its gradient (p,), gives the next vector."""

    @abstractmethod
    def step(self, vector: Tensor, gradient: Tensor) -> Tensor:
        """The next vector (p,)."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """All that the next step depends on."""

    @abstractmethod
    def restore(self, state: dict[str, Tensor]) -> None:
        """Take a state back."""


@dataclass
class Adam(Optimiser):
    """Kingma and Ba's method, with the usual constants.

    Attributes:
        learning_rate: about how far a coordinate moves in a step.
        first: running mean of the gradients (p,).
        second: running mean of their squares (p,).
        count: steps taken.
    """

    learning_rate: float
    first: Tensor | None = None
    second: Tensor | None = None
    count: int = 0

    def step(self, vector: Tensor, gradient: Tensor) -> Tensor:
        """Move every coordinate by about the learning rate."""
        self.count += 1
        first = torch.zeros_like(gradient) if self.first is None else self.first
        second = torch.zeros_like(gradient) if self.second is None else self.second
        self.first = torch.lerp(gradient, first, 0.9)
        self.second = torch.lerp(gradient.square(), second, 0.999)
        mean = self.first / (1 - 0.9**self.count)
        spread = (self.second / (1 - 0.999**self.count)).sqrt()
        return vector - self.learning_rate * mean / (spread + 1e-8)

    def state(self) -> dict[str, Tensor]:
        """Moments and count."""
        if self.first is None or self.second is None:
            return {}
        return {"first": self.first, "second": self.second, "count": torch.tensor(self.count)}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take them back."""
        if state:
            self.first, self.second = state["first"], state["second"]
            self.count = int(state["count"])


@dataclass
class LBFGS(Optimiser):
    """Limited-memory BFGS by gradients alone: the value of the likelihood is never asked for.

    Frozen probes make the gradient a function, so that its differences are curvatures. Without values there
    is no line search; steps are at most `longest` in any coordinate instead, for hyperparameters live on a
    logarithmic scale.

    Attributes:
        longest: a step, in any coordinate.
        pairs: so many of the latest are remembered.
        moves: from vector to vector, (p,) each.
        turns: of the gradient along each move, (p,).
        last: vector and gradient (p,) of the last step.
    """

    longest: float = 0.5
    pairs: int = 8
    moves: list[Tensor] = field(default_factory=list)
    turns: list[Tensor] = field(default_factory=list)
    last: tuple[Tensor, Tensor] | None = None

    def step(self, vector: Tensor, gradient: Tensor) -> Tensor:
        """One quasi-Newton step."""
        if self.last is not None:
            move, turn = vector - self.last[0], gradient - self.last[1]
            if float(move @ turn) > 1e-10 * float(turn @ turn):  # only curvature that is positive
                self.moves, self.turns = (
                    [*self.moves, move][-self.pairs :],
                    [*self.turns, turn][-self.pairs :],
                )
        self.last = (vector, gradient)
        direction = -self._inverse_times(gradient)
        if not float(direction @ gradient) < 0:
            direction = -gradient
        if not self.moves:  # nothing is known of the scale yet
            direction = direction * (0.1 / max(float(direction.abs().max()), 1e-300))
        return vector + direction * min(1.0, self.longest / max(float(direction.abs().max()), 1e-300))

    def _inverse_times(self, gradient: Tensor) -> Tensor:
        """The inverse Hessian as known so far, times the gradient, by two loops over the pairs."""
        q = gradient.clone()
        factors = []
        for move, turn in zip(reversed(self.moves), reversed(self.turns), strict=True):
            factor = (move @ q) / (move @ turn)
            factors.append(factor)
            q = q - factor * turn
        if self.moves:
            q = q * ((self.moves[-1] @ self.turns[-1]) / (self.turns[-1] @ self.turns[-1]))
        for move, turn, factor in zip(self.moves, self.turns, reversed(factors), strict=True):
            q = q + move * (factor - (turn @ q) / (move @ turn))
        return q

    def state(self) -> dict[str, Tensor]:
        """Pairs and the last vector."""
        found: dict[str, Tensor] = {}
        if self.last is not None:
            found |= {"point": self.last[0], "gradient": self.last[1]}
        if self.moves:
            found |= {"moves": torch.stack(self.moves), "turns": torch.stack(self.turns)}
        return found

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take them back."""
        if "point" in state:
            self.last = (state["point"], state["gradient"])
        if "moves" in state:
            self.moves, self.turns = list(state["moves"]), list(state["turns"])


def make_optimiser(name: str, learning_rate: float) -> Optimiser:
    """By name; the learning rate bounds a step of either, tenfold for L-BFGS, which knows curvature."""
    return Adam(learning_rate) if name == "adam" else LBFGS(longest=min(10 * learning_rate, math.log(4.0)))
