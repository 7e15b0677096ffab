"""A table in a file, of whatever format its suffix names: read whole, and written whole or not at all."""

from __future__ import annotations

import csv
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from halfgp.delimited import GUESSED, Dialect, as_number
from halfgp.errors import InputError
from halfgp.replacement import replacing
from halfgp.tables.arrays import read_npy, read_npz, write_npy, write_npz
from halfgp.tables.columns import Floats, Selection, Wish, listed
from halfgp.tables.parquet import pyarrow_module, read_parquet, write_parquet
from halfgp.tables.text import STANDARD_INPUT, read_text, write_gzip, write_text


@dataclass(frozen=True, eq=False)
class Table:
    """What a file held.

    Attributes:
        X: (n, d) features; NaN where a value is missing.
        y: (n,) targets, NaN where missing; None if the file has no target.
        feature_names: (d,), in the order of the columns of `X`.
        target_name: None without a target.
        source: the file.
    """

    X: Floats
    y: Floats | None
    feature_names: tuple[str, ...]
    target_name: str | None
    source: Path


def read_table(
    path: str | Path,
    *,
    target: str | None,
    features: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    require_target: bool = True,
    dialect: Dialect = GUESSED,
    part: tuple[int, int] = (0, 1),
) -> Table:
    """Read features and target from a file of numbers.

    A text file is UTF-8. Where the dialect does not say so, the first row is a header unless each of its
    cells is a number or missing, and also then if it is 0, 1, 2, … or holds a name that is asked for; cells
    are separated by what splits all rows alike; and a comma in numbers is a decimal one where it can be
    nothing else. Columns without a name are x0, x1, … by position. Blank lines are skipped. The cells "", NA,
    N/A, NaN, null and none are missing, in any case of letters, and become NaN; true and false are 1 and 0.
    An integer that no float64 is, as an identifier may be, is refused. A .npy file is one array (n, d). In a
    .npz a 2-D array `X` gives x0, x1, … and every 1-D array is a column of its own name; `y` is the target
    unless another is named.

    Args:
        path: of the file; "-" for text on standard input; a folder for all .parquet files in it.
        target: the name of its target column, or, where none has that name, its index ("-1" is the last).
        features: names or indices of the columns of `X`, in that order; None for all but target and `drop`.
        drop: columns to leave out; they need not be numeric.
        require_target: whether a file without the target is refused, or read with `y` None.
        dialect: how a text file is written.
        part: which of how many runs of the rows, of .parquet files; those of other formats are read whole.

    Raises:
        InputError: if the file cannot be read, a column is absent, or a value in a wanted one is no number.
    """
    dialect.check()
    path, suffix = (STANDARD_INPUT, ".csv") if str(path) == "-" else (Path(path), _suffix(Path(path)))
    if path != STANDARD_INPUT and not path.exists():
        raise InputError(
            f"`path` must name a file; there is no {path}. Check the spelling and the directory."
        )
    if path != STANDARD_INPUT and not (path.is_file() or _holds_parquet(path)):
        raise InputError(f"`path` must name a file; {path} is none. Name a file inside it.")
    if target is None and suffix == ".npz":
        target = "y"
    wish = Wish(path, target, features, drop, require_target, dialect, part)
    try:
        selection, values = READERS[suffix](path, wish)
    except InputError:
        raise
    except EOFError as error:
        raise InputError(
            f"`path` must name a complete file; {path} ends too early. Copy it again."
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(f"`path` must name text in UTF-8; {path} is not: {error}. Convert it.") from error
    except (OSError, ValueError, csv.Error, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(
            f"`path` must name a readable {suffix} file; {path} is not: {error}. Check it, or write it anew."
        ) from error
    if not len(values) and part == (0, 1):
        raise InputError(f"`path` must name a file with rows; {path} has columns and no row.")
    d = len(selection.features)
    return Table(
        X=np.ascontiguousarray(values[:, :d]),
        y=None if selection.target is None else values[:, d].copy(),
        feature_names=selection.features,
        target_name=selection.target,
        source=path,
    )


def write_table(path: str | Path, columns: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Write columns of numbers, each (n,), to a file whose suffix decides the format.

    The file appears under its name only when it is complete. Text holds every digit that float64 needs:
    reading gives the same numbers. A .npy file is an array (n, columns) without names.
    """
    path = Path(path)
    suffix = _suffix(path)
    if path.is_dir() or not path.parent.is_dir():
        raise InputError(
            f"`path` must be a file in a directory that exists; got {path}. Make the directory first."
        )
    arrays = _checked_columns(columns)
    if "sv" in suffix and all(as_number(name) is not None for name in arrays):
        raise InputError(
            f"`columns` of a {suffix} file must not all be named by numbers, for they would be read as a row;"
            f" got {listed(list(arrays))}. Rename one."
        )
    with replacing(path) as temporary, temporary.open("wb") as file:
        WRITERS[suffix](file, arrays)


def check_format(path: Path) -> None:
    """Refuse a path of which `write_table` could not tell the format, or whose format it could not write."""
    if _suffix(path) == ".parquet":
        pyarrow_module("pyarrow.parquet")


def _holds_parquet(path: Path) -> bool:
    return path.is_dir() and any(path.glob("*.parquet"))


def is_dataset(path: Path) -> bool:
    """Whether it is .parquet, a file or a folder of them, which can be read in parts."""
    return _holds_parquet(path) or path.name.lower().endswith(".parquet")


def _suffix(path: Path) -> str:
    if _holds_parquet(path):
        return ".parquet"
    name = path.name.lower()
    for suffix in READERS:
        if name.endswith(suffix):
            return suffix
    raise InputError(f"`path` must end in {', '.join(READERS)}; got {path.name!r}. Convert the file.")


def _checked_columns(columns: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    arrays = {name: np.asarray(column) for name, column in columns.items()}
    if not arrays:
        raise InputError("`columns` must hold at least one column; got none.")
    rows = len(next(iter(arrays.values()))) if next(iter(arrays.values())).ndim else 0
    for name, column in arrays.items():
        if column.shape != (rows,) or column.dtype.kind not in "fiub":
            raise InputError(
                f"`columns` must be real numbers, each ({rows},); got {column.dtype} of shape {column.shape}"
                f" in {name!r}. Give every output a column of its own."
            )
    # A flag is 0 or 1 in every format: text would say True, which is no number when read again.
    return {
        name: column.astype(np.int8) if column.dtype == bool else column for name, column in arrays.items()
    }


READERS: dict[str, Callable[[Path, Wish], tuple[Selection, Floats]]] = {
    ".csv": partial(read_text, usual=","),
    ".tsv": partial(read_text, usual="\t"),
    ".csv.gz": partial(read_text, usual=","),
    ".tsv.gz": partial(read_text, usual="\t"),
    ".parquet": read_parquet,
    ".npy": read_npy,
    ".npz": read_npz,
}
WRITERS: dict[str, Callable[[BinaryIO, Mapping[str, np.ndarray[Any, Any]]], None]] = {
    ".csv": partial(write_text, delimiter=","),
    ".tsv": partial(write_text, delimiter="\t"),
    ".csv.gz": partial(write_gzip, delimiter=","),
    ".tsv.gz": partial(write_gzip, delimiter="\t"),
    ".parquet": write_parquet,
    ".npy": write_npy,
    ".npz": write_npz,
}
