"""Every rank reads its rows of .parquet files, and all have the table; what one finds is told by all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from contracts import rank_programs as programs
from contracts.job import Job, job

from halfgp.standardise import Standardisation

pyarrow = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


@pytest.fixture(scope="module")
def ranks() -> Iterator[Job]:
    with job(2) as found:
        yield found


def folder(path: Path, *files: dict[str, list[float]]) -> str:
    path.mkdir()
    for k, columns in enumerate(files):
        pq.write_table(pyarrow.table(columns), path / f"{k}.parquet")
    return str(path)


def rows(n: int, feature: str = "a") -> dict[str, list[float]]:
    return {feature: [0.5 * k for k in range(n)], "y": [float(-k) for k in range(n)]}


def test_a_folder_is_read_by_parts(ranks: Job, tmp_path: Path) -> None:
    """Of seven rows in files of different sizes, two with none, whose columns have no type."""
    path = folder(tmp_path / "rows", rows(0), rows(5), rows(0), rows(2))
    names, x, y = programs.read(path)
    assert len(y) == 7
    for found in ranks.run(programs.read, path):
        assert found[0] == names
        assert np.array_equal(found[1], x)
        assert np.array_equal(found[2], y)


def test_points_are_compact_as_those_of_one_process_would_be_rounded(ranks: Job, tmp_path: Path) -> None:
    """To the bit, whoever read which rows; a column that says nothing is held, rows without a target too."""
    some = [0, 2, 3, 5, 6]
    columns = [{**rows(n), "b": [7.0] * n, "c": [1e9 + k * k for k in range(n)]} for n in (4, 3)]
    columns[1]["y"][1] = float("nan")
    path = folder(tmp_path / "rows", *columns)
    _, x, y = programs.read(path)
    wanted = Standardisation.of(torch.from_numpy(x[some][~np.isnan(y[some])]))
    wanted = wanted.holding(torch.from_numpy(x[some]))
    for values, mean, scale in ranks.run(programs.compact, path, some):
        assert values.dtype == torch.float32
        assert torch.equal(values, wanted.apply(torch.from_numpy(x[some]), torch.float32))
        assert torch.equal(mean, wanted.mean)
        assert torch.equal(scale, wanted.scale)


@pytest.mark.parametrize("row", [1, 5])
def test_a_hole_is_named_by_all_wherever_it_is(ranks: Job, tmp_path: Path, row: int) -> None:
    columns = rows(7)
    for hole in (row, 6):
        columns["a"][hole] = float("nan")
    path = folder(tmp_path / "rows", columns)
    said = ranks.run(programs.read, path)
    assert said == [programs.read(path)] * 2
    assert f"'a' of {path} has 2 values that are missing or infinite, the first in row {row + 1}" in said[0]


def test_other_columns_in_the_file_of_one_rank(ranks: Job, tmp_path: Path) -> None:
    path = folder(tmp_path / "rows", rows(5), rows(5, "other"))
    first, second = ranks.run(programs.read, path)
    assert first.startswith(
        "RankError: Rank 1 of 2 could not go on, and so none can. InputError: All files of"
    )
    assert second.startswith("InputError: All files of")


def test_a_file_of_nothing_is_named_by_all(ranks: Job, tmp_path: Path) -> None:
    """As a writer leaves it that has met a full disk."""
    path = Path(folder(tmp_path / "rows", rows(5)))
    (path / "1.parquet").touch()
    for said in ranks.run(programs.read, str(path)):
        assert said.startswith("InputError: `path` must name a readable .parquet file")
        assert "1.parquet is not: Parquet file size is 0 bytes" in said


def test_folders_without_rows(ranks: Job, tmp_path: Path) -> None:
    path = Path(folder(tmp_path / "rows"))
    empty = pyarrow.table({name: pyarrow.array([], pyarrow.float64()) for name in ("a", "y")})
    for k in range(2):
        pq.write_table(empty, path / f"{k}.parquet")
    for said in ranks.run(programs.read, str(path)):
        assert said.startswith("InputError: `path` must name a file with rows")


def test_disks_with_other_files(ranks: Job, tmp_path: Path) -> None:
    path = folder(tmp_path / "rows", rows(5))
    for name, other, item in (
        ("more", rows(6), "number of rows in the data: rank 0 has 5, and rank 1 has 6"),
        ("named", rows(5, "b"), "columns in the data: rank 0 has a y, and rank 1 has b y"),
    ):
        for said in ranks.run_each(programs.read, [(path,), (folder(tmp_path / name, other),)]):
            assert said.startswith(f"RankError: All ranks must have the same {item}.")
    first, second = ranks.run_each(programs.read, [(path,), (str(tmp_path / "none"),)])
    assert first.startswith("RankError: Rank 1 of 2 could not go on")
    assert "none" in second
