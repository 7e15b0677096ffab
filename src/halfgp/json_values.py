"""Values of JSON from files of any origin: each is what it should be, or a `FileError` says where."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, TypeVar

from halfgp.errors import FileError

T = TypeVar("T")
PLAIN = {"int": int, "str": str, "bool": bool}


def as_plain(value: Any) -> Any:
    """JSON has no infinity and no NaN, which become strings; finite numbers round trip exactly."""
    if isinstance(value, dict):
        return {name: as_plain(inner) for name, inner in value.items()}
    if isinstance(value, tuple):
        return [as_plain(inner) for inner in value]
    return repr(float(value)) if isinstance(value, float) and not math.isfinite(value) else value


def number_from(value: object, where: str, nan: bool = False) -> float:
    """A number; infinities are strings, and so is NaN where it is allowed."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:  # an integer beyond all floats
            number = math.nan
        if not math.isnan(number):
            return number
    elif value in ("inf", "-inf") or (nan and value == "nan"):
        return float(str(value))
    raise FileError(f"`{where}` must be a number, or a string 'inf' or '-inf'; got {value!r:.80}.")


def typed(value: object, where: str, kind: type[T]) -> T:
    """The value, if it is of exactly that type."""
    if type(value) is not kind:
        raise FileError(f"`{where}` must be of type {kind.__name__}; got {value!r:.80}.")
    return value


def object_from(value: object, where: str, names: Sequence[str]) -> dict[str, Any]:
    """A JSON object with exactly these fields."""
    if not isinstance(value, dict) or set(value) != set(names):
        got = sorted(map(str, value)) if isinstance(value, dict) else type(value).__name__
        raise FileError(f"`{where}` must be an object with the fields {list(names)}; got {got!s:.400}.")
    return value


def dataclass_from(cls: type[T], value: object, where: str) -> T:
    """A dataclass of plain values, whose annotations say what each must be."""
    wanted = {field.name: str(field.type) for field in fields(cls)}  # type: ignore[arg-type]
    given = object_from(value, where, tuple(wanted))
    return cls(**{name: field_from(given[name], f"{where}.{name}", kind) for name, kind in wanted.items()})


def field_from(value: object, where: str, kind: str) -> Any:
    """A plain value of one of the plain types in an annotation such as "int | str | None"."""
    parts = kind.split(" | ")
    if value is None and "None" in parts:
        return None
    if "float" in parts and not ("str" in parts and isinstance(value, str)):
        return number_from(value, where, nan=True)
    if kind == "dict[str, Any]":  # numbers, or lists of numbers, by name
        return {
            name: [number_from(v, where, nan=True) for v in inner]
            if isinstance(inner, list)
            else number_from(inner, where, nan=True)
            for name, inner in typed(value, where, dict).items()
        }
    if type(value) not in [PLAIN[part] for part in parts if part in PLAIN]:  # by type: a bool is no int
        raise FileError(f"`{where}` must be {kind}; got {value!r:.80}.")
    return value
