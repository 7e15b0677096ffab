"""More rows for a model that is fitted, with hyperparameters and scales as they are."""

from __future__ import annotations

import time

import torch

from halfgp.choices import choose_method
from halfgp.data import ArrayLike
from halfgp.errors import InputError
from halfgp.model.callbacks import Audience
from halfgp.model.fit_report import FitReport
from halfgp.model.fitted import Fitted
from halfgp.model.groups import AnyFitted, Group, groups_of, joined
from halfgp.model.observations import Observations, Pattern
from halfgp.model.stages import conditioning_of
from halfgp.planner import make_plan
from halfgp.prediction import condition
from halfgp.settings import Settings
from halfgp.threads import torch_threads


def extend(
    settings: Settings,
    fitted: AnyFitted,
    X: ArrayLike,
    y: ArrayLike,
    noise: ArrayLike | None,
    audience: Audience,
) -> AnyFitted:
    """Conditioned on more rows too, which are those of `ExactGP.update`."""
    if (noise is None) != (fitted.each[0].posterior.problem.fixed_noise is None):
        raise InputError(
            "`noise` must be given to `update` exactly if it was given to `fit`:"
            " rows have variances of their own or share one."
        )
    rows = Observations.of(fitted.points(X), y, noise)
    if rows.targets.shape[1] != fitted.targets:
        raise InputError(f"`y` must have {fitted.targets} targets, as in `fit`; got {rows.targets.shape[1]}.")
    groups = []
    for group in groups_of(fitted):
        for pattern in rows.patterns(group.targets):
            if pattern.targets == group.targets and not len(pattern.rows):
                groups.append(group)  # nothing is new
                continue
            which = torch.cat([group.rows, fitted.rows + pattern.rows])
            found = _extended(settings, group, rows, pattern, audience)
            groups.append(Group(pattern.targets, which, found))
    return joined(groups, rows.dropped)


def _extended(
    settings: Settings, group: Group, rows: Observations, pattern: Pattern, audience: Audience
) -> Fitted:
    """A group's targets of that pattern, conditioned on the rows that have them, too."""
    began, fitted = time.perf_counter(), group.fitted
    inner = [group.targets.index(target) for target in pattern.targets]
    trend = None if fitted.trend is None else fitted.trend.of_targets(inner)
    y_scale, some = fitted.y_scale.of_columns(inner), rows.taken(pattern).without(trend)
    added = some.problem(fitted.x_scale, y_scale, settings)
    problem = fitted.posterior.problem.of_targets(inner).extended(added)
    # What a fit takes without its training.
    solve = settings.with_params(method="cg", training__subset=0, training__steps=0)
    make_plan(problem.rows, problem.features, problem.y.shape[1], solve).require()
    method = choose_method(settings.method, problem.rows)
    start = fitted.posterior.start(problem.rows)
    if start is not None and len(inner) < fitted.targets:
        start = start[:, inner]
    with torch_threads(settings.threads):
        posterior = condition(
            problem,
            fitted.posterior.hyperparameters.of_targets(inner),
            conditioning_of(settings, method, problem.rows),
            start,
            audience.see_iteration,
        )
    report = FitReport.of(
        posterior,
        fitted.history,
        method=method,
        dropped=some.dropped,
        scale=fitted.report.scale,
        began=began,
    )
    return Fitted(posterior, fitted.x_scale, y_scale, fitted.single, fitted.history, report, trend)
