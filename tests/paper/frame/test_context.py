"""Rows that parts are measured on: standardised, sampled, and known by their digest."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from halfgp.errors import MissingData
from halfgp.paper.frame.context import Context


def make_uci(folder: Path, name: str, rows: int = 50) -> Path:
    (folder / name).mkdir(parents=True)
    rng = np.random.default_rng(0)
    values = np.column_stack([rng.uniform(5, 9, rows), np.full(rows, 3.0), rng.standard_normal(rows)])
    np.savetxt(folder / name / "data.csv.gz", values, delimiter=",")
    np.savetxt(folder / name / "test_mask.csv.gz", np.arange(rows)[:, None] % 5 == np.arange(3), "%d", ",")
    return folder


def test_rows_are_standardised_by_the_training_rows(tmp_path: Path) -> None:
    context = Context(quick=True, output=tmp_path, data=make_uci(tmp_path, "tiny"))
    rows = context.rows("tiny")
    assert rows.x.shape == (40, 2)
    assert rows.x_test.shape == (10, 2)
    assert rows.available == 40
    torch.testing.assert_close(rows.y.mean(), torch.zeros((), dtype=torch.float64), atol=1e-15, rtol=0)
    torch.testing.assert_close(rows.x[:, 0].square().mean(), torch.ones((), dtype=torch.float64))
    assert rows.x[:, 1].abs().max() == 0.0  # a constant column
    some = context.rows("tiny", most=7, most_test=3)
    assert (len(some.x), len(some.y), len(some.x_test), len(some.y_test)) == (7, 7, 3, 3)
    assert torch.equal(some.y, rows.y[:7])  # the first of the same order
    other = context.rows("tiny", split=1)
    assert not torch.equal(other.y, rows.y)
    with pytest.raises(MissingData, match="absent"):
        context.rows("absent")


def test_rows_of_a_large_set_are_sampled(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    values = np.random.default_rng(0).standard_normal((200, 2))
    parquet.write_table(
        pyarrow.table({"a": values[:, 0], "target": values[:, 1]}), tmp_path / "covtype_elev.parquet"
    )
    context = Context(quick=True, output=tmp_path, data=tmp_path)
    rows = context.rows("covtype_elev", most=90)
    assert (len(rows.y), len(rows.y_test)) == (90, 10)
    assert len(context.rows("covtype_elev").y) == 180
