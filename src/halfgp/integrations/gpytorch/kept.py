"""What one step of training leaves to the next: landmarks and neighbours, and weights to start from."""

from __future__ import annotations

from torch import Tensor

from halfgp.operators.bound import BoundKernel
from halfgp.preconditioners import (
    AutomaticPreconditioner,
    LandmarksAndNeighbours,
    Pattern,
    SparseInverseCholesky,
    conditioned_on,
)
from halfgp.preconditioners.automatic import entries_in, group_of

FEW = SparseInverseCholesky(
    neighbours=16, landmarks=64, group=16
)  # conditioned on in the time of one or two products
# Variance over noise from which on more of both repay: twice the passes are saved at 30, and none at 6 (pol
# and Hartmann's function, some 10,000 rows each).
QUIET = 15.0


class Kept:
    """The last pattern that was found, which takes twice as long as to condition on it, and the last weights.

    It belongs to a kernel of GPyTorch, which lives as long as its model.

    Attributes:
        weights: (n, q) that targets were solved to last, or None.
    """

    def __init__(self) -> None:
        self.weights: Tensor | None = None
        self._last: tuple[SparseInverseCholesky, Pattern] | None = None

    def start(self, r: Tensor) -> Tensor | None:
        """Where to solve for r (n, q) from: the last weights, if they may be of the same rows."""
        return self.weights if self.weights is not None and self.weights.shape == r.shape else None

    def preconditioner(self, operator: BoundKernel) -> LandmarksAndNeighbours:
        """Of K + noise, with the pattern that is kept where that serves, and with a new one where not."""
        recipe, held_in = _recipe(operator), entries_in(operator, operator.variances())
        if self._last is not None:
            kept, pattern = self._last
            if kept.landmarks >= recipe.landmarks and pattern.serves(operator):
                return conditioned_on(operator, pattern, held_in)
        pattern = recipe.pattern(operator)
        self._last = recipe, pattern
        return conditioned_on(operator, pattern, held_in)


def _recipe(operator: BoundKernel) -> SparseInverseCholesky:
    """As much as repays at the noise that there is."""
    noise = operator.nugget.double()
    if float((operator.diagonal().double() / noise).mean()) - 1.0 <= QUIET:
        return FEW
    landmarks, neighbours = AutomaticPreconditioner().counts(operator)
    return SparseInverseCholesky(neighbours, max(landmarks, 2 * FEW.landmarks), group=group_of(neighbours))
