"""Settings as JSON: plain values, and the few objects that a file can name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, TypeVar

from halfgp.errors import FileError, InputError
from halfgp.json_values import as_plain, dataclass_from, field_from, object_from
from halfgp.kernel_json import kernel_from_spec, kernel_to_spec
from halfgp.kernels import Kernel
from halfgp.options import Options, declarations
from halfgp.precision import Precision
from halfgp.preconditioners.recipes import CLASSES
from halfgp.priors import Gamma, HalfCauchy, LogNormal, Normal, Overall, Prior
from halfgp.settings import GROUPS, Settings, as_bytes

# The only recipes and priors that a file can name: nothing is imported or looked up by a name in a file.
RECIPES: dict[str, type[Any]] = {cls.__name__: cls for cls in CLASSES}
DENSITIES: dict[str, type[Any]] = {cls.__name__: cls for cls in (Gamma, HalfCauchy, LogNormal, Normal)}
# What belongs to a fit or to a screen, not to a model.
NOT_STORED = ("checkpoint", "restarts", "search")
Group = TypeVar("Group", bound=Options)


def settings_to_json(settings: Settings) -> dict[str, Any]:
    """Every field but those that are not stored; what came as an object is a JSON object."""
    values = {name: value for name, value in settings.as_dict().items() if name not in NOT_STORED}
    if isinstance(settings.kernel, Kernel):
        values["kernel"] = {"kernel": kernel_to_spec(settings.kernel)}
    if isinstance(settings.priors, Mapping):
        values["priors"] = {name: _prior_to_json(prior) for name, prior in settings.priors.items()}
    if isinstance(settings.precision, Precision):
        values["precision"] = settings.precision.name
    if not isinstance(settings.backend, str):
        values["backend"] = str(settings.backend.name)
    if not isinstance(settings.memory_limit, str):
        values["memory_limit"] = as_bytes(settings.memory_limit)
    if callable(settings.mean):
        raise InputError(
            "`mean` must be a name or a number for a model to be stored; got a function, and files hold no"
            " code. Take it off the targets before `fit`, and add it to predictions. `mean='linear'`,"
            " a plane, is stored."
        )
    if not isinstance(settings.mean, str):
        values["mean"] = float(settings.mean)
    for name in GROUPS:
        group = getattr(settings, name)
        stored = {key: value for key, value in group.as_dict().items() if key not in NOT_STORED}
        values[name] = _plain_numbers(group, stored)
    recipe = settings.solve.preconditioner
    if recipe is not None and not isinstance(recipe, str):
        name = _known(recipe, "solve__preconditioner", RECIPES)
        fields = as_plain(asdict(recipe))  # type: ignore[call-overload]
        values["solve"]["preconditioner"] = {"class": name, "fields": fields}
    return _plain_numbers(settings, values)


def _plain_numbers(options: Options, values: dict[str, Any]) -> dict[str, Any]:
    """Numbers of Python for those of NumPy and the like, which `check` lets pass."""
    numbers: dict[str, Any] = {"float": float, "int": int, "bool": bool}
    for declared in declarations(type(options)):
        value, kind = values.get(declared.name), str(declared.type).removesuffix(" | None")
        if value is not None and kind in numbers:
            values[declared.name] = numbers[kind](value)
    return values


def settings_from_json(value: object) -> Settings:
    """The settings of a file, each of the type that its annotation says."""
    return _options_from(Settings, value, "settings")


def _options_from(cls: type[Group], value: object, where: str) -> Group:
    kinds = {d.name: str(d.type) for d in declarations(cls) if d.name not in NOT_STORED}
    given = object_from(value, where, tuple(kinds))
    return cls(**{name: _option_from(name, given[name], where, kind) for name, kind in kinds.items()})


def _option_from(name: str, value: object, where: str, kind: str) -> Any:
    """A group, an object that a file can name, or a plain value."""
    objects = {"kernel": _kernel, "priors": _priors, "preconditioner": _recipe}
    if name in GROUPS:
        return _options_from(GROUPS[name], value, f"{where}.{name}")
    if name in objects and isinstance(value, dict):
        return objects[name](value, f"{where}.{name}")
    return field_from(value, f"{where}.{name}", kind)


def _kernel(value: dict[str, Any], where: str) -> Kernel:
    return kernel_from_spec(object_from(value, where, ("kernel",))["kernel"])


def _prior_to_json(prior: Prior) -> dict[str, Any]:
    """Its class and fields; the density that `Overall` has stands inside."""
    if type(prior) is Overall:
        return {"class": "Overall", "fields": {"density": _prior_to_json(prior.density)}}
    return {"class": _known(prior, "priors", DENSITIES), "fields": dict(vars(prior))}


def _priors(value: dict[str, Any], where: str) -> dict[str, Prior]:
    return {name: _prior(prior, f"{where}.{name}") for name, prior in value.items()}


def _prior(value: object, where: str) -> Prior:
    if isinstance(value, dict) and value.get("class") == "Overall":
        fields_ = object_from(value, where, ("class", "fields"))["fields"]
        given = object_from(fields_, f"{where}.fields", ("density",))
        return Overall(_density(given["density"], f"{where}.fields.density"))
    return _density(value, where)


def _density(value: object, where: str) -> Prior:
    """Of numbers; there is nothing inside, so that no file can nest them."""
    if isinstance(value, dict) and set(value) == {"concentration", "rate"}:  # before there were others
        return dataclass_from(Gamma, value, where)
    cls, given = _class(value, where, DENSITIES)
    density: Prior = dataclass_from(cls, given, f"{where}.fields")
    return density


def _recipe(value: dict[str, Any], where: str) -> Any:
    cls, given = _class(value, where, RECIPES)
    return dataclass_from(cls, given, f"{where}.fields")


def _known(value: object, where: str, classes: Mapping[str, type[Any]]) -> str:
    """The name of the value's class, if a file can name it."""
    name = type(value).__name__
    if type(value) is not classes.get(name):
        raise InputError(f"`{where}` must be one of {', '.join(classes)} to be stored; got {name}.")
    return name


def _class(value: object, where: str, classes: Mapping[str, type[Any]]) -> tuple[type[Any], object]:
    """The class that an object of a file names, and its fields."""
    given = object_from(value, where, ("class", "fields"))
    name = given["class"]
    if not isinstance(name, str) or name not in classes:
        raise FileError(
            f"`{where}.class` must be one of {', '.join(classes)}; got {name!r:.80}. If a newer halfgp wrote"
            " it, upgrade with pip install -U halfgp."
        )
    return classes[name], given["fields"]
