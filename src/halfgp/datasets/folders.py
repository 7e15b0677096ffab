"""Where sets are looked for, and what their names may be."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable
from pathlib import Path

from halfgp.errors import InputError


def check_name(name: str) -> None:
    """Raise unless it can be a part of a path and of an address."""
    if not re.fullmatch(r"\w[\w-]*", name):
        raise InputError(f"`name` must be made of letters, digits, - and _; got {name!r}.")


def cache_folder() -> Path:
    """Where downloads go."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "halfgp"


def folders(folder: str | Path | None) -> list[Path]:
    """Of all sets, in the order in which they are looked at."""
    if folder is not None:
        return [Path(folder)]
    named = os.environ.get("HALFGP_DATA")
    return [Path(named), cache_folder()] if named else [cache_folder()]


def places_of(folder: str | Path | None) -> str:
    """Those folders, for a message."""
    return " or ".join(map(str, folders(folder)))


def nearest_names(name: str, names: Iterable[str]) -> str:
    """What may have been meant, as the end of a message, or nothing."""
    near = difflib.get_close_matches(name, list(names), n=3, cutoff=0.5)
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
