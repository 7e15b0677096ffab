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
    """The wanted columns (n, k), some rows at a time, so that the file is never in memory twice."""
    arrow, parquet = pyarrow_module("pyarrow"), pyarrow_module("pyarrow.parquet")
    with parquet.ParquetFile(path) as file:
        names: list[str] = file.schema_arrow.names
        selection = wish.select(names)
        wanted = [names[position] for position in selection.positions]
        for name, position in zip(wanted, selection.positions, strict=True):
            _check_numeric(arrow, file.schema_arrow.field(position).type, name, path)
        values = np.empty((file.metadata.num_rows, len(wanted)))
        start = 0
        for batch in file.iter_batches(CHUNK, columns=wanted):
            stop = start + len(batch)
            for k, name in enumerate(wanted):
                column = batch.column(name)
                if arrow.types.is_integer(column.type):
                    as_floats(path, name, column.drop_null().to_numpy(zero_copy_only=False))
                # A missing value becomes NaN.
                numbers = column.cast(arrow.float64(), safe=False)
                values[start:stop, k] = numbers.to_numpy(zero_copy_only=False)
            start = stop
    return selection, values


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
