"""Tables as .parquet files, with pyarrow."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from halfgp.errors import InputError
from halfgp.tables.columns import LEAVE_OUT, Floats, Selection, Wish, as_floats

CHUNK = 2**16  # rows that are decoded at a time


def read_parquet(path: Path, wish: Wish) -> tuple[Selection, Floats]:
    """The wanted columns (n, k), some rows at a time, so that no file is ever in memory twice.

    Of a file, or of all in a folder in the order of their names. Of a part of the rows only the groups are
    decoded that have some of them. Files without rows are passed by: their columns often have no type.
    """
    counts = {file: count for file, count in _row_counts(path).items() if count}
    if not counts:
        raise InputError(f"`path` must name a file with rows; {path} has columns and no row.")
    first, last = (sum(counts.values()) * (wish.part[0] + k) // wish.part[1] for k in (0, 1))
    model = next(iter(counts))
    selection = _select(model, wish)
    values = np.empty((last - first, len(selection.positions)))
    begins = 0
    for file, count in counts.items():
        wanted = range(max(first - begins, 0), min(last - begins, count))
        if wanted and _select(file, wish) != selection:
            raise InputError(
                f"All files of {path} must have the same columns, in the same order; those of {file.name} and"
                f" {model.name} differ. Write them anew, or name the columns that are wanted."
            )
        at = begins + wanted.start - first
        begins += count
        if wanted:
            _read_rows(file, selection, wanted, values[at : at + len(wanted)])
    return selection, values


def parquet_files(path: Path) -> list[Path]:
    """A file, or those of a folder."""
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not files:
        raise InputError(f"`path` must name a folder with .parquet files; {path} has none. Check the path.")
    return files


def count_rows(path: Path) -> int:
    """Of a file, or of all in a folder, without reading them."""
    return sum(_row_counts(path).values())


def _row_counts(path: Path) -> dict[Path, int]:
    """Of every file, in their order.

    Raises:
        InputError: naming the first file that is none of .parquet: of a folder it may be one of thousands.
    """
    pyarrow_module("pyarrow")
    parquet, counts = pyarrow_module("pyarrow.parquet"), {}
    for file in parquet_files(path):
        try:
            counts[file] = int(parquet.read_metadata(file).num_rows)
        except (OSError, ValueError) as error:
            raise InputError(
                f"`path` must name a readable .parquet file; {file} is not: {error}. Check it, or write it"
                " anew."
            ) from error
    return counts


def _select(path: Path, wish: Wish) -> Selection:
    """The wanted columns of one file, all of them numbers."""
    arrow, parquet = pyarrow_module("pyarrow"), pyarrow_module("pyarrow.parquet")
    schema = parquet.read_schema(path)
    selection = wish.select(schema.names)
    for position in selection.positions:
        _check_numeric(arrow, schema.field(position).type, schema.names[position], path)
    return selection


def _read_rows(path: Path, selection: Selection, rows: range, out: Floats) -> None:
    """The wanted columns of some rows of one file."""
    arrow, parquet = pyarrow_module("pyarrow"), pyarrow_module("pyarrow.parquet")
    with parquet.ParquetFile(path) as file:
        wanted = [file.schema_arrow.names[position] for position in selection.positions]
        groups, begins = _groups(file, rows)
        for batch in file.iter_batches(CHUNK, row_groups=groups, columns=wanted):
            inside = range(max(rows.start, begins), min(rows.stop, begins + len(batch)))
            some = batch.slice(inside.start - begins, len(inside))
            begins += len(batch)
            if not inside:  # of a group that begins before these rows, or ends after them
                continue
            for k, name in enumerate(wanted):
                column = some.column(name)
                if arrow.types.is_integer(column.type):
                    as_floats(path, name, column.drop_null().to_numpy(zero_copy_only=False))
                # A missing value becomes NaN.
                numbers = column.cast(arrow.float64(), safe=False).to_numpy(zero_copy_only=False)
                out[inside.start - rows.start : inside.stop - rows.start, k] = numbers


def _groups(file: Any, rows: range) -> tuple[list[int], int]:
    """The groups that hold these rows, and the row that the first of them begins with."""
    begins, start = 0, 0
    groups: list[int] = []
    for group in range(file.metadata.num_row_groups):
        ends = begins + file.metadata.row_group(group).num_rows
        if begins < rows.stop and ends > rows.start:
            if not groups:
                start = begins
            groups.append(group)
        begins = ends
    return groups, start


def _check_numeric(arrow: Any, kind: Any, name: str, path: Path) -> None:
    types = arrow.types
    if not any(
        test(kind) for test in (types.is_floating, types.is_integer, types.is_boolean, types.is_decimal)
    ):
        raise InputError(f"Column {name!r} of {path} must hold numbers; got {kind}. {LEAVE_OUT}")


def write_parquet(file: BinaryIO, columns: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Columns with their names."""
    arrow, parquet = pyarrow_module("pyarrow"), pyarrow_module("pyarrow.parquet")
    parquet.write_table(arrow.table(dict(columns)), file)


def pyarrow_module(module: str) -> Any:
    """A module of pyarrow, or a word on how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(
            "A .parquet file needs pyarrow: `pip install halfgp[tables]`, or use .csv."
        ) from error
