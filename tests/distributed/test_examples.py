"""The Slurm and Kubernetes examples of the documentation: both are one command, and that starts."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from contracts import rank_programs as programs

from halfgp.archive import load_model

PAGE = (Path(__file__).parents[2] / "docs" / "distributed.md").read_text(encoding="utf-8")
STEPS = 40  # so many that a rank is killed well before the last, however busy the machine is
OPTIONS = f"--method cg --subset 100 --steps {STEPS} --variance local --json"
# What a cluster has: a job is started on each of two machines, which are this one.
COMMANDS = {
    "srun": '#!/bin/bash\n"$@" & first=$!\n"$@" && wait $first\n',
    "scontrol": "#!/bin/bash\necho 127.0.0.1\n",
    "torchrun": f'#!/bin/bash\nexec {shlex.quote(sys.executable)} -m torch.distributed.run "$@"\n',
}


def block(heading: str) -> str:
    """The code below a heading of the page."""
    found = re.search(rf"^## {heading}$.*?^```\w*\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


def write_rows(folder: Path) -> None:
    """In two files."""
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    x, y = (t.numpy() for t in programs.data(301))
    folder.mkdir()
    for k, some in enumerate((slice(0, 120), slice(120, 301))):
        columns = {"a": x[some, 0], "b": x[some, 1], "y": y[some]}
        parquet.write_table(pyarrow.table(columns), folder / f"{k}.parquet")


def free_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return int(unused.getsockname()[1])


def ranks_below(pid: int) -> list[int]:
    """Processes that run halfgp among the descendants of one."""
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    own = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    is_rank = own[1:4] == [b"-u", b"-m", b"halfgp"]
    return [pid] * is_rank + [rank for child in children for rank in ranks_below(child)]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="processes are found in /proc")
def test_the_slurm_example_goes_on_after_a_rank_is_killed(tmp_path: Path) -> None:
    """Two machines start it; one loses its rank in the middle, and both launchers start theirs again."""
    write_rows(tmp_path / "rows")
    for name, text in COMMANDS.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    script = block("Slurm").replace("OMP_NUM_THREADS=32", "OMP_NUM_THREADS=1")
    script = script.replace(":29500", f":{free_port()}").replace("--target y", f"--target y {OPTIONS}")
    given = {"SLURM_NNODES": "2", "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "here", "SCRATCH": str(tmp_path)}
    environment = {**os.environ, **given, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    pipe, kept = subprocess.PIPE, tmp_path / "model.safetensors.checkpoint"
    with subprocess.Popen(
        ["bash", "-c", script], stdout=pipe, stderr=pipe, text=True, env=environment, start_new_session=True
    ) as job:
        try:
            until = time.monotonic() + 120.0
            while not kept.exists():  # in the middle of the steps on all rows, or before
                assert time.monotonic() < until
                assert job.poll() is None, job.communicate()[1]
                time.sleep(0.01)
            os.kill(max(ranks_below(job.pid)), signal.SIGKILL)
            printed, said = job.communicate(timeout=120)
        finally:
            if job.poll() is None:  # launchers wait for one another for minutes
                os.killpg(job.pid, signal.SIGKILL)
    assert job.returncode == 0, said
    assert "has lost another" in said or "was told to end" in said
    assert not kept.exists()
    told = json.loads(printed)  # one document: of the first rank alone
    assert told["traffic"]["ranks"] == 2
    assert told["fit"]["steps"] > STEPS
    gp, _ = load_model(tmp_path / "model.safetensors")
    wanted = programs.fitted_as(STEPS, 100)
    assert np.allclose(gp.predict(programs.points(30, 2, seed=9)).mean, wanted, atol=1e-3)


def test_the_kubernetes_example_is_the_same_command() -> None:
    """But for where its files and its meeting point are, and for the name and size of the job."""
    found = re.search(r"command: \[(.*?)\]\n", block("Kubernetes"), re.DOTALL)
    assert found is not None
    words = [word.strip().strip('"') for word in found[1].split(",")]
    script = block("Slurm").replace("\\\n", "").replace("$SLURM_NNODES", "8").replace("$SCRATCH", "/data")
    command = script[script.index("srun torchrun") :].strip().removeprefix("srun ")
    command = re.sub(r"\$\(.*?\):", "halfgp-0.halfgp:", command).replace("$SLURM_JOB_ID", "fit")
    assert words == shlex.split(command)


def test_the_kubernetes_example_is_yaml_of_a_job_and_its_service() -> None:
    yaml = pytest.importorskip("yaml")
    job, service = yaml.safe_load_all(block("Kubernetes"))
    assert (job["kind"], service["kind"]) == ("Job", "Service")
    pod, name = job["spec"]["template"]["spec"], job["metadata"]["name"]
    (container,) = pod["containers"]
    assert pod["subdomain"] == service["metadata"]["name"]
    assert service["spec"]["selector"] == {"job-name": name}
    assert f"--nnodes={job['spec']['completions']}" in container["command"]
    assert job["spec"]["parallelism"] == job["spec"]["completions"]
    assert f"--rdzv-endpoint={name}-0.{pod['subdomain']}:29500" in container["command"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {v["name"] for v in pod["volumes"]}
