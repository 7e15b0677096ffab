"""How each kind of posterior is stored: what only it knows beside rows, hyperparameters and settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from halfgp.choices import ROUTES
from halfgp.errors import FileError, InputError
from halfgp.hyperparameters import Hyperparameters
from halfgp.json_values import as_plain, dataclass_from, field_from, number_from, object_from, typed
from halfgp.model import FitReport, conditioning_of
from halfgp.neighbours import Shrinkage
from halfgp.persistence import Stored, require
from halfgp.prediction import Accuracy, Equations, ExactPosterior, Posterior, Residuals, Variances, condition
from halfgp.problem import Problem
from halfgp.settings import Settings
from halfgp.solvers import SolveResult
from halfgp.solvers.base import Climb, Status

ACCURACY = tuple(field.name for field in fields(Accuracy) if field.name not in ("shares", "floor"))
SOLVE = (
    *("column_status", "status", "iterations", "passes", "passes_by_precision", "precision", "climbs"),
    "tol",
)


@dataclass(frozen=True, eq=False)
class Known:
    """What a file tells about a posterior of any kind.

    Attributes:
        problem: the rows.
        hyperparameters: that it was conditioned with.
        settings: of the model.
        report: on its fit.
    """

    problem: Problem
    hyperparameters: Hyperparameters
    settings: Settings
    report: FitReport


@dataclass(frozen=True)
class PosteriorFormat:
    """How posteriors of one class are stored.

    Attributes:
        cls: the class; None for a format that is only read.
        tensors: names of those that it needs.
        may_be_nonfinite: names of those that may hold infinities and NaN.
        write: a posterior to JSON fields and tensors.
        read: fields and tensors of a file, and what else is known, to a posterior; it checks them all.
    """

    cls: type[Any] | None
    tensors: tuple[str, ...]
    may_be_nonfinite: tuple[str, ...]
    write: Callable[[Any], tuple[dict[str, Any], dict[str, Tensor]]]
    read: Callable[[dict[str, Any], Stored, Known], Posterior]


def _write_exact(posterior: ExactPosterior) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Weights, how exact they are, how local variances shrink, and what rows left out were off by."""
    accuracy, solve, shrinkage = posterior.accuracy, posterior.solve, posterior.variances.shrinkage
    tensors = {
        "weights": posterior.weights,
        "correction": posterior.correction,
        "variance_scale": torch.tensor(shrinkage.scale, dtype=torch.float64),
        "variance_known": torch.tensor(shrinkage.known, dtype=torch.float64),
        "shares": torch.tensor(accuracy.shares, dtype=torch.float64),
        "floor": torch.tensor(accuracy.floor, dtype=torch.float64),
        "residuals": posterior.residuals.ordered,
        "solve.residual_norms": torch.as_tensor(solve.residual_norms),
        "solve.history": torch.as_tensor(solve.history),
    }
    plain = as_plain({name: getattr(accuracy, name) for name in ACCURACY})
    return {"accuracy": plain, "solve": _solve_to_json(solve)}, tensors


def _read_exact(about: dict[str, Any], stored: Stored, known: Known) -> ExactPosterior:
    """The posterior as it was."""
    given = object_from(about, "posterior", ("accuracy", "solve"))
    n, q = known.problem.y.shape
    if known.report.route not in ROUTES:
        raise FileError(f"`report.route` must be one of {', '.join(ROUTES)}; got {known.report.route!r:.80}.")
    conditioning = conditioning_of(known.settings, known.report.method, n)
    equations = Equations(known.problem, known.hyperparameters, known.report.route, conditioning.recipe)
    weights = require(stored, "weights", torch.float64, (n, q))
    return ExactPosterior(
        equations,
        weights=weights,
        correction=require(stored, "correction", torch.float64, (n, q)),
        accuracy=_accuracy(stored, given["accuracy"], q),
        variances=Variances(equations, conditioning.neighbours, _shrinkage(stored)),
        known_residuals=_residuals(stored, q),
        solve=_solve_from_json(stored, given["solve"], weights),
        scale=known.report.scale,
        units=torch.ones(q, dtype=torch.float64),  # the scale of the file's targets has them
        tol=conditioning.tol,
        max_iterations=conditioning.max_iterations,
        seed=conditioning.seed,
    )


def _read_again(_about: dict[str, Any], stored: Stored, known: Known) -> ExactPosterior:
    """Of a file that does not tell how exact its weights are: they are solved for again, from there."""
    n, q = known.problem.y.shape
    conditioning = conditioning_of(known.settings, known.report.method, n)
    weights = require(stored, "weights", torch.float64, (n, q))
    return condition(known.problem, known.hyperparameters, conditioning, weights)


_EXACT = PosteriorFormat(
    cls=ExactPosterior,
    tensors=(
        *("weights", "correction", "variance_scale", "variance_known", "shares", "floor"),
        *("residuals", "solve.residual_norms", "solve.history"),
    ),
    # Bounds, and a solve that went wrong.
    may_be_nonfinite=("variance_known", "shares", "floor", "solve.residual_norms", "solve.history"),
    write=_write_exact,
    read=_read_exact,
)
# The only kinds that a file can name: nothing is imported or looked up by a name in a file.
POSTERIORS: dict[str, PosteriorFormat] = {
    "exact": _EXACT,
    "exact, to be solved again": replace(_EXACT, cls=None, read=_read_again),
}


def format_of(posterior: Posterior) -> tuple[str, PosteriorFormat]:
    """The name and the format of a posterior's class."""
    for name, known in POSTERIORS.items():
        if type(posterior) is known.cls:
            return name, known
    raise InputError(
        f"`model` must have a posterior of a class that files know, {', '.join(POSTERIORS)}; got"
        f" {type(posterior).__name__}."
    )


def _accuracy(stored: Stored, value: object, q: int) -> Accuracy:
    """How exact it is."""
    given = object_from(value, "accuracy", ACCURACY)
    kinds = {field.name: str(field.type) for field in fields(Accuracy)}
    plain = {name: field_from(given[name], f"accuracy.{name}", kinds[name]) for name in ACCURACY}
    if plain["precision"] not in ("single", "double"):
        raise FileError(f'`accuracy.precision` must be "single" or "double"; got {plain["precision"]!r:.80}.')
    floor = require(stored, "floor", torch.float64, (q,))
    shares = require(stored, "shares", torch.float64, (q,))
    return Accuracy(shares=tuple(shares.tolist()), floor=tuple(floor.tolist()), **plain)


def _residuals(stored: Stored, q: int) -> Residuals | None:
    """Of rows that are left out; None where a file of before has none."""
    ordered = require(stored, "residuals", torch.float64, (None, q))
    if bool((ordered.diff(dim=0) < 0).any()):
        raise FileError("`residuals` must be ascending in every column.")
    return Residuals(ordered) if len(ordered) else None


def _shrinkage(stored: Stored) -> Shrinkage:
    """Of local variances."""
    scale = float(require(stored, "variance_scale", torch.float64, ()))
    known = float(require(stored, "variance_known", torch.float64, ()))
    if not 0.0 < scale <= 1.0 or not known >= 0.0:
        raise FileError(
            "`variance_scale` must be above 0 and at most 1, and `variance_known` not negative; got"
            f" {scale!r} and {known!r}."
        )
    return Shrinkage(scale, known)


def _solve_to_json(solve: SolveResult) -> dict[str, Any]:
    """What is not a tensor of a solve."""
    return {
        "column_status": [status.value for status in solve.column_status],
        "status": solve.status.value,
        "iterations": solve.iterations,
        "passes": solve.passes,
        "passes_by_precision": dict(solve.passes_by_precision),
        "precision": solve.precision,
        "climbs": [asdict(climb) for climb in solve.climbs],
        "tol": solve.tol,
    }


def _solve_from_json(stored: Stored, value: object, weights: Tensor) -> SolveResult:
    given = object_from(value, "solve", SOLVE)
    q = weights.shape[1]
    columns = typed(given["column_status"], "solve.column_status", list)
    if len(columns) != q:
        raise FileError(
            f"`solve.column_status` must have one entry for each target, {q}; got {len(columns)}."
        )
    by_precision = typed(given["passes_by_precision"], "solve.passes_by_precision", dict)
    climbs = typed(given["climbs"], "solve.climbs", list)
    return SolveResult(
        solution=weights,
        status=_status(given["status"], "solve.status"),
        column_status=tuple(_status(column, "solve.column_status") for column in columns),
        iterations=typed(given["iterations"], "solve.iterations", int),
        passes=typed(given["passes"], "solve.passes", int),
        passes_by_precision={
            name: typed(count, "solve.passes_by_precision", int) for name, count in by_precision.items()
        },
        residual_norms=require(stored, "solve.residual_norms", torch.float64, (q,)),
        history=require(stored, "solve.history", torch.float64, (None, q)),
        precision=typed(given["precision"], "solve.precision", str),
        climbs=tuple(dataclass_from(Climb, climb, f"solve.climbs.{k}") for k, climb in enumerate(climbs)),
        tol=number_from(given["tol"], "solve.tol", nan=True),
    )


def _status(value: object, where: str) -> Status:
    try:
        return Status(value)
    except ValueError as error:
        raise FileError(f"`{where}` must be one of {', '.join(Status)}; got {value!r:.80}.") from error
