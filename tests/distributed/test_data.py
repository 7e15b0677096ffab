"""Every rank reads its rows of .parquet files, and all have the table; what one finds is told by all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from contracts import rank_programs as programs
from contracts.job import Job, job

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
