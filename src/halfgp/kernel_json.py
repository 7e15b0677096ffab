"""Kernels as JSON: names of classes that files can name, options, parameters and parts; no code is run."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from halfgp.errors import FileError, InputError
from halfgp.json_values import as_plain, number_from, object_from
from halfgp.kernels import (
    RBF,
    Constant,
    Kernel,
    Linear,
    Matern,
    Periodic,
    Power,
    Product,
    RationalQuadratic,
    Scaled,
    Sum,
    White,
)
from halfgp.kernels.base import LeafKernel
from halfgp.parameters import Parameter

# A level of a kernel is two of JSON, of which a file holds `persistence.MAX_JSON_DEPTH` at most.
MAX_KERNEL_DEPTH = 50


@dataclass(frozen=True)
class _Entry:
    """How a class of kernels is stored: the names of its own parameters and options, and its parts.

    Attributes:
        build: options and parameters by name, and the parts, to a kernel.
        parts: how many kernels it is made of; None is any number, at least one.
    """

    cls: type[Kernel]
    build: Callable[[dict[str, Any], list[Kernel]], Kernel]
    parameters: tuple[str, ...]
    options: tuple[str, ...] = ()
    parts: int | None = 0


def _leaf(cls: type[Kernel], parameters: Sequence[str], options: Sequence[str] = ()) -> _Entry:
    """A kernel without parts."""
    return _Entry(cls, lambda named, _: cls(**named), tuple(parameters), tuple(options))


# Every class that a file can name, beside those that are registered: nothing is imported by a name in a file.
_REGISTRY: dict[str, _Entry] = {
    "RBF": _leaf(RBF, ["lengthscale"], ["active_dims"]),
    "Matern": _leaf(Matern, ["lengthscale"], ["nu", "active_dims"]),
    "RationalQuadratic": _leaf(RationalQuadratic, ["alpha", "lengthscale"], ["active_dims"]),
    "Periodic": _leaf(Periodic, ["period", "lengthscale"], ["active_dims"]),
    "Linear": _leaf(Linear, ["variance"], ["active_dims"]),
    "Constant": _leaf(Constant, ["value"]),
    "White": _leaf(White, ["variance"]),
    "Scaled": _Entry(
        Scaled, lambda named, parts: Scaled(kernel=parts[0], **named), ("outputscale",), parts=1
    ),
    "Power": _Entry(Power, lambda named, parts: Power(parts[0], **named), (), options=("exponent",), parts=1),
    "Sum": _Entry(Sum, lambda _, parts: Sum(parts), (), parts=None),
    "Product": _Entry(Product, lambda _, parts: Product(parts), (), parts=None),
}


def register_kernel(
    cls: type[LeafKernel], parameters: Sequence[str], options: Sequence[str] = ("active_dims",)
) -> None:
    """Let files hold kernels of a class from outside this package, which must be registered to be read again.

    Args:
        cls: its constructor takes parameters and options by name.
        parameters: names, in the order of `named_parameters`.
        options: names of properties, JSON values, that the constructor takes beside the parameters.
    """
    known = _REGISTRY.get(cls.__name__)
    if known is not None and known.cls is not cls:
        raise InputError(
            f"`cls` must have a name of its own; {cls.__name__} is {known.cls.__module__}'s. Rename it."
        )
    _REGISTRY[cls.__name__] = _leaf(cls, parameters, options)


def kernel_to_spec(kernel: Kernel) -> dict[str, Any]:
    """A kernel as JSON from which `kernel_from_spec` makes the same, to the last bit."""
    return _to_spec(kernel, 1)


def kernel_from_spec(spec: object) -> Kernel:
    """The kernel of a spec.

    Raises:
        FileError: the spec is not one, and where.
    """
    return _from_spec(spec, "kernel", 1)


def _to_spec(kernel: Kernel, depth: int) -> dict[str, Any]:
    """The spec of a kernel at that depth."""
    name = type(kernel).__name__
    entry = _REGISTRY.get(name)
    if entry is None or entry.cls is not type(kernel):
        raise InputError(
            f"`kernel` must be made of {', '.join(_REGISTRY)} to be stored; got {name}."
            " Register a class of your own with `halfgp.register_kernel`."
        )
    if depth > MAX_KERNEL_DEPTH:
        raise InputError(f"`kernel` must be nested at most {MAX_KERNEL_DEPTH} deep to be stored. Flatten it.")
    # Its own parameters come first, and those of its parts after them.
    own = itertools.islice(kernel.named_parameters(), len(entry.parameters))
    parts: Sequence[Kernel] = kernel.kernels if isinstance(kernel, Sum | Product) else ()
    if isinstance(kernel, Scaled | Power):
        parts = [kernel.kernel]
    return {
        "class": name,
        "options": {option: as_plain(getattr(kernel, option)) for option in entry.options},
        "parameters": {
            key: {
                "value": parameter.value.detach().tolist(),
                "lower": as_plain(parameter.lower),
                "upper": as_plain(parameter.upper),
                **({"fixed": True} if parameter.fixed else {}),
            }
            for key, parameter in own
        },
        "kernels": [_to_spec(part, depth + 1) for part in parts],
    }


def _from_spec(spec: object, where: str, depth: int) -> Kernel:
    """The kernel of the spec at that place and depth."""
    if depth > MAX_KERNEL_DEPTH:
        raise FileError(f"`{where}` is nested more than {MAX_KERNEL_DEPTH} deep. The file is damaged.")
    fields = object_from(spec, where, ("class", "options", "parameters", "kernels"))
    name = fields["class"]
    entry = _REGISTRY.get(name) if isinstance(name, str) else None
    if entry is None:
        raise FileError(
            f"`{where}.class` must be one of {', '.join(_REGISTRY)}; got {name!r:.80}. If a newer halfgp"
            " wrote it, upgrade with pip install -U halfgp; if the class is your own, pass it to"
            " `halfgp.register_kernel` first."
        )
    options = object_from(fields["options"], f"{where}.options", entry.options)
    named: dict[str, Any] = {
        key: _OPTIONS.get(key, _any)(value, f"{where}.options.{key}") for key, value in options.items()
    }
    parameters = object_from(fields["parameters"], f"{where}.parameters", entry.parameters)
    for key, value in parameters.items():
        named[key] = _parameter(value, key, f"{where}.parameters.{key}")
    parts = fields["kernels"]
    if not isinstance(parts, list) or (not parts if entry.parts is None else len(parts) != entry.parts):
        count = {None: "at least one kernel", 0: "no kernel", 1: "one kernel"}[entry.parts]
        raise FileError(f"`{where}.kernels` must be a list of {count}; got {parts!r:.80}.")
    kernels = [_from_spec(part, f"{where}.kernels.{k}", depth + 1) for k, part in enumerate(parts)]
    try:
        return entry.build(named, kernels)
    except InputError as error:
        raise FileError(f"`{where}` is not a valid {name}: {error}") from error


def _columns(value: object, where: str) -> list[int] | None:
    """Columns, or None for all."""
    if value is None:
        return None
    if not isinstance(value, list) or not all(type(column) is int for column in value):  # a bool is none
        raise FileError(f"`{where}` must be a list of columns or null; got {value!r:.80}.")
    return value


def _parameter(value: object, name: str, where: str) -> Parameter:
    """A parameter with its bounds; whether it lies within them is checked by itself."""
    fixed = isinstance(value, dict) and value.get("fixed") is True
    fields = object_from(value, where, ("value", "lower", "upper", *(["fixed"] if fixed else [])))
    given = fields["value"]
    numbers: float | list[float]
    if isinstance(given, list):
        numbers = [number_from(number, f"{where}.value") for number in given]
    else:
        numbers = number_from(given, f"{where}.value")
    lower, upper = (number_from(fields[bound], f"{where}.{bound}") for bound in ("lower", "upper"))
    try:
        return Parameter(torch.tensor(numbers, dtype=torch.float64), lower, upper, name, fixed)
    except InputError as error:
        raise FileError(f"`{where}` is not a valid parameter: {error}") from error


def _any(value: object, _where: str) -> object:
    """What the constructor of a registered class checks itself."""
    return value


_OPTIONS: dict[str, Callable[[object, str], object]] = {"nu": number_from, "active_dims": _columns}
