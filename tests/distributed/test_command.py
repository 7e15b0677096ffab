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

from halfgp.archive import load_model

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
    job = start(data, output, "--max-restarts", "1")
    kept = tmp_path / "model.safetensors.checkpoint"
    until = time.monotonic() + 120.0
    while not kept.exists():  # in the middle of the steps on all rows, or before
        assert time.monotonic() < until
        assert job.poll() is None, job.communicate()[1]
        time.sleep(0.01)
    victims = children(job.pid)
    os.kill(victims[-1], signal.SIGKILL)
    printed, said = job.communicate(timeout=120)
    assert job.returncode == 0, said
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
    """Each rank is told another target by its own number."""
    data = table(tmp_path / "data.parquet")
    script = tmp_path / "rank.py"
    script.write_text(
        "import os, sys\n"
        "from halfgp.cli import main\n"
        f"column = 'ya'[int(os.environ['RANK'])]\n"
        f"sys.argv = ['halfgp', 'fit', {str(data)!r}, '--target', column, '-o', {str(tmp_path / 'm')!r}]\n"
        "main()\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(script)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert done.returncode != 0
    assert done.stderr.count("All ranks must have the same command") == 2
    assert not (tmp_path / "m").exists()
