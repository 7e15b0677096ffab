"""An `ExactGP` as one safetensors file: its settings, what was found, and its rows; no code is run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from halfgp.errors import FileError, InputError
from halfgp.hyperparameters import Hyperparameters
from halfgp.kernels import Kernel
from halfgp.model import ExactGP, FitReport, NotFittedError, conditioning_of
from halfgp.neighbours import Shrinkage
from halfgp.parameters import Parameter
from halfgp.persistence import (
    Stored,
    kernel_from_spec,
    kernel_to_spec,
    read_file,
    require,
    write_file,
)
from halfgp.planner import ROUTES
from halfgp.precision import Precision
from halfgp.preconditioners import Nystrom, PivotedCholesky, RandomlyPivotedCholesky
from halfgp.prediction import Accuracy, Conditioning, Equations, Posterior, Variances, condition
from halfgp.priors import Gamma, LogNormal, Overall, Prior
from halfgp.problem import Problem
from halfgp.replacement import FilePath
from halfgp.settings import Settings, as_bytes
from halfgp.solvers import SolveResult
from halfgp.solvers.base import Climb, Status
from halfgp.standardise import Standardisation
from halfgp.training import Step

# The only recipes and priors that a file can name: nothing is imported or looked up by a name in a file.
RECIPES: dict[str, type[Any]] = {
    cls.__name__: cls for cls in (Nystrom, PivotedCholesky, RandomlyPivotedCholesky)
}
DENSITIES: dict[str, type[Any]] = {cls.__name__: cls for cls in (Gamma, LogNormal)}
# What belongs to a fit or to a screen, not to a model.
NOT_STORED = ("checkpoint", "callbacks", "progress")
HEADER = ("settings", "kernel", "squeeze", "report", "history", "accuracy", "solve", "extra")
ALWAYS = (
    *("x", "y", "weights", "correction", "x.mean", "x.scale", "x.constant", "x.held", "y.mean", "y.scale"),
    *("variance_scale", "variance_known", "shares", "floor", "solve.residual_norms", "solve.history"),
)
SOMETIMES = ("noise", "fixed_noise", "mean")
# Bounds, and a solve that went wrong.
MAY_BE_NONFINITE = ("noise", "variance_known", "shares", "floor", "solve.residual_norms", "solve.history")
ACCURACY = tuple(field.name for field in fields(Accuracy) if field.name not in ("shares", "floor"))

T = TypeVar("T")


def save_model(model: ExactGP, path: FilePath, extra: Mapping[str, Any] | None = None) -> None:
    """Write a fitted model; `load_model` gives one with the same predictions, to the last bit.

    Args:
        model: fitted. Its callbacks, checkpoint and progress are not stored, and of a backend or a precision
            that came as an object only the name is.
        path: where to; written whole or not at all. Then the checkpoint of the fit is removed.
        extra: JSON of the caller's, handed back by `load_model`.

    Raises:
        NotFittedError: there is nothing to save yet.
        InputError: the kernel, a prior or the recipe of the preconditioner is of a class that files do not
            know.
        FileError: the file cannot be written.
    """
    posterior, report = model.posterior, model.report
    if posterior is None or report is None or model.x_scale is None or model.y_scale is None:
        raise NotFittedError(
            "This ExactGP is not fitted yet, and there is nothing to save. Call `fit` first."
        )
    problem, point, solve = posterior.problem, posterior.hyperparameters, posterior.solve
    tensors = {
        "x": problem.x,
        "y": problem.y,
        "weights": posterior.weights,
        "correction": posterior.correction,
        "x.mean": model.x_scale.mean,
        "x.scale": model.x_scale.scale,
        "x.constant": model.x_scale.constant,
        "x.held": model.x_scale.held,
        "y.mean": model.y_scale.mean,
        "y.scale": model.y_scale.scale,
        "variance_scale": torch.tensor(posterior.variances.shrinkage.scale, dtype=torch.float64),
        "variance_known": torch.tensor(posterior.variances.shrinkage.known, dtype=torch.float64),
        "shares": torch.tensor(posterior.accuracy.shares, dtype=torch.float64),
        "floor": torch.tensor(posterior.accuracy.floor, dtype=torch.float64),
        "solve.residual_norms": torch.as_tensor(solve.residual_norms),
        "solve.history": torch.as_tensor(solve.history),
    }
    if point.noise is not None:
        noise = point.noise
        tensors["noise"] = torch.tensor([float(noise.value), noise.lower, noise.upper], dtype=torch.float64)
    if problem.fixed_noise is not None:
        tensors["fixed_noise"] = problem.fixed_noise
    if point.mean is not None:
        tensors["mean"] = point.mean.value
    for name, tensor in tensors.items():
        if name not in MAY_BE_NONFINITE and not bool(tensor.isfinite().all()):
            raise InputError(
                f"`model` must be finite to be saved; its {name} is not. Fit it with a larger `noise_floor`."
            )
    header = {
        "settings": _settings_to_json(model.settings),
        "kernel": kernel_to_spec(point.kernel),
        "squeeze": model._squeeze,
        "report": _plain(asdict(report)),
        "history": [_plain(asdict(step)) for step in model.history],
        "accuracy": _plain({name: getattr(posterior.accuracy, name) for name in ACCURACY}),
        "solve": _solve_to_json(solve),
        "extra": dict(extra or {}),
    }
    write_file(path, "model", header, tensors)
    if model.checkpoint is not None:  # not a moment earlier: it is all that is left of a fit that is killed
        model.checkpoint.remove()
        model.checkpoint = None


def load_model(path: FilePath) -> tuple[ExactGP, dict[str, Any]]:
    """The model of a file and its `extra`; every field is checked, and none is executed.

    Raises:
        FileError: whatever is wrong with the file, and where.
    """
    stored = read_file(path, "model")
    try:
        return _model(stored)
    except InputError as error:  # of a constructor that was given what the file holds
        raise FileError(f"`{path}` does not hold a valid model: {error}") from error
    except FileError as error:
        raise FileError(f"`{path}` does not hold a valid model: {error}") from error


def _model(stored: Stored) -> tuple[ExactGP, dict[str, Any]]:
    earlier = stored.version < 2
    if earlier:
        stored = _from_format_1(stored)
    if stored.version < 3:
        stored = _from_format_2(stored)
    header = _object(stored.header, "header", HEADER)
    settings = _settings_from_json(header["settings"]).check()
    problem = _problem(stored, settings)
    point = _hyperparameters(stored, header["kernel"], problem, settings)
    n, q = problem.y.shape
    report = _from_json(FitReport, header["report"], "report")
    if report.method not in ("cholesky", "cg"):
        raise FileError(f'`report.method` must be "cholesky" or "cg"; got {report.method!r:.80}.')
    conditioning = conditioning_of(settings, report.method, n)
    equations = _equations(problem, point, report.route, conditioning)
    weights = require(stored, "weights", torch.float64, (n, q))
    if earlier:
        # The solve is looked at again, for those files do not tell how exact it is.
        return _finished(stored, settings, condition(problem, point, conditioning, weights), report)
    posterior = Posterior(
        equations,
        weights=weights,
        correction=require(stored, "correction", torch.float64, (n, q)),
        accuracy=_accuracy(stored, header["accuracy"], q),
        variances=Variances(equations, conditioning.neighbours, _shrinkage(stored)),
        solve=_solve_from_json(stored, header["solve"], weights),
        scale=report.scale,
        tol=conditioning.tol,
        max_iterations=conditioning.max_iterations,
        seed=conditioning.seed,
    )
    return _finished(stored, settings, posterior, report)


def _finished(
    stored: Stored, settings: Settings, posterior: Posterior, report: FitReport
) -> tuple[ExactGP, dict[str, Any]]:
    """The model around its posterior, and the extra of the file."""
    header, ((n, d), q) = stored.header, (posterior.problem.x.shape, posterior.problem.y.shape[1])
    model = ExactGP(**settings.as_dict())
    model.posterior = posterior
    model.report = replace(
        report,
        variance="local" if posterior.equations.route == "low rank" else "cholesky",
        residual=float(torch.as_tensor(posterior.solve.residual_norms).max()) if q else 0.0,
        route=posterior.equations.route,
        error=posterior.accuracy.share,
        solved=posterior.accuracy.solved,
    )
    if report.rows != n:
        raise FileError(f"`report.rows` must be the number of rows, {n}; got {report.rows}.")
    model.history = [
        _from_json(Step, step, f"history.{k}")
        for k, step in enumerate(_typed(header["history"], "history", list))
    ]
    model.x_scale = replace(
        _standardisation(stored, "x", d),
        constant=require(stored, "x.constant", torch.bool, (d,)),
        held=require(stored, "x.held", torch.float64, (d,)),
    )
    model.y_scale = _standardisation(stored, "y", q)
    model._squeeze = _typed(header["squeeze"], "squeeze", bool)
    if model._squeeze and q != 1:
        raise FileError(f"`squeeze` must be false with {q} targets.")
    return model, _typed(header["extra"], "extra", dict)


def _from_format_1(stored: Stored) -> Stored:
    """A file of the first format in the terms of the second, without what it could not tell."""
    names = ("settings", "kernel", "method", "squeeze", "report", "history", "solve", "extra")
    header = dict(_object(stored.header, "header", names))
    method = header.pop("method")
    header["settings"] = {"unsolved": "warn", **_typed(header["settings"], "settings", dict)}
    unknown = {"method": method, "route": ROUTES[-1], "error": 0.0, "solved": False}
    header["report"] = {**_typed(header["report"], "report", dict), **unknown}
    header["accuracy"] = {"share": 0.0}
    d = require(stored, "x", torch.float64, (None, None)).shape[1]
    q = require(stored, "y", torch.float64, (None, None)).shape[1]
    tensors = {
        "x.constant": torch.zeros(d, dtype=torch.bool),
        "x.held": torch.zeros(d, dtype=torch.float64),
        "floor": torch.zeros(q, dtype=torch.float64),
        "solve.residual_norms": torch.zeros(q, dtype=torch.float64),
        "solve.history": torch.zeros(0, q, dtype=torch.float64),
    }
    return replace(stored, header=header, tensors={**tensors, **stored.tensors})


def _from_format_2(stored: Stored) -> Stored:
    """A file of the second format in the terms of this one: one share for all targets, and one scale."""
    header = dict(_object(stored.header, "header", HEADER))
    accuracy = dict(_typed(header["accuracy"], "accuracy", dict))
    share = _number(accuracy.pop("share", None), "accuracy.share")
    header["accuracy"] = accuracy
    q = require(stored, "y", torch.float64, (None, None)).shape[1]
    tensors = {
        "variance_known": torch.tensor(math.inf, dtype=torch.float64),
        "shares": torch.full((q,), share, dtype=torch.float64),
    }
    return replace(stored, header=header, tensors={**tensors, **stored.tensors})


# ---------------------------------------------------------------------------------------------- tensors


def _equations(problem: Problem, point: Hyperparameters, route: str, conditioning: Conditioning) -> Equations:
    """As the model was solved by."""
    if route not in ROUTES:
        raise FileError(f"`report.route` must be one of {', '.join(ROUTES)}; got {route!r:.80}.")
    return Equations(problem, point, route, conditioning.recipe)


def _accuracy(stored: Stored, value: object, q: int) -> Accuracy:
    """How exact it is."""
    given = _object(value, "accuracy", ACCURACY)
    kinds = {field.name: str(field.type) for field in fields(Accuracy)}
    plain = {name: _field(given[name], f"accuracy.{name}", kinds[name]) for name in ACCURACY}
    if plain["precision"] not in ("single", "double"):
        raise FileError(f'`accuracy.precision` must be "single" or "double"; got {plain["precision"]!r:.80}.')
    floor = require(stored, "floor", torch.float64, (q,))
    shares = require(stored, "shares", torch.float64, (q,))
    return Accuracy(shares=tuple(shares.tolist()), floor=tuple(floor.tolist()), **plain)


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


def _problem(stored: Stored, settings: Settings) -> Problem:
    """The rows, finite and of shapes that fit."""
    missing, unknown = set(ALWAYS) - set(stored.tensors), set(stored.tensors) - {*ALWAYS, *SOMETIMES}
    if missing or unknown:
        raise FileError(f"The tensors {sorted(missing)} are missing, and {sorted(unknown)} are unknown.")
    for name, tensor in stored.tensors.items():
        if name not in MAY_BE_NONFINITE and not bool(tensor.isfinite().all()):
            raise FileError(f"`{name}` must be finite.")
    x = require(stored, "x", torch.float64, (None, None))
    n = len(x)
    y = require(stored, "y", torch.float64, (n, None))
    if 0 in (n, x.shape[1], y.shape[1]):
        raise FileError(f"`x` and `y` must not be empty; got shapes {tuple(x.shape)} and {tuple(y.shape)}.")
    fixed = None
    if "fixed_noise" in stored.tensors:
        fixed = require(stored, "fixed_noise", torch.float64, (n,))
        if not bool((fixed > 0).all()) or y.shape[1] != 1:
            raise FileError("`fixed_noise` must be positive, and goes with one target.")
    return Problem(
        x,
        y,
        fixed,
        precision=settings.precision,
        backend=settings.backend,
        threads=settings.threads,
        memory_limit=as_bytes(settings.memory_limit),
    )


def _hyperparameters(stored: Stored, spec: object, problem: Problem, settings: Settings) -> Hyperparameters:
    """The kernel, the noise that its rows do not bring along, and the mean that the settings ask for."""
    kernel = kernel_from_spec(spec)
    kernel.check_columns(problem.x.shape[1])
    if ("noise" in stored.tensors) == (problem.fixed_noise is not None):
        raise FileError("There must be one of the tensors `noise` and `fixed_noise`.")
    noise = None
    if problem.fixed_noise is None:
        value, lower, upper = require(stored, "noise", torch.float64, (3,)).tolist()
        noise = Parameter(torch.tensor(value, dtype=torch.float64), lower, upper, "noise")
        if not lower >= 0.0:
            raise FileError(f"`noise` must have a lower bound that is not negative; got {lower:g}.")
    if ("mean" in stored.tensors) != (settings.mean == "constant"):
        raise FileError('There must be a tensor `mean` exactly if `settings.mean` is "constant".')
    mean = None
    if settings.mean == "constant":
        value = require(stored, "mean", torch.float64, (problem.y.shape[1],))
        mean = Parameter(value, lower=-math.inf, name="mean")
    return Hyperparameters(kernel, noise, mean)


def _standardisation(stored: Stored, name: str, columns: int) -> Standardisation:
    """Without columns that are held."""
    mean = require(stored, f"{name}.mean", torch.float64, (columns,))
    scale = require(stored, f"{name}.scale", torch.float64, (columns,))
    if not bool((scale > 0).all()):
        raise FileError(f"`{name}.scale` must be positive; got {scale.min():g}.")
    return Standardisation(mean, scale, torch.zeros(columns, dtype=torch.bool), torch.zeros_like(mean))


# --------------------------------------------------------------------------------------------- settings


def _settings_to_json(settings: Settings) -> dict[str, Any]:
    """Every field but those that are not stored; what came as an object is a JSON object."""
    values = {name: value for name, value in settings.as_dict().items() if name not in NOT_STORED}
    if isinstance(settings.kernel, Kernel):
        values["kernel"] = {"kernel": kernel_to_spec(settings.kernel)}
    if isinstance(settings.priors, Mapping):
        values["priors"] = {name: _prior_to_json(prior) for name, prior in settings.priors.items()}
    if isinstance(settings.precision, Precision):
        values["precision"] = settings.precision.name
    recipe = settings.preconditioner
    if recipe is not None and not isinstance(recipe, str):
        name = _known(recipe, "preconditioner", RECIPES)
        values["preconditioner"] = {"class": name, "fields": _plain(asdict(recipe))}  # type: ignore[call-overload]
    if not isinstance(settings.backend, str):
        values["backend"] = str(settings.backend.name)
    if not isinstance(settings.memory_limit, str):
        values["memory_limit"] = as_bytes(settings.memory_limit)
    for field in fields(Settings):  # numbers of NumPy and the like, which `check` lets pass
        value, kind = values.get(field.name), str(field.type).removesuffix(" | None")
        if value is not None and kind in ("float", "int", "bool"):
            values[field.name] = {"float": float, "int": int, "bool": bool}[kind](value)
    return values


def _settings_from_json(value: object) -> Settings:
    kinds = {field.name: str(field.type) for field in fields(Settings) if field.name not in NOT_STORED}
    given = _object(value, "settings", tuple(kinds))
    objects = {"kernel": _kernel, "priors": _priors, "preconditioner": _recipe}
    values: dict[str, Any] = {}
    for name, kind in kinds.items():
        where = f"settings.{name}"
        if name in objects and isinstance(given[name], dict):
            values[name] = objects[name](given[name], where)
        else:
            values[name] = _field(given[name], where, kind)
    return Settings(**values)


def _kernel(value: dict[str, Any], where: str) -> Kernel:
    return kernel_from_spec(_object(value, where, ("kernel",))["kernel"])


def _prior_to_json(prior: Prior) -> dict[str, Any]:
    """Its class and fields; the density that `Overall` has stands inside."""
    if type(prior) is Overall:
        return {"class": "Overall", "fields": {"density": _prior_to_json(prior.density)}}
    return {"class": _known(prior, "priors", DENSITIES), "fields": dict(vars(prior))}


def _priors(value: dict[str, Any], where: str) -> dict[str, Prior]:
    return {name: _prior(prior, f"{where}.{name}") for name, prior in value.items()}


def _prior(value: object, where: str) -> Prior:
    if isinstance(value, dict) and value.get("class") == "Overall":
        given = _object(_object(value, where, ("class", "fields"))["fields"], f"{where}.fields", ("density",))
        return Overall(_density(given["density"], f"{where}.fields.density"))
    return _density(value, where)


def _density(value: object, where: str) -> Prior:
    """Of numbers; there is nothing inside, so that no file can nest them."""
    if isinstance(value, dict) and set(value) == {"concentration", "rate"}:  # before there were others
        return _from_json(Gamma, value, where)
    cls, given = _class(value, where, DENSITIES)
    density: Prior = _from_json(cls, given, f"{where}.fields")
    return density


def _recipe(value: dict[str, Any], where: str) -> Any:
    cls, given = _class(value, where, RECIPES)
    return _from_json(cls, given, f"{where}.fields")


def _known(value: object, where: str, classes: Mapping[str, type[Any]]) -> str:
    """The name of the value's class, if a file can name it."""
    name = type(value).__name__
    if type(value) is not classes.get(name):
        raise InputError(f"`{where}` must be one of {', '.join(classes)} to be stored; got {name}.")
    return name


def _class(value: object, where: str, classes: Mapping[str, type[Any]]) -> tuple[type[Any], object]:
    """The class that an object of a file names, and its fields."""
    given = _object(value, where, ("class", "fields"))
    name = given["class"]
    if not isinstance(name, str) or name not in classes:
        raise FileError(
            f"`{where}.class` must be one of {', '.join(classes)}; got {name!r:.80}. If a newer halfgp wrote"
            " it, upgrade with pip install -U halfgp."
        )
    return classes[name], given["fields"]


# ----------------------------------------------------------------------------------------------- solves


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
    names = (
        *("column_status", "status", "iterations", "passes", "passes_by_precision", "precision", "climbs"),
        "tol",
    )
    given = _object(value, "solve", names)
    q = weights.shape[1]
    columns = _typed(given["column_status"], "solve.column_status", list)
    if len(columns) != q:
        raise FileError(
            f"`solve.column_status` must have one entry for each target, {q}; got {len(columns)}."
        )
    by_precision = _typed(given["passes_by_precision"], "solve.passes_by_precision", dict)
    climbs = _typed(given["climbs"], "solve.climbs", list)
    return SolveResult(
        solution=weights,
        status=_status(given["status"], "solve.status"),
        column_status=tuple(_status(column, "solve.column_status") for column in columns),
        iterations=_typed(given["iterations"], "solve.iterations", int),
        passes=_typed(given["passes"], "solve.passes", int),
        passes_by_precision={
            name: _typed(count, "solve.passes_by_precision", int) for name, count in by_precision.items()
        },
        residual_norms=require(stored, "solve.residual_norms", torch.float64, (q,)),
        history=require(stored, "solve.history", torch.float64, (None, q)),
        precision=_typed(given["precision"], "solve.precision", str),
        climbs=tuple(_from_json(Climb, climb, f"solve.climbs.{k}") for k, climb in enumerate(climbs)),
        tol=_number(given["tol"], "solve.tol"),
    )


def _status(value: object, where: str) -> Status:
    try:
        return Status(value)
    except ValueError as error:
        raise FileError(f"`{where}` must be one of {', '.join(Status)}; got {value!r:.80}.") from error


# ------------------------------------------------------------------------------------------- plain JSON


def _plain(value: Any) -> Any:
    """JSON has no infinity and no NaN, which become strings."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


def _from_json(cls: type[T], value: object, where: str) -> T:
    """A dataclass of plain values, whose annotations say what each must be."""
    wanted = {field.name: str(field.type) for field in fields(cls)}  # type: ignore[arg-type]
    given = _object(value, where, tuple(wanted))
    return cls(**{name: _field(given[name], f"{where}.{name}", kind) for name, kind in wanted.items()})


def _field(value: object, where: str, kind: str) -> Any:
    """A plain value of one of the plain types in an annotation such as "int | str | None"."""
    parts = kind.split(" | ")
    if value is None and "None" in parts:
        return None
    if "float" in parts:
        return _number(value, where)
    if kind == "dict[str, Any]":  # the hyperparameters of a step
        return {
            name: [_number(v, where) for v in inner] if isinstance(inner, list) else _number(inner, where)
            for name, inner in _typed(value, where, dict).items()
        }
    plain = {"int": int, "str": str, "bool": bool}
    if type(value) not in [
        plain[part] for part in parts if part in plain
    ]:  # not isinstance: a bool is no int
        raise FileError(f"`{where}` must be {kind}; got {value!r:.80}.")
    return value


def _number(value: object, where: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:  # an integer beyond all floats
            pass
    elif value in ("nan", "inf", "-inf"):
        return float(str(value))
    raise FileError(f"`{where}` must be a number; got {value!r:.80}.")


def _typed(value: object, where: str, kind: type[T]) -> T:
    """The value, if it is of exactly that type."""
    if type(value) is not kind:
        raise FileError(f"`{where}` must be of type {kind.__name__}; got {value!r:.80}.")
    return value


def _object(value: object, where: str, names: tuple[str, ...] | list[str]) -> dict[str, Any]:
    """A JSON object with exactly these fields."""
    if not isinstance(value, dict) or set(value) != set(names):
        got = sorted(map(str, value)) if isinstance(value, dict) else type(value).__name__
        raise FileError(f"`{where}` must be an object with the fields {list(names)}; got {got!s:.400}.")
    return value
