"""An `ExactGP` as one safetensors file: every field is checked, and none is executed.

The header has settings, what the caller adds, and the fields of what was fitted. Where targets have rows of
their own it has these for each group, and its tensors are under the group's number: "0.x", "1.x".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor

from halfgp.archive.migration import migrated
from halfgp.archive.posteriors import POSTERIORS, Known, PosteriorFormat, format_of
from halfgp.archive.settings_json import settings_from_json, settings_to_json
from halfgp.compact import COMPACT
from halfgp.errors import FileError, InputError, NotFittedError
from halfgp.hyperparameters import Hyperparameters
from halfgp.json_values import as_plain, dataclass_from, object_from, typed
from halfgp.kernel_json import kernel_from_spec, kernel_to_spec
from halfgp.model import ExactGP, FitReport, Fitted, FittedGroups, Group
from halfgp.model.groups import AnyFitted
from halfgp.model.trend import LinearTrend
from halfgp.parameters import Parameter
from halfgp.persistence import Stored, read_file, require, write_file
from halfgp.problem import Problem
from halfgp.replacement import FilePath
from halfgp.settings import Settings, as_bytes
from halfgp.standardise import Standardisation
from halfgp.training import Step

FITTED = ("kernel", "squeeze", "report", "history", "posterior")
HEADER, HEADER_OF_GROUPS = ("settings", "extra", *FITTED), ("settings", "extra", "dropped", "groups")
ALWAYS = ("x", "y", "x.mean", "x.scale", "x.constant", "x.held", "y.mean", "y.scale")
SOMETIMES = ("noise", "fixed_noise", "mean", "trend.slopes", "trend.level")
MAY_BE_NONFINITE = ("noise",)  # its bounds


def save_model(model: ExactGP, path: FilePath, extra: Mapping[str, Any] | None = None) -> None:
    """Write a fitted model; `load_model` gives one with the same predictions, to the last bit.

    Args:
        model: fitted. Its checkpoint and progress are not stored, and of a backend or a precision that came
            as an object only the name is.
        path: where to; written whole or not at all. Then the checkpoint of the fit is removed.
        extra: JSON of the caller's, handed back by `load_model`.

    Raises:
        NotFittedError: there is nothing to save yet.
        InputError: the kernel, a prior or the recipe of the preconditioner is of a class that files do not
            know, or the mean is a function.
        FileError: the file cannot be written.
    """
    if not model.is_fitted:
        raise NotFittedError(
            "This ExactGP is not fitted yet, and there is nothing to save. Call `fit` first."
        )
    fitted, settings = model.fitted, settings_to_json(model.settings)
    about, tensors = _written_groups(fitted) if isinstance(fitted, FittedGroups) else _written(fitted)
    write_file(path, "model", {"settings": settings, **about, "extra": dict(extra or {})}, tensors)
    model.mark_saved()  # not a moment earlier: its checkpoint is all that is left of a fit that is killed


def _written_groups(fitted: FittedGroups) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The fields and tensors of every group."""
    fields: list[dict[str, Any]] = []
    tensors: dict[str, Tensor] = {}
    for k, group in enumerate(fitted.groups):
        about, held = _written(group.fitted)
        fields.append({"targets": list(group.targets), **about})
        tensors |= {f"{k}.{name}": tensor for name, tensor in {**held, "rows": group.rows}.items()}
    return {"dropped": fitted.dropped, "groups": fields}, tensors


def _written(fitted: Fitted) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The fields and tensors of what was fitted together."""
    kind, form = format_of(fitted.posterior)
    about, tensors = form.write(fitted.posterior)
    tensors = {**_tensors(fitted), **tensors}
    for name, tensor in tensors.items():
        if name not in (*MAY_BE_NONFINITE, *form.may_be_nonfinite) and not bool(tensor.isfinite().all()):
            raise InputError(
                f"`model` must be finite to be saved; its {name} is not. Fit it with a larger `noise_floor`."
            )
    fields = {
        "kernel": kernel_to_spec(fitted.posterior.hyperparameters.kernel),
        "squeeze": fitted.single,
        "report": as_plain(asdict(fitted.report)),
        "history": [as_plain(asdict(step)) for step in fitted.history],
        "posterior": {"kind": kind, **about},
    }
    return fields, tensors


def load_model(path: FilePath) -> tuple[ExactGP, dict[str, Any]]:
    """The model of a file and its `extra`.

    Raises:
        FileError: whatever is wrong with the file, and where.
    """
    stored = read_file(path, "model")
    try:
        return _model(migrated(stored))
    except InputError as error:  # of a constructor that was given what the file holds
        raise FileError(f"`{path}` does not hold a valid model: {error}") from error
    except FileError as error:
        raise FileError(f"`{path}` does not hold a valid model: {error}") from error


def _model(stored: Stored) -> tuple[ExactGP, dict[str, Any]]:
    grouped = "groups" in stored.header
    header = object_from(stored.header, "header", HEADER_OF_GROUPS if grouped else HEADER)
    settings = settings_from_json(header["settings"]).check()
    if grouped:
        fitted: AnyFitted = _groups(stored, settings)
    else:
        fitted = _fitted(replace(stored, header={name: header[name] for name in FITTED}), settings)
    return ExactGP.restored(settings, fitted), typed(header["extra"], "extra", dict)


def _groups(stored: Stored, settings: Settings) -> FittedGroups:
    """Of targets that have rows of their own, each in one group."""
    parts = typed(stored.header["groups"], "groups", list)
    held: list[dict[str, Tensor]] = [{} for _ in parts]
    for name, tensor in stored.tensors.items():
        number, _, inner = name.partition(".")
        if not number.isdecimal() or not inner or int(number) >= len(parts):
            raise FileError(f"The tensor `{name}` is of no group, of which there are {len(parts)}.")
        held[int(number)][inner] = tensor
    groups: list[Group] = []
    for k, (about, tensors) in enumerate(zip(parts, held, strict=True)):
        fields = dict(object_from(about, f"groups.{k}", ("targets", *FITTED)))
        targets = typed(fields.pop("targets"), f"groups.{k}.targets", list)
        own = Stored(stored.kind, stored.version, fields, tensors)
        rows = require(own, "rows", torch.int64, (None,))
        del tensors["rows"]
        fitted = _fitted(own, settings)
        if fitted.single or len(targets) != fitted.targets or len(rows) != fitted.rows:
            raise FileError(
                f"`groups.{k}` must have the targets and rows that it names, {len(targets)} and {len(rows)}"
                f" of them; got {fitted.targets} and {fitted.rows}."
            )
        if fitted.features != (groups[0].fitted.features if groups else fitted.features):
            raise FileError(f"`groups.{k}` must have as many features as the others.")
        if bool((rows.diff() <= 0).any()) or bool((rows < 0).any()):
            raise FileError(f"`rows` of `groups.{k}` must be ascending, from 0 on.")
        groups.append(Group(tuple(typed(t, f"groups.{k}.targets", int) for t in targets), rows, fitted))
    named = [target for group in groups for target in group.targets]
    if len(groups) < 2 or sorted(named) != list(range(len(named))):
        raise FileError(f"`groups` must be several, and have every target once; got targets {named!s:.80}.")
    return FittedGroups(tuple(groups), typed(stored.header["dropped"], "dropped", int))


def _fitted(stored: Stored, settings: Settings) -> Fitted:
    """Of targets that the same rows have."""
    header = stored.header
    about = dict(typed(header["posterior"], "posterior", dict))
    form = _format(about.pop("kind", None))
    _check_tensors(stored, form)
    problem = _problem(stored, settings)
    report = dataclass_from(FitReport, header["report"], "report")
    if report.method not in ("cholesky", "cg"):
        raise FileError(f'`report.method` must be "cholesky" or "cg"; got {report.method!r:.80}.')
    if report.rows != problem.rows:
        raise FileError(f"`report.rows` must be the number of rows, {problem.rows}; got {report.rows}.")
    hyperparameters = _hyperparameters(stored, header["kernel"], problem, settings)
    posterior = form.read(about, stored, Known(problem, hyperparameters, settings, report))
    d, q = problem.features, problem.y.shape[1]
    x_scale = replace(
        _standardisation(stored, "x", d),
        constant=require(stored, "x.constant", torch.bool, (d,)),
        held=require(stored, "x.held", torch.float64, (d,)),
    )
    single = typed(header["squeeze"], "squeeze", bool)
    if single and q != 1:
        raise FileError(f"`squeeze` must be false with {q} targets.")
    steps = enumerate(typed(header["history"], "history", list))
    history = [dataclass_from(Step, step, f"history.{k}") for k, step in steps]
    y_scale, report = _standardisation(stored, "y", q), report.with_outcome(posterior.outcome)
    trend = _trend(stored, settings, d, q)
    return Fitted(posterior, x_scale, y_scale, single, history, report, trend)


def _format(kind: object) -> PosteriorFormat:
    if not isinstance(kind, str) or kind not in POSTERIORS:
        raise FileError(
            f"`posterior.kind` must be one of {', '.join(POSTERIORS)}; got {kind!r:.80}. If a newer halfgp"
            " wrote it, upgrade with pip install -U halfgp."
        )
    return POSTERIORS[kind]


def _tensors(fitted: Fitted) -> dict[str, Tensor]:
    """Of whatever kind the posterior is."""
    problem, hyperparameters = fitted.posterior.problem, fitted.posterior.hyperparameters
    tensors = {
        "x": problem.points,
        "y": problem.y,
        "x.mean": fitted.x_scale.mean,
        "x.scale": fitted.x_scale.scale,
        "x.constant": fitted.x_scale.constant,
        "x.held": fitted.x_scale.held,
        "y.mean": fitted.y_scale.mean,
        "y.scale": fitted.y_scale.scale,
    }
    if hyperparameters.noise is not None:
        noise = hyperparameters.noise
        tensors["noise"] = torch.tensor([float(noise.value), noise.lower, noise.upper], dtype=torch.float64)
    if problem.fixed_noise is not None:
        tensors["fixed_noise"] = problem.fixed_noise
    if hyperparameters.mean is not None:
        tensors["mean"] = hyperparameters.mean.value
    if isinstance(fitted.trend, LinearTrend):
        tensors |= {"trend.slopes": fitted.trend.slopes, "trend.level": fitted.trend.level}
    return tensors


def _check_tensors(stored: Stored, form: PosteriorFormat) -> None:
    """All that there must be, none that there may not be, and finite."""
    needed = {*ALWAYS, *form.tensors}
    missing, unknown = needed - set(stored.tensors), set(stored.tensors) - {*needed, *SOMETIMES}
    if missing or unknown:
        raise FileError(f"The tensors {sorted(missing)} are missing, and {sorted(unknown)} are unknown.")
    for name, tensor in stored.tensors.items():
        if name not in (*MAY_BE_NONFINITE, *form.may_be_nonfinite) and not bool(tensor.isfinite().all()):
            raise FileError(f"`{name}` must be finite.")


def _problem(stored: Stored, settings: Settings) -> Problem:
    """The rows, of shapes that fit."""
    compact = "x" in stored.tensors and stored.tensors["x"].dtype == COMPACT  # as ranks hold points
    x = require(stored, "x", COMPACT if compact else torch.float64, (None, None))
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
    kernel.check_columns(problem.features)
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


def _trend(stored: Stored, settings: Settings, features: int, targets: int) -> LinearTrend | None:
    """The plane that the settings ask for."""
    names = {"trend.slopes", "trend.level"}
    held = names & set(stored.tensors)
    if held != (names if settings.mean == "linear" or isinstance(settings.mean, float) else set()):
        raise FileError(
            f'There must be tensors {sorted(names)} exactly if `settings.mean` is "linear" or a number.'
        )
    if not held:
        return None
    return LinearTrend(
        require(stored, "trend.slopes", torch.float64, (features, targets)),
        require(stored, "trend.level", torch.float64, (targets,)),
    )


def _standardisation(stored: Stored, name: str, columns: int) -> Standardisation:
    """Without columns that are held."""
    mean = require(stored, f"{name}.mean", torch.float64, (columns,))
    scale = require(stored, f"{name}.scale", torch.float64, (columns,))
    if not bool((scale > 0).all()):
        raise FileError(f"`{name}.scale` must be positive; got {scale.min():g}.")
    return Standardisation(mean, scale, torch.zeros(columns, dtype=torch.bool), torch.zeros_like(mean))
