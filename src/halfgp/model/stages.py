"""What each stage of a fit is told of the settings."""

from __future__ import annotations

from dataclasses import replace

from halfgp.choices import final_rank, preconditioner_bytes
from halfgp.preconditioners import AutomaticPreconditioner
from halfgp.prediction import Conditioning
from halfgp.settings import Settings, as_bytes
from halfgp.training import Training


def training_of(settings: Settings) -> Training:
    """What of the settings is about training."""
    return Training(
        method=settings.method,
        preconditioner=settings.solve.preconditioner,
        rank=settings.solve.rank,
        seed=settings.random_state,
        **settings.training.as_dict(),
    )


def compared(settings: Settings) -> dict[str, str]:
    """What all ranks of a job have to have alike; each may have a device and files of its own."""
    options = settings.as_dict()
    return {
        f"`{name}`": repr(value) for name, value in options.items() if name not in ("device", "checkpoint")
    }


def conditioning_of(
    settings: Settings, method: str, rows: int, calibrate: bool = False, machine: int | None = None
) -> Conditioning:
    """What of the settings is about the last solve and variances, on a machine with so many bytes."""
    # The automatic preconditioner has a rule of its own, but for what memory allows.
    limit, by_rule = as_bytes(settings.memory_limit), settings.solve.preconditioner == "auto"
    recipe = training_of(settings).recipe(None if by_rule else final_rank(rows, limit, machine))
    if isinstance(recipe, AutomaticPreconditioner):
        recipe = replace(recipe, memory=preconditioner_bytes(limit, machine))
    return Conditioning(
        method=method,
        recipe=recipe,
        variance=settings.variances.method,
        neighbours=settings.variances.neighbours,
        seed=settings.random_state,
        calibrate=calibrate,
        tol=settings.solve.tol,
        max_iterations=settings.solve.max_iterations,
        unsolved=settings.solve.unsolved,
    )
