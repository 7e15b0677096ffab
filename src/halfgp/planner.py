"""Memory, passes and minutes of a fit, before any of them is spent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from halfgp.choices import (
    EXACT_STEP_ROWS,
    FEW_FEATURES,
    LOCAL_BYTES,
    LOCAL_LANDMARKS,
    RESIDENT,
    choose_method,
    choose_variance,
    factor_bytes,
    final_rank,
    neighbourhoods,
    preconditioner_bytes,
    routes,
    usable_memory,
)
from halfgp.errors import MemoryLimitError
from halfgp.likelihood.traces.neighbours import NEIGHBOURS as TRACE_NEIGHBOURS
from halfgp.preconditioners.automatic import (
    NEIGHBOURS,
    bytes_within,
    neighbours_within,
    paying_neighbours,
    rows_met,
)
from halfgp.preconditioners.base import BYTES_OF_PIVOT, automatic_rank
from halfgp.preconditioners.base import MEMORY as PRECONDITIONER_BYTES
from halfgp.settings import Settings, as_bytes
from halfgp.solvers.reorthogonalise import MEMORY as BASIS_BYTES
from halfgp.speed import dense_seconds, entry_rate, factor_seconds, neighbour_seconds

ITERATIONS = 40  # of a solve, as on the real sets at the tolerances of the defaults
FINAL_ITERATIONS = 30  # of the last solve, to a tolerance that deviations set, of unknown targets
# Of known ones it takes more the more rows explain each other: 15 on protein (1.4), 60 on kin40k (2.7) and
# 38 on houseelectric (8): they grow from the fewest by so many for each unit, to the most.
FEWEST, MOST, EXPLAINED_ALONE, MORE_FOR_UNIT = 15, 55, 1.4, 35
# With as many neighbours as pay they are as many at any size. With fewer they are more by this power: 20, 32
# and 48 take 25, 16 and 11 on kin40k.
SAVED = 0.95
# Where features are few, neighbours say nearly all: fewer passes, half of them in double, over those pairs of
# rows that are within the kernel's reach.
FINAL_IN_FEW, LIVE_IN_FEW = 15, 0.08
IN_TILES = 0.7  # of the pairs in tiles that are not all zero, the share of those that are not
BUILDING = 8  # passes that a preconditioner takes to build where features are many
STEP_ITERATIONS = 15  # of a solve for a gradient on all rows
BLOCK = 1.7  # passes that a product with some columns takes, beside one
EVALUATIONS = 30  # of the likelihood in the exact stage
SUBSET_EVALUATIONS = 14  # of a subset's, most of which are of a quarter of it
NEIGHBOUR_EVALUATIONS = 60  # of the densities of rows given their neighbours
STEP_EVALUATIONS = 15  # of those that follow a gradient on all rows
LAST_EVALUATIONS = 16  # that the last round has of them, which begins near its end
RENEWING_EVALUATIONS = 25  # that it has again, with other neighbours, where features are few
EXPECTED_STEPS = 2.5  # that are taken, the last one without a gain
HEARD_BYTES = 70  # of a neighbour of a row whose density training takes, with the gradient
JUDGED = 2  # of what a chunk of rows takes: entries, and what landmarks explain of them
TRACE_BYTES = 70  # of a neighbour of a row, in the factor that gradients take
JUDGING = 4  # evaluations of a subset's likelihood that it takes to judge what was learned
EVALUATION = 1.4  # in units of its factor and inverse: the rest is the kernel and its gradient
FACTOR = {torch.float64: 2.5, torch.float32: 1.6}  # in units of it, with the solves that follow


@dataclass(frozen=True)
class Preview:
    """What a few rows tell of a fit.

    Attributes:
        explained: the mean of log(variance / variance given neighbours): the more rows tell of each other,
            the worse K + noise is conditioned.
        live: of all pairs of rows, the share whose covariance is not zero.
    """

    explained: float
    live: float


@dataclass(frozen=True)
class Plan:
    """What a fit is expected to take.

    Attributes:
        rows: n.
        features: d.
        targets: q.
        settings: of the fit.
        method: "cholesky" or "cg".
        variance: "cholesky" or "local".
        memory: bytes at the peak, of the whole process.
        memory_limit: bytes, as given or as the machine has.
        passes: over K.
        preview: of the rows, where their targets are known.
        parts: of several fits one after the other, each of them.
    """

    rows: int
    features: int
    targets: int
    settings: Settings
    method: str
    variance: str
    memory: int
    memory_limit: int
    passes: int
    preview: Preview | None = None
    parts: tuple[Plan, ...] = ()

    @cached_property
    def seconds(self) -> float:
        """Of the fit, by the speed of this machine, which is measured when it is asked for."""
        if self.parts:
            return sum(part.seconds for part in self.parts)
        if self.method == "cholesky":
            return exact_seconds(self.rows, self.settings.threads)
        return _training_seconds(self) + _conditioning_seconds(self)

    @property
    def fits(self) -> bool:
        """Whether memory suffices."""
        return self.memory <= self.memory_limit

    def require(self) -> None:
        """Raise unless it fits."""
        if not self.fits:
            raise MemoryLimitError(
                f"A fit of {self.rows:,} rows with {self.features} features needs about"
                f" {self.memory / 1e9:.2f} GB, and {self.memory_limit / 1e9:.2f} GB are allowed. Raise"
                " `memory_limit`, lower `solve__rank` or `training__probes`, use"
                ' `method="cg", variances__method="local"`, or take fewer rows.'
            )

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        names = (
            "rows",
            "features",
            "method",
            "variance",
            "memory",
            "memory_limit",
            "passes",
            "seconds",
            "fits",
        )
        return {name: getattr(self, name) for name in names}

    def __str__(self) -> str:
        minutes = self.seconds / 60
        time_text = f"{self.seconds:.0f} s" if minutes < 2 else f"{minutes:.0f} min"
        verdict = "" if self.fits else " (it does not fit)"
        return (
            f"{self.rows:,} rows, {self.features} features: training by {self.method}, variances by"
            f" {self.variance}\nmemory {self.memory / 1e9:.2f} of {self.memory_limit / 1e9:.1f} GB{verdict},"
            f" {self.passes} passes over K, about {time_text}"
        )


def make_plan(
    rows: int, features: int, targets: int, settings: Settings, preview: Preview | None = None
) -> Plan:
    """For a fit of so many rows, of which more may be known."""
    limit = as_bytes(settings.memory_limit)
    method, variance, passes = choose_method(settings.method, rows), "cholesky", 0
    if method == "cholesky":
        memory = exact_bytes(rows)
    else:
        variance = choose_variance(settings.variances.method, rows, limit)
        passes = round(expected_steps(rows, settings) * (_step_iterations(settings) + 1))
        passes += _final_passes(rows, features, variance, settings, preview)
        memory = max(
            _training_bytes(rows, features, targets, settings),
            _final_bytes(rows, features, targets, settings),
        )
    memory += rows * (features + targets) * 8 * 3 + RESIDENT
    allowed = limit or usable_memory()
    return Plan(rows, features, targets, settings, method, variance, memory, allowed, passes, preview)


def joined_plan(plans: Sequence[Plan]) -> Plan:
    """Of fits one after the other, each of which keeps what it answers with.

    That is a dense factor, or at most what it took.
    """
    if len(plans) == 1:
        return plans[0]
    kept = [8 * p.rows**2 if p.variance == "cholesky" else p.memory - RESIDENT for p in plans]
    first = max(plans, key=lambda p: p.memory)
    return replace(
        first,
        method=", ".join(dict.fromkeys(p.method for p in plans)),
        variance=", ".join(dict.fromkeys(p.variance for p in plans)),
        memory=max(p.memory + sum(kept[:k]) for k, p in enumerate(plans)),
        passes=sum(p.passes for p in plans),
        parts=tuple(plans),
    )


def expected_steps(rows: int, settings: Settings) -> float:
    """On all rows: as many as are asked for, or exact ones after training on parts of the rows."""
    training = settings.training
    if training.steps is not None:
        return training.steps
    from_parts = 0 < training.subset < rows <= EXACT_STEP_ROWS and training.subset_iterations > 0
    return EXPECTED_STEPS if from_parts else 0.0


def exact_bytes(rows: int) -> int:
    """Memory of the dense likelihood with its gradient: up to six matrices, as measured."""
    return 6 * rows * rows * 8


def dense_bytes(plan: Plan) -> int:
    """Of what is dense in a fit: of several ranks each has the whole of it."""
    if plan.method == "cholesky":
        return exact_bytes(plan.rows)
    training = plan.settings.training
    subset = exact_bytes(min(training.subset, plan.rows)) if training.subset_iterations else 0
    if plan.variance != "cholesky":
        return subset
    return max(subset, factor_bytes(plan.rows, _factor_format(plan.rows, plan.settings).itemsize))


def solve_bytes(rows: int, columns: int, iterations: int, rank: int) -> int:
    """Memory of a solve: earlier residuals, vectors, and the factor of the preconditioner."""
    basis = min(8 * rows * columns * 2 * iterations, 2 * BASIS_BYTES)  # in double, if it climbs
    return basis + rows * columns * 8 * 15 + BYTES_OF_PIVOT * rows * min(rank, rows)


def _training_bytes(rows: int, features: int, targets: int, settings: Settings) -> int:
    """Of learning from a subset, from neighbourhoods, and in steps on all rows."""
    training, given = settings.training, settings.solve.rank
    subset = min(training.subset, rows)
    needed = exact_bytes(subset)
    if 0 < subset < rows and training.subset_iterations:
        heard, near = neighbourhoods(features)
        needed = max(needed, HEARD_BYTES * min(rows, heard) * near, JUDGED * LOCAL_BYTES)
    if expected_steps(rows, settings):
        rank = automatic_rank(rows, PRECONDITIONER_BYTES) if given is None else given
        solve = solve_bytes(rows, targets + training.probes, _step_iterations(settings), rank)
        needed = max(needed, solve + TRACE_BYTES * rows * _trace_neighbours(rows, settings))
    return needed


def _final_bytes(rows: int, features: int, targets: int, settings: Settings) -> int:
    """Of the last solve, and of variances."""
    limit = as_bytes(settings.memory_limit)
    if choose_variance(settings.variances.method, rows, limit) == "cholesky":
        return factor_bytes(rows, _factor_format(rows, settings).itemsize)
    if settings.solve.preconditioner == "auto" and settings.solve.rank is None:
        built = bytes_within(rows, preconditioner_bytes(limit), _live(features, None))
        solve = solve_bytes(rows, targets, ITERATIONS, 0) + built
    else:
        rank = final_rank(rows, limit) if settings.solve.rank is None else settings.solve.rank
        solve = solve_bytes(rows, targets, 2 * ITERATIONS, rank)
    # What landmarks explain of the rows at hand, twice, up to the limit of a chunk.
    return max(solve, min(LOCAL_BYTES, 32 * rows * (LOCAL_LANDMARKS + features)))


def exact_seconds(rows: int, threads: int | None) -> float:
    """Time of the exact stage: a factor, an inverse, and entries with their gradient, again and again."""
    return EVALUATIONS * EVALUATION * dense_seconds(rows, threads)


def subset_seconds(subset: int, threads: int | None) -> float:
    """Time of learning from a subset, and of judging what was learned."""
    return (SUBSET_EVALUATIONS + JUDGING) * EVALUATION * dense_seconds(subset, threads)


def _training_seconds(plan: Plan) -> float:
    """Of learning from a subset, from neighbourhoods, and in steps on all rows."""
    training, threads, rows = plan.settings.training, plan.settings.threads, plan.rows
    steps, near = expected_steps(rows, plan.settings), _trace_neighbours(rows, plan.settings)
    seconds, subset = 0.0, min(training.subset, rows)
    if steps:
        seconds += steps * (
            _step_iterations(plan.settings) * BLOCK * _pass_seconds(plan) + _building_seconds(plan)
        )
        if near:
            seconds += steps * rows * neighbour_seconds(plan.features, threads, near)
    if not subset or not training.subset_iterations:
        return seconds
    if subset == rows:
        return seconds + exact_seconds(rows, threads)
    heard, given = neighbourhoods(plan.features, last=False)
    more, _ = neighbourhoods(plan.features)
    first, last = min(rows, heard), min(rows, more)
    densities: float = NEIGHBOUR_EVALUATIONS * first + LAST_EVALUATIONS * (last - first)
    if plan.features <= FEW_FEATURES:
        densities += RENEWING_EVALUATIONS * last
    densities += steps * STEP_EVALUATIONS * last
    return (
        seconds
        + densities * neighbour_seconds(plan.features, threads, given)
        + subset_seconds(subset, threads)
    )


def _conditioning_seconds(plan: Plan) -> float:
    """Of the last solve, by products or by a factor, of which a product or two tell how exact it is."""
    passes = _final_passes(plan.rows, plan.features, plan.variance, plan.settings, plan.preview)
    products = passes * _pass_seconds(plan)
    if plan.variance == "local":
        return products + _building_seconds(plan)
    kind = _factor_format(plan.rows, plan.settings)
    return products + FACTOR[kind] * factor_seconds(plan.rows, kind, plan.settings.threads)


def _live(features: int, preview: Preview | None) -> float:
    """The share of pairs of rows that a pass looks at."""
    if preview is not None:
        return min(1.0, preview.live / IN_TILES)
    return LIVE_IN_FEW if features <= FEW_FEATURES else 1.0


def _pass_seconds(plan: Plan) -> float:
    """Of a product with one column."""
    rate = entry_rate(plan.features, plan.settings.threads)
    return _live(plan.features, plan.preview) * plan.rows**2 / rate


def _building_seconds(plan: Plan) -> float:
    """Of a preconditioner; in few features a row takes as long as in training."""
    if plan.features > FEW_FEATURES:
        return BUILDING * _pass_seconds(plan)
    return plan.rows * neighbour_seconds(plan.features, plan.settings.threads, NEIGHBOURS)


def _final_passes(
    rows: int, features: int, variance: str, settings: Settings, preview: Preview | None
) -> int:
    """Over K, in the last solve: the more, the fewer neighbours the preconditioner has than would pay."""
    if variance == "cholesky":
        return 2
    if features <= FEW_FEATURES:
        return FINAL_IN_FEW
    passes = float(FINAL_ITERATIONS)
    if preview is not None:
        more = MORE_FOR_UNIT * max(0.0, preview.explained - EXPLAINED_ALONE)
        passes = min(MOST, FEWEST + more)
    memory = preconditioner_bytes(as_bytes(settings.memory_limit))
    paying = paying_neighbours(rows_met(rows, _live(features, preview)))
    neighbours = neighbours_within(rows, memory, paying)
    return round(passes * math.pow(paying / neighbours, SAVED))


def _step_iterations(settings: Settings) -> int:
    return min(settings.training.max_iterations, STEP_ITERATIONS)


def _trace_neighbours(rows: int, settings: Settings) -> int:
    """Of each row in the factor that gradients take."""
    return min(TRACE_NEIGHBOURS, rows - 1) if settings.training.gradient == "neighbours" else 0


def _factor_format(rows: int, settings: Settings) -> torch.dtype:
    """Of the dense factor that is tried first."""
    first, *_ = routes("cg", settings.variances.method, rows, as_bytes(settings.memory_limit))
    return torch.float64 if first == "double factor" else torch.float32
