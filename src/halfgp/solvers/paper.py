"""The paper's conjugate gradients in 16 bits: Algorithm 2 as corrected, and the standard one that fails."""

from __future__ import annotations

from halfgp.precision import Precision
from halfgp.solvers.base import Status
from halfgp.solvers.iteration import Iteration
from halfgp.solvers.recurrence import Arithmetic


class PaperIteration(Iteration):
    """A solve on one 16-bit rung in which nothing is repaired.

    It ends where the recurrence says. The true residuals of its lowest iterates tell what that was worth.
    """

    def _arithmetic(self, precision: Precision) -> Arithmetic:
        standard = self._options.inner_product == "direct" and self._options.window == 0
        return Arithmetic.of_paper(precision, standard)

    def _prepare(self, anew: bool) -> None:
        """Nothing is watched, and there is one rung."""

    def _decide(self, event: str) -> None:
        self._iterates = self._low.clone()
        self._look()
        left = self._open()
        self._lowest[left] = self._best.relative[left]  # what the recurrence promised is known now
        if event in ("curvature", "nonfinite"):
            if len(left):
                self._broken(event)
        else:
            self._settle(left, Status.MAX_ITERATIONS if event == "limit" else Status.STAGNATED)
