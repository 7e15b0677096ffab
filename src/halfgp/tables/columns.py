"""Which columns of a file are wanted, and that each holds numbers that float64 has."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from halfgp.data import first_rounded
from halfgp.delimited import Dialect, as_number
from halfgp.errors import InputError

Floats = np.ndarray[Any, np.dtype[np.float64]]
LEAVE_OUT = "Leave the column out with `drop` (--drop), or encode it as numbers."


@dataclass(frozen=True)
class Selection:
    """The columns wanted from a file: their positions, features first, and their names."""

    positions: tuple[int, ...]
    features: tuple[str, ...]
    target: str | None


@dataclass(frozen=True)
class Wish:
    """What is wanted of a file; the arguments of `read_table`.

    Attributes:
        part: which of how many runs of the rows, of a file that can be read in parts; others are read whole.
    """

    path: Path
    target: str | None
    features: Sequence[str] | None
    drop: Sequence[str]
    require_target: bool
    dialect: Dialect
    part: tuple[int, int] = (0, 1)

    def select(self, names: Sequence[str]) -> Selection:
        """Of the columns of those names."""
        return _select(self.path, names, self.target, self.features, self.drop, self.require_target)

    def has_header(self, first: Sequence[str], decimal: str) -> bool:
        """Whether the first row of a text holds names."""
        if self.dialect.header is not None:
            return self.dialect.header
        if any(as_number(cell, decimal) is None for cell in first):
            return True
        cells = [cell.strip() for cell in first]
        # As pandas writes columns that have no names.
        if len(cells) > 2 and cells == [str(k) for k in range(len(cells))]:
            return True
        asked = {*(() if self.target is None else (self.target,)), *(self.features or ()), *self.drop}
        return any(name in cells and not is_index(cells, name) for name in asked)


def _select(
    path: Path,
    names: Sequence[str],
    target: str | None,
    features: Sequence[str] | None,
    drop: Sequence[str],
    require_target: bool,
) -> Selection:
    repeated = [name for name, count in _counts(names).items() if count > 1]
    if repeated:
        raise InputError(
            f"The columns of {path} must have different names; {listed(repeated)} repeat. Rename them."
        )
    if target is None and require_target:
        raise InputError(
            f"`target` must name a column of {path}; got None."
            f" It has {listed(names)}; '-1' is the last of them."
        )
    target_at = None if target is None else _position(names, target)
    if target is not None and target_at is None and require_target:
        raise _unknown(path, names, "target", target)
    dropped = {_required_position(path, names, "drop", name) for name in drop}
    if target_at in dropped:
        raise InputError(f"`drop` must not hold the target; got {target!r} in both. Remove it from one.")
    if features is None:
        chosen = [k for k in range(len(names)) if k != target_at and k not in dropped]
    else:
        chosen = [_required_position(path, names, "features", name) for name in features]
        taken = _counts(chosen)
        for k in chosen:
            reason = "is the target" if k == target_at else "is in `drop`" if k in dropped else "comes twice"
            if k == target_at or k in dropped or taken[k] > 1:
                raise InputError(
                    f"`features` must be columns beside the others; {names[k]!r} {reason}. Remove one."
                )
    if not chosen:
        raise InputError(f"At least one feature must remain of {path}; it has {listed(names)}.")
    return Selection(
        positions=(*chosen, *(() if target_at is None else (target_at,))),
        features=tuple(names[k] for k in chosen),
        target=None if target_at is None else names[target_at],
    )


def _counts(items: Sequence[Any]) -> dict[Any, int]:
    counts: dict[Any, int] = {}
    for item in items:
        counts[item] = counts.get(item, 0) + 1
    return counts


def _position(names: Sequence[str], wanted: str) -> int | None:
    """Of the column with that name, else of the one with that index; None if there is neither."""
    if wanted in names:
        return names.index(wanted)
    return int(wanted) % len(names) if is_index(names, wanted) else None


def is_index(names: Sequence[str], wanted: str) -> bool:
    """Whether it is a number that counts columns, from either end."""
    return bool(re.fullmatch(r"[+-]?\d{1,9}", wanted)) and -len(names) <= int(wanted) < len(names)


def _required_position(path: Path, names: Sequence[str], argument: str, wanted: str) -> int:
    position = _position(names, wanted)
    if position is None:
        raise _unknown(path, names, argument, wanted)
    return position


def _unknown(path: Path, names: Sequence[str], argument: str, wanted: str) -> InputError:
    near = difflib.get_close_matches(wanted, names, n=3, cutoff=0.5)
    hint = f"Did you mean {' or '.join(map(repr, near))}?" if near else f"It has {listed(names)}."
    return InputError(f"`{argument}` must name a column of {path}; got {wanted!r}. {hint}")


def listed(names: Sequence[str], most: int = 12) -> str:
    """Names for a message, cut short where there are many."""
    shown = ", ".join(map(repr, names[:most]))
    return shown if len(names) <= most else f"{shown}, … ({len(names)} in all)"


def rounded(path: Path, name: str, value: object) -> InputError:
    """What is said of a number that float64 does not have."""
    return InputError(
        f"Column {name!r} of {path} must hold numbers that float64 has; got {value}, which it would round."
        f" {LEAVE_OUT}"
    )


def as_floats(path: Path, name: str, values: np.ndarray[Any, Any]) -> Floats:
    """A column (n,) of real numbers of any type; integers that would be rounded are refused."""
    value = first_rounded(values)
    if value is not None:
        raise rounded(path, name, value)
    floats: Floats = values.astype(np.float64)
    return floats
