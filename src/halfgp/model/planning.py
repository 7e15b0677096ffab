"""What a fit of given rows would take, before any of it."""

from __future__ import annotations

from collections.abc import Sequence

from halfgp.choices import choose_method
from halfgp.data import ArrayLike, as_points
from halfgp.model.observations import Observations, Pattern
from halfgp.model.start import starting_point
from halfgp.model.trend import trend_of
from halfgp.planner import Plan, Preview, joined_plan, make_plan
from halfgp.priors import as_priors
from halfgp.settings import Settings
from halfgp.threads import torch_threads
from halfgp.training import preview


def plan_rows(settings: Settings, X: ArrayLike, y: ArrayLike | None, targets: int) -> Plan:
    """Of points, with a second's look at their targets where these are known; as `ExactGP.plan`."""
    settings, points = settings.check(), as_points(X, "X")
    if y is None:
        return make_plan(len(points), points.shape[1], targets, settings)
    rows = Observations.of(points, y, None, settings.device)
    rows.check_known()
    patterns = rows.patterns(range(rows.targets.shape[1]))
    return planned(
        settings, patterns, points.shape[1], [_previewed(settings, rows, some) for some in patterns]
    )


def planned(
    settings: Settings,
    patterns: Sequence[Pattern],
    features: int,
    previews: Sequence[Preview | None] | None = None,
) -> Plan:
    """Of fits of targets that the same rows have, one after the other."""
    each = zip(patterns, previews or [None] * len(patterns), strict=True)
    return joined_plan(
        [make_plan(len(rows), features, len(some), settings, seen) for (some, rows), seen in each]
    )


def _previewed(settings: Settings, rows: Observations, pattern: Pattern) -> Preview | None:
    """What a few of the rows tell that have some targets; None where all of them are soon looked at."""
    if choose_method(settings.method, len(pattern.rows)) == "cholesky":
        return None
    some = rows.taken(pattern)
    some = some.without(
        trend_of(settings.mean, some.points, some.targets, pattern.targets, rows.targets.shape[1])
    )
    x_scale, y_scale = some.scales(settings)
    problem = some.problem(x_scale, y_scale, settings)
    start = starting_point(settings, problem, x_scale)
    with torch_threads(settings.threads):
        return preview(start, problem, as_priors(settings.priors), settings.random_state)
