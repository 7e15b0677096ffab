"""Tables as arrays of NumPy: .npy and .npz; pickles are never read."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from halfgp.errors import InputError
from halfgp.tables.columns import Floats, Selection, Wish, as_floats


def read_npy(path: Path, wish: Wish) -> tuple[Selection, Floats]:
    """The wanted columns (n, k) of one array."""
    with path.open("rb") as file:
        values = np.lib.format.read_array(file, allow_pickle=False)
    if values.ndim != 2 or values.dtype.kind not in "fiub":
        raise InputError(
            f"{path} must hold real numbers of shape (n, d); got {values.dtype} of shape {values.shape}."
            " Save it as a 2-D array."
        )
    selection = wish.select([f"x{k}" for k in range(values.shape[1])])
    columns = [as_floats(path, f"x{k}", values[:, k]) for k in selection.positions]
    return selection, np.stack(columns, axis=1)


def read_npz(path: Path, wish: Wish) -> tuple[Selection, Floats]:
    """The wanted columns (n, k) of several arrays."""
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
    columns = {name: as_floats(path, name, column) for name, column in wanted.items()}
    return selection, np.stack(list(columns.values()), axis=1)


def write_npy(file: BinaryIO, columns: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """One array (n, columns), without names."""
    values = np.stack([column.astype(np.float64) for column in columns.values()], axis=1)
    np.lib.format.write_array(file, values, allow_pickle=False)


def write_npz(file: BinaryIO, columns: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """One array for each column."""
    # Not `np.savez`: it takes the names as keywords and cannot have a column called "file".
    with zipfile.ZipFile(file, "w") as members:
        for name, column in columns.items():
            with members.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, column, allow_pickle=False)
