"""Models with the names of their columns, and tables whose columns are put in the order of the model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from halfgp.archive import load_model, save_model
from halfgp.cli import options
from halfgp.compact import COMPACT, CompactPoints
from halfgp.delimited import Dialect
from halfgp.distributed import Ranks
from halfgp.distributed.agreement import require_agreement, together
from halfgp.errors import FileError, InputError
from halfgp.model import ExactGP
from halfgp.settings import Settings
from halfgp.standardise import Standardisation
from halfgp.tables import Floats, Table, count_rows, is_dataset, read_table


@dataclass(frozen=True, eq=False)
class NamedModel:
    """A fitted model of one target.

    Attributes:
        gp: the model.
        feature_names: (d,), or None where it was fitted without names.
        target_name: or None where it is not known.
    """

    gp: ExactGP
    feature_names: tuple[str, ...] | None
    target_name: str | None

    @property
    def columns(self) -> tuple[str, ...]:
        """Names for people: x0, x1, … where there are none."""
        return self.feature_names or tuple(f"x{k}" for k in range(self.gp.fitted.features))

    def save(self, path: Path) -> None:
        """Write it to a file, which `halfgp.load` reads too."""
        names = None if self.feature_names is None else list(self.feature_names)
        save_model(self.gp, path, {"feature_names": names, "target_name": self.target_name})

    @classmethod
    def load(cls, path: Path) -> NamedModel:
        """From a file.

        Raises:
            FileError: whatever is wrong with it.
        """
        gp, extra = load_model(path)
        if gp.fitted.targets != 1:
            raise InputError(
                f"`{path}` is a model of {gp.fitted.targets} targets, and commands are for one."
                " Use `halfgp.load` in Python."
            )
        names, target = extra.get("feature_names"), extra.get("target_name")
        if names is not None and not (
            isinstance(names, list)
            and all(isinstance(name, str) for name in names)
            and len(names) == gp.fitted.features
        ):
            raise FileError(f"The names of features in `{path}` are damaged: {names!r:.80}. Fit it anew.")
        if target is not None and not isinstance(target, str):
            raise FileError(f"The name of the target in `{path}` is damaged: {target!r:.80}. Fit it anew.")
        return cls(gp, None if names is None else tuple(names), target)


class KnownRows(NamedTuple):
    """Rows of a table whose values are known.

    Attributes:
        X: (m, d), in the order of the model's columns.
        y: (m,).
        target_name: as the table has it.
        dropped: how many rows more have no value.
        source: the file.
    """

    X: Floats
    y: Floats
    target_name: str
    dropped: int
    source: Path


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """A table to learn from, and the targets of all its rows; points may be shared out among ranks.

    Attributes:
        table: the rows that are here, all of them or one run.
        y: (n,) of all.
        ranks: who have the other runs; None where all rows are here.
    """

    table: Table
    y: Floats
    ranks: Ranks | None

    def points(self, rows: Floats | None = None) -> Floats:
        """Points (m, d) of all rows, or of some, in float64. All ranks meet for it."""
        if self.ranks is None:
            return self.table.X if rows is None else self.table.X[rows]
        some = slice(None) if rows is None else rows
        found = np.empty((len(self.y) if rows is None else len(rows), self.table.X.shape[1]))
        for k in range(found.shape[1]):
            found[:, k] = self._column(k)[some].numpy()
        return found

    def compact_points(self, rows: Floats) -> CompactPoints:
        """Those of some rows (m,), as `fit` would hold them: one column at a time is here in float64."""
        known = ~np.isnan(self.y[rows])
        values = torch.empty(len(rows), self.table.X.shape[1], dtype=COMPACT)
        scales = []
        for k in range(values.shape[1]):
            column = self._column(k)[rows, None]
            scales.append(Standardisation.of(column[known]).holding(column[known]))
            values[:, k : k + 1] = scales[-1].apply(column, COMPACT)
        return CompactPoints(values, Standardisation.beside(scales))

    def _column(self, k: int) -> torch.Tensor:
        """(n,) of all rows."""
        mine = torch.from_numpy(self.table.X[:, k].copy())
        return mine if self.ranks is None else self.ranks.gathered(mine, len(self.y))


def new_model(kernel: str, noise: float | None, noise_floor: float | None, **settings: Any) -> ExactGP:
    """A model as options describe it, checked before anything is read."""
    if noise is None:  # training starts above its floor, wherever that is
        noise = max(Settings.noise, 2 * (noise_floor or 0.0))
    gp = ExactGP(kernel, noise_floor=noise_floor, noise=noise, **settings)
    gp.settings.check()
    return gp


def read_points(model: NamedModel, path: Path, dialect: Dialect) -> Floats:
    """The points (m, d) of a table, whose columns are found by name where the model has names.

    Without names, the columns are taken as they stand; the target's, if the table has it, is left out.
    """
    table = _read(model, path, model.target_name, dialect, require_target=False)
    return _checked(model, table).X


def read_rows(model: NamedModel, path: Path, target: str | None, dialect: Dialect) -> KnownRows:
    """The rows of a table that have a value of the target: the one named, or that of the fit."""
    target = target or model.target_name
    if target is None:
        raise InputError("`target` must name the column of the values: the model does not know it.")
    table = _checked(model, _read(model, path, target, dialect, require_target=True))
    assert table.y is not None
    whole = ~np.isnan(table.y)
    if not whole.any():
        raise InputError(f"Column {table.target_name!r} of {table.source} has no value to compare with.")
    dropped = len(whole) - int(whole.sum())
    return KnownRows(table.X[whole], table.y[whole], table.target_name or target, dropped, table.source)


def read_training(
    data: Path,
    target: str,
    features: str | None,
    drop: str | None,
    dialect: Dialect,
    ranks: Ranks | None = None,
) -> TrainingRows:
    """A table to learn from, without holes in its features; of .parquet every rank reads its run of rows."""
    with together(ranks):  # each may have a disk of its own
        shared = ranks if is_dataset(data) else None
        table = read_table(
            data,
            target=target,
            features=options.columns(features, "--features"),
            drop=options.columns(drop, "--drop") or (),
            dialect=dialect,
            part=(0, 1) if shared is None else (shared.index, shared.count),
        )
        rows = len(table.X) if shared is None else count_rows(data)
    names = " ".join([*table.feature_names, str(table.target_name)])
    require_agreement(ranks, {"columns in the data": names, "number of rows in the data": f"{rows:,}"})
    _check_features(table, shared, rows)
    assert table.y is not None
    y = table.y if shared is None else shared.gathered(torch.from_numpy(table.y), rows).numpy()
    return TrainingRows(table, y, shared)


def _check_features(table: Table, ranks: Ranks | None = None, rows: int = 0) -> None:
    """Refuse a table with holes in its features, naming the first, whoever of several ranks has it."""
    bad, d = ~np.isfinite(table.X), table.X.shape[1]
    first = 0 if ranks is None else ranks.held(rows).start
    nowhere = float(2**53)
    place = torch.tensor(first * d + float(bad.argmax()) if bad.any() else nowhere, dtype=torch.float64)
    holes = torch.from_numpy(bad.sum(axis=0))
    if ranks is not None:
        place, holes = -ranks.largest(-place), ranks.total(holes)
    if float(place) == nowhere:
        return
    row, column = divmod(int(place), d)
    name = table.feature_names[column]
    raise InputError(
        f"Column {name!r} of {table.source} has {int(holes[column]):,} values that are missing or infinite,"
        f" the first in row {row + 1} of the data. Fill them in, remove the rows, or fit without it:"
        f" --drop {name!r}."
    )


def _read(
    model: NamedModel, path: Path, target: str | None, dialect: Dialect, *, require_target: bool
) -> Table:
    names = model.feature_names
    if names is None:
        return read_table(path, target=target, require_target=require_target, dialect=dialect)
    try:
        table = read_table(
            path, target=target, features=names, require_target=require_target, dialect=dialect
        )
    except InputError as error:
        if "`features` must name a column" not in str(error):
            raise
        said = str(error).replace(
            "`features` must name a column of", "the model needs a column that is not in"
        )
        raise InputError(said[0].upper() + said[1:]) from error
    absent = [name for name in names if name not in table.feature_names]
    if absent:  # a name such as "3" would otherwise be taken for the index of a column
        raise InputError(f"The model needs a column that is not in {table.source}; got no {absent[0]!r}.")
    return table


def _checked(model: NamedModel, table: Table) -> Table:
    if table.X.shape[1] != len(model.columns):
        raise InputError(
            f"{table.source} must have {len(model.columns)} columns beside the target, as the model was"
            f" fitted without names; got {table.X.shape[1]}."
        )
    _check_features(table)
    return table
