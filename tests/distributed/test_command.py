"""`torchrun -m halfgp fit`: the first rank prints and writes, and a rank that is killed is started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from contracts import rank_programs as programs
from contracts.job import job

from halfgp.archive import load_model
from halfgp.distributed import membership
from halfgp.errors import RankError

pq = pytest.importorskip("pyarrow.parquet")
STEPS = 10
OPTIONS = ["--method", "cg", "--subset", "100", "--steps", str(STEPS), "--variance", "local", "--json"]


def table(path: Path, n: int = 301) -> Path:
    import pyarrow

    x, y = (t.numpy() for t in programs.data(n))
    pq.write_table(pyarrow.table({"a": x[:, 0], "b": x[:, 1], "y": y}), path)
    return path


def start(data: Path, output: Path, *launcher: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", *launcher]
    fit = ["-m", "halfgp", "fit", str(data), "--target", "y", "-o", str(output), *OPTIONS]
    pipe = subprocess.PIPE
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([*command, *fit], stdout=pipe, stderr=pipe, text=True, env=environment)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="processes are found in /proc")
def test_a_rank_that_is_killed_is_started_again_and_the_fit_goes_on(tmp_path: Path) -> None:
    data, output = table(tmp_path / "data.parquet"), tmp_path / "model.safetensors"
    started = start(data, output, "--max-restarts", "1")
    kept = tmp_path / "model.safetensors.checkpoint"
    until = time.monotonic() + 120.0
    while not kept.exists():  # in the middle of the steps on all rows, or before
        assert time.monotonic() < until
        assert started.poll() is None, started.communicate()[1]
        time.sleep(0.01)
    victims = children(started.pid)
    os.kill(victims[-1], signal.SIGKILL)
    printed, said = started.communicate(timeout=120)
    assert started.returncode == 0, said
    assert "has lost another" in said or "was told to end" in said
    assert "Resuming" not in printed
    told = json.loads(printed)  # one document: of the first rank alone
    assert told["traffic"]["ranks"] == 2
    assert told["fit"]["steps"] > STEPS
    assert not kept.exists()
    gp, _ = load_model(output)
    wanted = programs.fitted_as(STEPS, 100)
    assert np.allclose(gp.predict(programs.points(30, 2, seed=9)).mean, wanted, atol=1e-3)


def test_other_arguments_on_a_rank_are_refused_by_all(tmp_path: Path) -> None:
    data, output = table(tmp_path / "data.parquet"), tmp_path / "m"
    arguments = [["fit", str(data), "--target", column, "-o", str(output)] for column in "ya"]
    with job(2, joined=False) as ranks:
        codes = ranks.run_each(programs.commanded, [(own, str(tmp_path)) for own in arguments])
    assert 0 not in codes
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
