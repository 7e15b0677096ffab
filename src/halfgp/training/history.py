"""One record for every step of a fit."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from halfgp.hyperparameters import Hyperparameters


@dataclass(frozen=True)
class Step:
    """What one evaluation of the likelihood showed.

    Attributes:
        stage: "subset", "neighbours", "cholesky" or "cg".
        index: from 0 within the stage.
        loss: minus the log posterior density, per row and target; in stage "cg" estimated.
        loss_error: its standard error; 0 where it is exact.
        hyperparameters: values by name.
        gradient_norm: largest component on the real line.
        passes: over K, in this step.
        residual: largest true relative residual of its solve; 0 by Cholesky.
        precision: the rung of the solve.
        seconds: of this step.
        memory: peak of the process so far, bytes.
        note: what went wrong and what was done about it, or "".
    """

    stage: str
    index: int
    loss: float
    loss_error: float
    hyperparameters: dict[str, Any]
    gradient_norm: float
    passes: int
    residual: float
    precision: str
    seconds: float
    memory: int
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; what is not finite is None."""
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in asdict(self).items()
        }


def values_of(hyperparameters: Hyperparameters) -> dict[str, Any]:
    """Plain numbers and lists by name."""
    return {name: p.value.detach().tolist() for name, p in hyperparameters.named_parameters().items()}
