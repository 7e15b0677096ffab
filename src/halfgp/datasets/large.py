"""Large sets, one Parquet file each."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np

from halfgp.datasets.dataset import Dataset
from halfgp.datasets.folders import check_name, folders, nearest_names, places_of
from halfgp.errors import InputError, MissingData


def load_large(
    name: str, folder: str | Path | None = None, rows: int | None = None, seed: int = 0
) -> Dataset:
    """A large set from `<folder>/large/<name>.parquet` or `<folder>/<name>.parquet`; needs pyarrow.

    Known are houseelectric (2,049,280 × 11), osborne_magnetic (990,987 × 3) and covtype_elev (581,012 × 53).
    Any file with numeric columns of which one is called `target` will do.

    Args:
        name: of the file, without its suffix.
        folder: as for `load_uci`.
        rows: a random sample of so many, in the order of the file; None for all.
        seed: of the sample.
    """
    files = large_files(name, folder)
    if not files:
        found = sorted(
            {other.stem for path in _parquets(name, folder) for other in path.parent.glob("*.parquet")}
        )
        raise MissingData(
            f"`name` must be a .parquet file in {places_of(folder)};"
            f" got {name!r}.{nearest_names(name, found)}"
            f" {'There are ' + ', '.join(found) + '.' if found else 'There are none.'}"
            " Set HALFGP_DATA or pass `folder`."
        )
    (path,) = files
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise InputError("A .parquet file needs pyarrow: `pip install halfgp[tables]`.") from error
    try:
        with parquet.ParquetFile(path) as file:
            names: list[str] = file.schema_arrow.names
            n: int = file.metadata.num_rows
            if "target" not in names:
                raise InputError(
                    f"{path} must have a column `target`; it has {', '.join(names)}. Rename one."
                )
            features = tuple(column for column in names if column != "target")
            chosen = _sample(n, rows, seed)
            values = np.empty((len(chosen), len(features) + 1))
            # One column at a time: all of them and their copy in float64 need not be in memory together.
            for k, column in enumerate((*features, "target")):
                values[:, k] = file.read(columns=[column]).column(column).to_numpy()[chosen]
            target_name = (file.schema_arrow.metadata or {}).get(b"target", b"target").decode()
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise InputError(f"{path} must be a .parquet file of numbers: {error}. Copy it again.") from error
    X, y = np.ascontiguousarray(values[:, :-1]), values[:, -1].copy()
    return Dataset(name, X, y, features, target_name, None, str(path))


def large_files(name: str, folder: str | Path | None = None) -> tuple[Path, ...]:
    """The file that `load_large` reads a set from, alone; none where it is not there."""
    check_name(name)
    return tuple(path for path in _parquets(name, folder) if path.is_file())[:1]


def _parquets(name: str, folder: str | Path | None) -> list[Path]:
    """Where a large set is looked for."""
    return [place / part / f"{name}.parquet" for place in folders(folder) for part in ("large", "")]


def _sample(n: int, rows: int | None, seed: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    if rows is None:
        return np.arange(n)
    if not 1 <= rows <= n:
        raise InputError(f"`rows` must be between 1 and {n}, all that there are; got {rows}.")
    return np.sort(np.random.default_rng(seed).choice(n, rows, replace=False))
