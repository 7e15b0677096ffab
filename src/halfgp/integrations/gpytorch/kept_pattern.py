"""Landmarks and neighbours that serve for one step of training after another."""

from __future__ import annotations

from halfgp.operators.bound import BoundKernel
from halfgp.preconditioners import LandmarksAndNeighbours, Pattern, SparseInverseCholesky, conditioned_on

RECIPE = SparseInverseCholesky(neighbours=30, landmarks=64)


class KeptPattern:
    """The last pattern that was found: to search for it takes twice as long as to condition on it.

    It belongs to a kernel of GPyTorch, which lives as long as its model.
    """

    def __init__(self) -> None:
        self._last: Pattern | None = None

    def preconditioner(self, operator: BoundKernel) -> LandmarksAndNeighbours:
        """Of K + noise, with the pattern that is kept where that serves, and with a new one where not."""
        pattern = self._last
        if pattern is None or not pattern.serves(operator):
            pattern = self._last = RECIPE.pattern(operator)
        return conditioned_on(operator, pattern)
