"""A fit: from rows as they come to what is found of them, one group of targets after another."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch

from halfgp.choices import are_compact, choose_method, usable_memory
from halfgp.cluster import make_cluster_plan
from halfgp.compact import COMPACT, CompactPoints
from halfgp.data import ArrayLike
from halfgp.distributed.agreement import environment, require_agreement, together
from halfgp.distributed.heartbeat import Heartbeat
from halfgp.distributed.ranks import Ranks
from halfgp.errors import FileError
from halfgp.hyperparameters import Hyperparameters
from halfgp.model.callbacks import Audience
from halfgp.model.fit_report import FitReport
from halfgp.model.fitted import Fitted
from halfgp.model.groups import AnyFitted, Group, joined
from halfgp.model.observations import Observations, Pattern
from halfgp.model.planning import planned
from halfgp.model.stages import compared, conditioning_of, training_of
from halfgp.model.start import starting_point
from halfgp.model.trend import Trend, trend_of
from halfgp.planner import make_plan
from halfgp.prediction import ExactPosterior, condition
from halfgp.priors import as_priors, check_names
from halfgp.problem import Problem
from halfgp.settings import Settings
from halfgp.standardise import Standardisation
from halfgp.threads import torch_threads
from halfgp.training import Checkpoint, Trained, train


def fit_rows(
    settings: Settings,
    X: ArrayLike | CompactPoints,
    y: ArrayLike,
    noise: ArrayLike | None,
    audience: Audience,
    ranks: Ranks | None,
) -> tuple[AnyFitted, list[Checkpoint]]:
    """What is found of rows, over ranks where there are some; the rows are those of `ExactGP.fit`.

    Returns:
        What was found, and the checkpoints of what is done.
    """
    with Heartbeat(ranks):
        with together(ranks):
            settings = settings.check()
        require_agreement(ranks, {**environment(), **compared(settings)})
        with together(ranks):
            rows = Observations.of(X, y, noise, settings.device)
        require_agreement(ranks, rows.fingerprints() if ranks is not None else {})
        rows.check_known()
        patterns = rows.patterns(range(rows.targets.shape[1]))
        with together(ranks):  # machines may have more memory or less
            _require_memory(settings, patterns, rows.points.shape[1], ranks)
        groups, checkpoints = [], []
        for index, pattern in enumerate(patterns):
            compact = are_compact(settings, len(pattern.rows), 1 if ranks is None else ranks.count)
            prepared = _prepared(settings, rows, pattern, COMPACT if compact else torch.float64)
            if pattern is patterns[-1]:  # from here on rows are here once, as standardised
                rows = rows.forgotten()
            path = _checkpoint_path(settings, index)
            fitted, checkpoint = _fit_group(settings, prepared, audience, ranks, path)
            groups.append(Group(*pattern, fitted))
            checkpoints.append(checkpoint)
    return joined(groups, rows.dropped), [checkpoint for checkpoint in checkpoints if checkpoint is not None]


def _require_memory(
    settings: Settings, patterns: Sequence[Pattern], features: int, ranks: Ranks | None
) -> None:
    """Refuse what does not fit, before any work."""
    if ranks is None:
        planned(settings, patterns, features).require()
        return
    for targets, which in patterns:
        whole = make_plan(len(which), features, len(targets), settings)
        make_cluster_plan(whole, ranks=ranks.count).require()


class _Prepared(NamedTuple):
    """Rows that are about to be learned from.

    Attributes:
        problem: them, standardised, without their trend.
        about: what else is known of them.
        trend: what they are without.
        x_scale: what standardised points.
        y_scale: what standardised targets.
        began: when it was.
    """

    problem: Problem
    about: Observations
    trend: Trend | None
    x_scale: Standardisation
    y_scale: Standardisation
    began: float


def _prepared(settings: Settings, rows: Observations, pattern: Pattern, dtype: torch.dtype) -> _Prepared:
    """The rows that have some targets, their points in that format."""
    began, some = time.perf_counter(), rows.taken(pattern)
    trend = trend_of(settings.mean, some.points, some.targets, pattern.targets, rows.targets.shape[1])
    some = some.without(trend)
    scales = some.scales(settings)
    return _Prepared(some.problem(*scales, settings, dtype), some.forgotten(), trend, *scales, began)


def _fit_group(
    settings: Settings, rows: _Prepared, audience: Audience, ranks: Ranks | None, path: Path | None
) -> tuple[Fitted, Checkpoint | None]:
    """Learn from rows and condition on them, over ranks where there are some.

    Returns:
        What was found, and the checkpoint of what is done.
    """
    problem = rows.problem
    if choose_method(settings.method, problem.rows) != "cholesky":  # which every rank does by itself
        problem = replace(problem, ranks=ranks)
    start, priors = starting_point(settings, problem, rows.x_scale), as_priors(settings.priors)
    if not isinstance(settings.priors, str):  # a named set may have more than a kernel does
        check_names(priors, start.named_parameters())
    checkpoint = _checkpoint_of(settings, path, problem, start, ranks)
    with torch_threads(settings.threads):
        trained = train(
            start,
            problem,
            training_of(settings),
            priors,
            checkpoint=checkpoint,
            observe=audience.see_step,
        )
        posterior = _conditioned(settings, problem, trained, checkpoint, audience)
    y_scale = replace(rows.y_scale, scale=rows.y_scale.scale * posterior.units)
    report = FitReport.of(
        posterior,
        trained.history,
        method=trained.method,
        dropped=rows.about.dropped,
        scale=posterior.scale,
        began=rows.began,
        interrupted=trained.interrupted,
    )
    fitted = Fitted(
        posterior.whole(), rows.x_scale, y_scale, rows.about.single, trained.history, report, rows.trend
    )
    return fitted, None if trained.interrupted else checkpoint


def _conditioned(
    settings: Settings,
    problem: Problem,
    trained: Trained,
    checkpoint: Checkpoint | None,
    audience: Audience,
) -> ExactPosterior:
    """The posterior where training ended."""
    by_subset = trained.method == "cg" and 0 < settings.training.subset < problem.rows
    # Training on all rows tells the scale of one target, and not that of each of several.
    several = problem.y.shape[1] > 1
    calibrate = settings.variances.calibrate and (
        (by_subset and settings.training.subset_iterations > 0) or several
    )
    calibrate = calibrate and not trained.hyperparameters.any_fixed  # that would move them after all
    machine = problem.least(usable_memory())  # ranks build parts of one preconditioner
    conditioning = conditioning_of(settings, trained.method, problem.rows, calibrate, machine)
    hyperparameters, solves = trained.hyperparameters, None
    if checkpoint is not None and not trained.interrupted:  # who resumes that, resumes its training
        solves = checkpoint.solves(hyperparameters, conditioning.recipe)
    return condition(problem, hyperparameters, conditioning, trained.weights, audience.see_iteration, solves)


def _checkpoint_of(
    settings: Settings, path: Path | None, problem: Problem, start: Hyperparameters, ranks: Ranks | None
) -> Checkpoint | None:
    if path is None:
        return None
    if (ranks is None or ranks.is_first) and not path.parent.is_dir():
        raise FileError(f"`checkpoint` needs the directory `{path.parent}`, which is not there. Create it.")
    return Checkpoint.of(path, problem, start, training_of(settings), settings.priors, ranks)


def _checkpoint_path(settings: Settings, group: int) -> Path | None:
    """Where that of a group of targets is: the first has the name that is given."""
    if settings.checkpoint is None:
        return None
    path = Path(settings.checkpoint)
    return path.with_name(f"{path.name}.{group}") if group else path
