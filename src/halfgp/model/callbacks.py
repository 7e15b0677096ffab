"""What a fit tells while it runs: one event after the other, to whoever was passed as `callbacks`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from torch import Tensor

from halfgp.errors import InputError
from halfgp.hyperparameters import Hyperparameters
from halfgp.training import Step

logger = logging.getLogger("halfgp")


@dataclass(frozen=True)
class SolveIteration:
    """One iteration of the solve that predictions rest on, which may take longer than the training.

    Attributes:
        iteration: from 1, within one solve.
        residual: relative, of the target that is farthest from what is wanted of it.
        wanted: what it is solved to, at least: the solve goes on until its error is small, too.
    """

    iteration: int
    residual: float
    wanted: float


FitEvent: TypeAlias = Step | SolveIteration
FitCallback: TypeAlias = Callable[[FitEvent], object]


class Audience:
    """The callbacks of one fit; what one of them raises ends it.

    Args:
        callbacks: each is called as callback(event), in their order.
    """

    def __init__(self, callbacks: Sequence[FitCallback]) -> None:
        if not isinstance(callbacks, Sequence) or not all(map(callable, callbacks)):
            raise InputError(f"`callbacks` must be a sequence of functions of one event; got {callbacks!r}.")
        self._callbacks = tuple(callbacks)

    def tell(self, event: FitEvent) -> None:
        """Call them all."""
        for callback in self._callbacks:
            callback(event)

    def see_step(self, step: Step, hyperparameters: Hyperparameters) -> None:
        """As training reports a step."""
        logger.info("%s step %d: loss %.4f", step.stage, step.index, step.loss)
        self.tell(step)

    def see_iteration(self, iteration: int, residuals: Tensor, wanted: Tensor) -> None:
        """As a solve reports an iteration, with residuals (q,), and those that are wanted."""
        worst = int((residuals / wanted).argmax())
        self.tell(SolveIteration(iteration, float(residuals[worst]), float(wanted[worst])))
