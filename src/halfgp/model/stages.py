"""What each stage of a fit is told of the settings."""

from __future__ import annotations

from halfgp.planner import final_rank, preconditioner_bytes
from halfgp.preconditioners.automatic import landmarks_within
from halfgp.prediction import Conditioning
from halfgp.settings import Settings, as_bytes
from halfgp.training import Training


def training_of(settings: Settings) -> Training:
    """What of the settings is about training."""
    return Training(
        method=settings.method,
        subset=settings.subset,
        subset_iterations=settings.subset_iterations,
        optimiser=settings.optimiser,
        steps=settings.steps,
        learning_rate=settings.learning_rate,
        probes=settings.probes,
        gradient=settings.gradient,
        preconditioner=settings.preconditioner,
        rank=settings.rank,
        tol=settings.tol,
        min_iterations=settings.min_iterations,
        max_iterations=settings.max_iterations,
        softplus=settings.softplus,
        seed=settings.random_state,
    )


def conditioning_of(settings: Settings, method: str, rows: int, calibrate: bool = False) -> Conditioning:
    """What of the settings is about the last solve and variances."""
    # The automatic preconditioner has a rule of its own for its rank, but for what memory allows.
    limit, by_rule = as_bytes(settings.memory_limit), settings.preconditioner == "auto"
    allowed = None if limit is None else landmarks_within(rows, preconditioner_bytes(limit))
    rank = allowed if by_rule else final_rank(rows, limit)
    return Conditioning(
        method=method,
        tol=settings.test_tol,
        max_iterations=settings.test_max_iterations,
        recipe=training_of(settings).recipe(rank),
        variance=settings.variance,
        neighbours=settings.neighbours,
        seed=settings.random_state,
        unsolved=settings.unsolved,
        calibrate=calibrate,
    )
