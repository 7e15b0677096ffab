"""A fit of 1.8 million rows that is killed in its last solve: does it go on, and as fast as was planned?

Rows of houseelectric from Parquet, 11 features, within 4 GB. A process reads them, plans, and fits with a
checkpoint, to a true residual of 0.1. After some iterations of its last solve it is killed, and another one
starts, which has to go on where the first one was. That one is killed after as many more: the solve itself
takes days on two cores. Told are seconds of an iteration beside those of a pass as planned, and the peak
memory of either process.

    HALFGP_DATA=... python benchmarks/killed.py                    an hour on two cores
    HALFGP_DATA=... python benchmarks/killed.py --rows 100000      less; replaces killed.json
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import pyarrow.parquet
import typer
from rich.table import Table

from halfgp.cli.models import read_training
from halfgp.delimited import Dialect
from halfgp.memory import peak_memory
from halfgp.model import ExactGP, SolveIteration
from halfgp.training import solve_path
from product_report import console

HERE = Path(__file__).parent
ITERATIONS = 3
LIMIT = "4GB"


def fit(rows: Path, kept: Path) -> None:
    """Says what it does, a line of JSON each, until it is killed."""

    def tell(**what: Any) -> None:
        print(json.dumps({**what, "memory": peak_memory()}), flush=True)

    began = time.perf_counter()
    read = read_training(rows, "target", None, None, Dialect())
    x, y = read.points(), read.y
    tell(read=time.perf_counter() - began, rows=len(y))
    gp = ExactGP(memory_limit=LIMIT, checkpoint=kept, solve__tol=0.1)
    plan = gp.plan(x, y=y)
    tell(planned=plan.seconds, passes=plan.passes, planned_memory=plan.memory)
    began = time.perf_counter()

    def watch(event: object) -> None:
        if isinstance(event, SolveIteration):
            tell(iteration=event.iteration, residual=event.residual, seconds=time.perf_counter() - began)

    gp.fit(x, y, callbacks=[watch])
    tell(done=True)


def until_killed(rows: Path, kept: Path, iterations: int) -> dict[str, Any]:
    """What a process said that is killed once it has had so many iterations and has written them down."""
    command = [sys.executable, __file__, "--one", str(rows), str(kept)]
    found: dict[str, Any] = {"iterations": []}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            said = json.loads(line)
            console.print(f"[dim]{line.strip()}[/]")
            found["memory"] = said.pop("memory")
            if "iteration" not in said:
                found |= said
                continue
            found["iterations"].append(said)
            if len(found["iterations"]) >= iterations and solve_path(kept).exists():
                process.kill()
                break
    return found


def seconds_of_an_iteration(found: dict[str, Any]) -> float:
    times = [step["seconds"] for step in found["iterations"]]
    return (times[-1] - times[0]) / (len(times) - 1)


def show(found: dict[str, Any]) -> None:
    table = Table("", "first", "again", box=None)
    runs = [found["first"], found["again"]]
    table.add_row("rows", *(f"{run['rows']:,}" for run in runs))
    table.add_row("begins at iteration", *(str(run["iterations"][0]["iteration"]) for run in runs))
    table.add_row("until then, s", *(f"{run['iterations'][0]['seconds']:.0f}" for run in runs))
    table.add_row("an iteration, s", *(f"{seconds_of_an_iteration(run):.1f}" for run in runs))
    table.add_row("planned, s", *(f"{run['planned'] / run['passes']:.1f}" for run in runs))
    table.add_row("passes planned", *(str(run["passes"]) for run in runs))
    table.add_row(
        "memory, GB (planned)", *(f"{r['memory'] / 1e9:.2f} ({r['planned_memory'] / 1e9:.2f})" for r in runs)
    )
    console.print(table)


def main(
    rows: Annotated[int, typer.Option(help="Of houseelectric.")] = 1_844_352,
    iterations: Annotated[int, typer.Option(help="Of each process.")] = ITERATIONS,
    one: Annotated[tuple[Path, Path] | None, typer.Option("--one", hidden=True)] = None,
) -> None:
    """Measure, print, and write killed.json."""
    if one is not None:
        fit(*one)
        return
    source = Path(os.environ["HALFGP_DATA"]) / "large" / "houseelectric.parquet"
    with tempfile.TemporaryDirectory() as folder:
        some, kept = Path(folder) / "rows.parquet", Path(folder) / "kept"
        pyarrow.parquet.write_table(pyarrow.parquet.read_table(source).slice(0, rows), some)
        found = {name: until_killed(some, kept, iterations) for name in ("first", "again")}
    show(found)
    (HERE / "killed.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    typer.run(main)
