"""The Slurm and Kubernetes examples of the documentation: both are one command, and that starts."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from contracts import rank_programs as programs

from halfgp.archive import load_model

PAGE = (Path(__file__).parents[2] / "docs" / "distributed.md").read_text(encoding="utf-8")
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


def free_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return int(unused.getsockname()[1])


def test_the_slurm_example_starts_ranks_that_fit_a_model(tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    x, y = (t.numpy() for t in programs.data(60))
    (tmp_path / "rows").mkdir()
    for k, some in enumerate((slice(0, 25), slice(25, 60))):
        columns = {"a": x[some, 0], "b": x[some, 1], "y": y[some]}
        parquet.write_table(pyarrow.table(columns), tmp_path / "rows" / f"{k}.parquet")
    for name, text in COMMANDS.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    script = block("Slurm").replace("OMP_NUM_THREADS=32", "OMP_NUM_THREADS=1")
    script = script.replace(":29500", f":{free_port()}")
    given = {"SLURM_NNODES": "2", "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "here", "SCRATCH": str(tmp_path)}
    environment = {**os.environ, **given, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=120, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("╭") == 1  # told by the first rank alone
    gp, _ = load_model(tmp_path / "model.safetensors")
    assert gp.report.rows == 60


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
