"""Tables as .parquet files, with pyarrow."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from halfgp.errors import InputError
from halfgp.tables.columns import LEAVE_OUT, Floats, Selection, Wish, as_floats


def read_parquet(path: Path, wish: Wish) -> tuple[Selection, Floats]:
    """The wanted columns (n, k), one at a time."""
    arrow, parquet = pyarrow_module("pyarrow"), pyarrow_module("pyarrow.parquet")
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
                    f"Column {names[position]!r} of {path} must hold numbers; got {kind}. {LEAVE_OUT}"
                )
            # One at a time, so that the file is never in memory twice; a missing value becomes NaN.
            column = file.read(columns=[names[position]]).column(names[position])
            if arrow.types.is_integer(kind):
                as_floats(path, names[position], column.drop_null().to_numpy())
            values[:, k] = column.cast(arrow.float64(), safe=False).to_numpy()
    return selection, values


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
