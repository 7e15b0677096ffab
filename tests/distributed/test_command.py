"""`torchrun -m halfgp fit` as ranks see it: the first prints and writes, and all start alike or not at all.

That `torchrun` itself starts them, and starts them again, is seen by the examples.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from contracts import rank_programs as programs
from contracts.job import job
from torch.distributed import HashStore

from halfgp import ExactGP
from halfgp.archive import load_model
from halfgp.cli.fit import _split
from halfgp.distributed import membership
from halfgp.errors import RankError
from halfgp.report.summary import training_rows

pq = pytest.importorskip("pyarrow.parquet")


def table(path: Path, n: int) -> Path:
    import pyarrow

    x, y = (t.numpy() for t in programs.data(n))
    pq.write_table(pyarrow.table({"a": x[:, 0], "b": x[:, 1], "y": y}), path)
    return path


def fit_of(data: Path, target: str, output: Path) -> list[str]:
    return ["fit", str(data), "--target", target, "-o", str(output), "--json"]


@pytest.mark.parametrize("n", [61, 2])  # rows: some for each rank, and fewer than ranks
def test_the_first_rank_prints_and_writes(tmp_path: Path, n: int) -> None:
    data, output = table(tmp_path / "data.parquet", n), tmp_path / "model.safetensors"
    with job(3, joined=False) as ranks:
        assert ranks.run(programs.commanded, fit_of(data, "y", output), str(tmp_path)) == [0, 0, 0]
    printed = [(tmp_path / f"printed by {rank}").read_text() for rank in range(3)]
    assert json.loads(printed[0])["traffic"]["ranks"] == 3
    assert printed[1:] == ["", ""]
    assert load_model(output)[0].report.rows == n
    assert {path.name for path in tmp_path.glob("model*")} == {output.name}


def test_a_rank_holds_points_in_single_and_the_model_knows_its_rows(tmp_path: Path) -> None:
    """Those of the file are its rows to the last bit, also once it was read again."""
    data, output = table(tmp_path / "data.parquet", 61), tmp_path / "model.safetensors"
    arguments = [*fit_of(data, "y", output), "--method", "cg", "--steps", "2", "--test-fraction", "0.2"]
    with job(2, joined=False) as ranks:
        assert ranks.run(programs.commanded, arguments, str(tmp_path)) == [0, 0]
    model, _ = load_model(output)
    assert model.posterior.problem.points.dtype == torch.float32
    x, y = programs.data(61)
    assert training_rows(model, x.numpy()) == model.report.rows == 49
    told = json.loads((tmp_path / "printed by 0").read_text())
    train, _ = _split(y.numpy(), 0.2, 0)
    options = {"method": "cg", "training__steps": 2}
    alone = ExactGP(**options).fit(x.numpy()[train], y.numpy()[train])
    assert told["test"]["rmse"] > 0.0
    found, wanted = (gp.predict(x.numpy()).mean for gp in (model, alone))
    assert np.allclose(found, wanted, atol=1e-3)


def test_other_arguments_on_a_rank_are_refused_by_all(tmp_path: Path) -> None:
    data, output = table(tmp_path / "data.parquet", 5), tmp_path / "m"
    with job(2, joined=False) as ranks:
        arguments = [(fit_of(data, target, output), str(tmp_path)) for target in "ya"]
        assert 0 not in ranks.run_each(programs.commanded, arguments)
    for rank in range(2):
        said = (tmp_path / f"said by {rank}").read_text()
        assert said.count("All ranks must have the same command") == 1
    assert not output.exists()


def test_who_never_starts_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the first rank, which waits for it where they meet."""
    about = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    for name, value in about.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(membership, "ARRIVAL", 0.2)
    with pytest.raises(RankError, match="Rank 0 of 2 waited for the others at"):
        membership._meet("gloo")


def test_ranks_that_are_started_again_meet_each_other_and_none_that_is_gone() -> None:
    """In a store that the launcher kept, with what earlier ranks left in it."""
    store = HashStore()

    def names(ranks: list[int], arrival: float) -> list[str]:
        with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(len(ranks)) as pool:
            patch.setattr(membership, "ARRIVAL", arrival)
            return list(pool.map(lambda rank: membership._name_of_all(store, rank, 3), ranks))

    first = names([0, 1, 2], 30.0)
    assert len(set(first)) == 1
    with pytest.raises(RuntimeError, match="gone"):  # these would meet the third of the first start
        names([0, 1], 0.3)
    with pytest.raises(RuntimeError, match="gone"):
        names([2], 0.3)
    again = names([2, 1, 0], 30.0)
    assert len(set(again)) == 1
    assert again[0] != first[0]
