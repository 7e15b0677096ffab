"""Tables of numbers in files: a target and its features read from one, predictions written to another.

The suffix decides the format: .csv and .tsv (also .gz), .parquet (with pyarrow), .npy and .npz. Pickles are
never read.
"""

from __future__ import annotations

import csv
import difflib
import gzip
import importlib
import io
import itertools
import re
import sys
import zipfile
import zlib
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from halfgp.data import EXACT, first_rounded, is_rounded
from halfgp.delimited import GUESSED, SAMPLE, Dialect, as_integer, as_number, records
from halfgp.errors import InputError
from halfgp.replacement import replacing

Floats = np.ndarray[Any, np.dtype[np.float64]]

STANDARD_INPUT = Path("standard input")  # its name in messages; no file without a suffix is read
_LEAVE_OUT = "Leave the column out with `drop` (--drop), or encode it as numbers."


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
        path: of the file; "-" for text on standard input.
        target: the name of its target column, or, where none has that name, its index ("-1" is the last).
        features: names or indices of the columns of `X`, in that order; None for all but target and `drop`.
        drop: columns to leave out; they need not be numeric.
        require_target: whether a file without the target is refused, or read with `y` None.
        dialect: how a text file is written.

    Raises:
        InputError: if the file cannot be read, a column is absent, or a value in a wanted one is no number.
    """
    dialect.check()
    path, suffix = (STANDARD_INPUT, ".csv") if str(path) == "-" else (Path(path), _suffix(Path(path)))
    if path != STANDARD_INPUT and not path.exists():
        raise InputError(
            f"`path` must name a file; there is no {path}. Check the spelling and the directory."
        )
    if path != STANDARD_INPUT and not path.is_file():
        raise InputError(f"`path` must name a file; {path} is none. Name a file inside it.")
    if target is None and suffix == ".npz":
        target = "y"
    wish = _Wish(path, target, features, drop, require_target, dialect)
    try:
        selection, values = _READERS[suffix](path, wish)
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
    if not len(values):
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
            f" got {_listed(list(arrays))}. Rename one."
        )
    with replacing(path) as partial, partial.open("wb") as file:
        _WRITERS[suffix](file, arrays)


def check_format(path: Path) -> None:
    """Refuse a path of which `write_table` could not tell the format, or whose format it could not write."""
    if _suffix(path) == ".parquet":
        _pyarrow("pyarrow.parquet")


@dataclass(frozen=True)
class _Selection:
    """The columns wanted from a file: their positions, features first, and their names."""

    positions: tuple[int, ...]
    features: tuple[str, ...]
    target: str | None


@dataclass(frozen=True)
class _Wish:
    """What is wanted of a file; the arguments of `read_table`."""

    path: Path
    target: str | None
    features: Sequence[str] | None
    drop: Sequence[str]
    require_target: bool
    dialect: Dialect

    def select(self, names: Sequence[str]) -> _Selection:
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
        return any(name in cells and not _is_index(cells, name) for name in asked)


def _select(
    path: Path,
    names: Sequence[str],
    target: str | None,
    features: Sequence[str] | None,
    drop: Sequence[str],
    require_target: bool,
) -> _Selection:
    repeated = [name for name, count in _counts(names).items() if count > 1]
    if repeated:
        raise InputError(
            f"The columns of {path} must have different names; {_listed(repeated)} repeat. Rename them."
        )
    if target is None and require_target:
        raise InputError(
            f"`target` must name a column of {path}; got None."
            f" It has {_listed(names)}; '-1' is the last of them."
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
        raise InputError(f"At least one feature must remain of {path}; it has {_listed(names)}.")
    return _Selection(
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
    return int(wanted) % len(names) if _is_index(names, wanted) else None


def _is_index(names: Sequence[str], wanted: str) -> bool:
    return bool(re.fullmatch(r"[+-]?\d{1,9}", wanted)) and -len(names) <= int(wanted) < len(names)


def _required_position(path: Path, names: Sequence[str], argument: str, wanted: str) -> int:
    position = _position(names, wanted)
    if position is None:
        raise _unknown(path, names, argument, wanted)
    return position


def _unknown(path: Path, names: Sequence[str], argument: str, wanted: str) -> InputError:
    near = difflib.get_close_matches(wanted, names, n=3, cutoff=0.5)
    hint = f"Did you mean {' or '.join(map(repr, near))}?" if near else f"It has {_listed(names)}."
    return InputError(f"`{argument}` must name a column of {path}; got {wanted!r}. {hint}")


def _listed(names: Sequence[str], most: int = 12) -> str:
    shown = ", ".join(map(repr, names[:most]))
    return shown if len(names) <= most else f"{shown}, … ({len(names)} in all)"


def _suffix(path: Path) -> str:
    name = path.name.lower()
    for suffix in _READERS:
        if name.endswith(suffix):
            return suffix
    raise InputError(f"`path` must end in {', '.join(_READERS)}; got {path.name!r}. Convert the file.")


@contextmanager
def _opened(path: Path) -> Iterator[io.BufferedReader]:
    """The bytes of a text file, or of standard input."""
    if path == STANDARD_INPUT:
        if sys.stdin is None:
            raise InputError("`path` is -, and standard input is closed. Name a file.")
        yield io.BufferedReader(sys.stdin.buffer)  # type: ignore[arg-type]
    else:
        opener: Any = gzip.open if path.name.lower().endswith(".gz") else open
        with opener(path, "rb") as binary:
            yield binary


def _read_text(path: Path, wish: _Wish, usual: str) -> tuple[_Selection, Floats]:
    with _opened(path) as binary:
        if b"\0" in binary.peek(4096)[:4096]:
            raise InputError(f"`path` must name text in UTF-8; {path} is binary or UTF-16. Convert it.")
        text = io.TextIOWrapper(binary, encoding="utf-8-sig", newline="")
        lines = list(itertools.islice(text, SAMPLE))
        found = wish.dialect.found(lines, usual)
        assert found.delimiter is not None
        assert found.decimal is not None
        whole = itertools.chain(lines, text)
        rows = records(csv.reader(whole, delimiter=found.delimiter, skipinitialspace=True, strict=True))
        line, first = next(rows, (0, None))
        if first is None:
            raise InputError(f"`path` must name a file with rows; {path} is empty.")
        has_header = wish.has_header(first, found.decimal)
        names = [(cell.strip() if has_header else "") or f"x{k}" for k, cell in enumerate(first)]
        selection = wish.select(names)
        if not has_header:
            rows = itertools.chain([(line, first)], rows)
        return selection, _numbers(path, rows, names, selection.positions, found.decimal)


def _numbers(
    path: Path,
    rows: Iterator[tuple[int, list[str]]],
    names: list[str],
    positions: tuple[int, ...],
    decimal: str,
) -> Floats:
    """The wanted cells of all rows (n, k)."""
    # One flat buffer of doubles: a list of rows of Python floats would take four times the memory.
    values = array("d")
    pick = itemgetter(*positions) if len(positions) > 1 else itemgetter(slice(positions[0], positions[0] + 1))
    for line, row in rows:
        if len(row) != len(names):
            raise InputError(
                f"Every row of {path} must have {len(names)} cells, as the first has; line {line} has"
                f" {len(row)}. Correct the line; a cell that holds the separator belongs in double quotes."
            )
        values.extend(
            _plain(pick(row), decimal) or [_cell(path, line, names[k], row[k], decimal) for k in positions]
        )
    return np.frombuffer(values, dtype=np.float64).reshape(-1, len(positions))


def _plain(cells: Sequence[str], decimal: str) -> list[float]:
    """The numbers in cells that hold nothing else, fast; none where they must be looked at one by one."""
    joined = "".join(cells)
    if "_" in joined or (decimal == "," and "." in joined):
        return []
    try:
        numbers = (
            [float(cell.replace(",", ".")) for cell in cells] if decimal == "," else [*map(float, cells)]
        )
    except ValueError:
        return []
    # Not `>=`: a NaN in front is the largest for Python.
    return numbers if max(map(abs, numbers)) < EXACT else []


def _cell(path: Path, line: int, name: str, cell: str, decimal: str) -> float:
    number = as_number(cell, decimal)
    shown = cell if len(cell) <= 40 else cell[:40] + "…"
    if number is None:
        comma = "," in cell and as_number(cell, ",") is not None
        remedy = " If its comma is a decimal one, say so: `decimal` (--decimal ,)." if comma else ""
        raise InputError(
            f"Column {name!r} of {path} must hold numbers; got {shown!r} in line {line}.{remedy} {_LEAVE_OUT}"
        )
    integer = as_integer(cell)
    if integer is not None and is_rounded(integer):
        raise _rounded(path, name, f"{shown} in line {line}")
    return number


def _rounded(path: Path, name: str, value: object) -> InputError:
    return InputError(
        f"Column {name!r} of {path} must hold numbers that float64 has; got {value}, which it would round."
        f" {_LEAVE_OUT}"
    )


def _as_floats(path: Path, name: str, values: np.ndarray[Any, Any]) -> Floats:
    """A column (n,) of real numbers of any type; integers that would be rounded are refused."""
    value = first_rounded(values)
    if value is not None:
        raise _rounded(path, name, value)
    floats: Floats = values.astype(np.float64)
    return floats


def _read_parquet(path: Path, wish: _Wish) -> tuple[_Selection, Floats]:
    arrow, parquet = _pyarrow("pyarrow"), _pyarrow("pyarrow.parquet")
    with parquet.ParquetFile(path) as file:
        names: list[str] = file.schema_arrow.names
        selection = wish.select(names)
        values = np.empty((file.metadata.num_rows, len(selection.positions)))
        for k, position in enumerate(selection.positions):
            kind = file.schema_arrow.field(position).type
            is_number = (
                arrow.types.is_floating,
                arrow.types.is_integer,
                arrow.types.is_boolean,
                arrow.types.is_decimal,
            )
            if not any(test(kind) for test in is_number):
                raise InputError(
                    f"Column {names[position]!r} of {path} must hold numbers; got {kind}. {_LEAVE_OUT}"
                )
            # One at a time, so that the file is never in memory twice; a missing value becomes NaN.
            column = file.read(columns=[names[position]]).column(names[position])
            if arrow.types.is_integer(kind):
                _as_floats(path, names[position], column.drop_null().to_numpy())
            values[:, k] = column.cast(arrow.float64(), safe=False).to_numpy()
    return selection, values


def _read_npy(path: Path, wish: _Wish) -> tuple[_Selection, Floats]:
    with path.open("rb") as file:
        values = np.lib.format.read_array(file, allow_pickle=False)
    if values.ndim != 2 or values.dtype.kind not in "fiub":
        raise InputError(
            f"{path} must hold real numbers of shape (n, d); got {values.dtype} of shape {values.shape}."
            " Save it as a 2-D array."
        )
    selection = wish.select([f"x{k}" for k in range(values.shape[1])])
    columns = [_as_floats(path, f"x{k}", values[:, k]) for k in selection.positions]
    return selection, np.stack(columns, axis=1)


def _read_npz(path: Path, wish: _Wish) -> tuple[_Selection, Floats]:
    columns: dict[str, np.ndarray[Any, Any]] = {}
    with zipfile.ZipFile(path) as members:
        for member in members.namelist():
            name = member.removesuffix(".npy")
            with members.open(member) as file:
                values = np.lib.format.read_array(file, allow_pickle=False)
            if name == "X" and values.ndim == 2:
                columns |= {f"x{k}": values[:, k] for k in range(values.shape[1])}
            else:
                columns[name] = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
    if "y" in columns:
        columns["y"] = columns.pop("y")  # last, wherever it was saved, so that "-1" means the target
    selection = wish.select(list(columns))
    wanted = {name: columns[name] for name in (*selection.features, selection.target) if name is not None}
    for name, column in wanted.items():
        if column.ndim != 1 or column.dtype.kind not in "fiub":
            raise InputError(
                f"Column {name!r} of {path} must hold real numbers (n,); got {column.dtype} of shape"
                f" {column.shape}. Save features as `X` (n, d) and the target as `y` (n,)."
            )
    lengths = {name: len(column) for name, column in wanted.items()}
    if len(set(lengths.values())) != 1:
        raise InputError(f"The arrays of {path} must have equally many rows; got {lengths}. Save them anew.")
    columns = {name: _as_floats(path, name, column) for name, column in wanted.items()}
    return selection, np.stack(list(columns.values()), axis=1)


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


def _write_text(file: BinaryIO, columns: Mapping[str, np.ndarray[Any, Any]], delimiter: str) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))
    text.flush()
    text.detach()  # the file is its opener's to close


def _write_gzip(file: BinaryIO, columns: Mapping[str, np.ndarray[Any, Any]], delimiter: str) -> None:
    # Neither name nor time inside: the same table gives the same bytes.
    with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as compressed:
        _write_text(compressed, columns, delimiter)  # type: ignore[arg-type]


def _write_parquet(file: BinaryIO, columns: Mapping[str, np.ndarray[Any, Any]]) -> None:
    arrow, parquet = _pyarrow("pyarrow"), _pyarrow("pyarrow.parquet")
    parquet.write_table(arrow.table(dict(columns)), file)


def _write_npy(file: BinaryIO, columns: Mapping[str, np.ndarray[Any, Any]]) -> None:
    values = np.stack([column.astype(np.float64) for column in columns.values()], axis=1)
    np.lib.format.write_array(file, values, allow_pickle=False)


def _write_npz(file: BinaryIO, columns: Mapping[str, np.ndarray[Any, Any]]) -> None:
    # Not `np.savez`: it takes the names as keywords and cannot have a column called "file".
    with zipfile.ZipFile(file, "w") as members:
        for name, column in columns.items():
            with members.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, column, allow_pickle=False)


def _pyarrow(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(
            "A .parquet file needs pyarrow: `pip install halfgp[tables]`, or use .csv."
        ) from error


def _commas(path: Path, wish: _Wish) -> tuple[_Selection, Floats]:
    return _read_text(path, wish, ",")


def _tabs(path: Path, wish: _Wish) -> tuple[_Selection, Floats]:
    return _read_text(path, wish, "\t")


_READERS: dict[str, Callable[[Path, _Wish], tuple[_Selection, Floats]]] = {
    ".csv": _commas,
    ".tsv": _tabs,
    ".csv.gz": _commas,
    ".tsv.gz": _tabs,
    ".parquet": _read_parquet,
    ".npy": _read_npy,
    ".npz": _read_npz,
}
_WRITERS: dict[str, Callable[[BinaryIO, Mapping[str, np.ndarray[Any, Any]]], None]] = {
    ".csv": lambda file, columns: _write_text(file, columns, ","),
    ".tsv": lambda file, columns: _write_text(file, columns, "\t"),
    ".csv.gz": lambda file, columns: _write_gzip(file, columns, ","),
    ".tsv.gz": lambda file, columns: _write_gzip(file, columns, "\t"),
    ".parquet": _write_parquet,
    ".npy": _write_npy,
    ".npz": _write_npz,
}
