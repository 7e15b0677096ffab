"""Does a plan tell how long a fit takes? Planned beside measured seconds, over sets, rows and threads.

Random samples of the training rows of split 0, `GPRegressor(threads=...)`, nothing else chosen. Every fit is
in a process of its own, which plans first, as `halfgp plan` would.

    HALFGP_DATA=... python benchmarks/plan.py           everything; fifteen minutes on two cores
    python benchmarks/plan.py --sets pol --rows 3000    some; replaces its rows in plan.json
    python benchmarks/plan.py --sets houseelectric,covtype_elev --rows 10000,100000 --threads 2    larger ones
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from halfgp import GPRegressor
from halfgp.datasets import load_large, load_uci
from product_report import console
from training_peers import StandardisedSplit

HERE = Path(__file__).parent
SETS = ("kin40k", "protein", "elevators", "pol")
LARGE = ("osborne_magnetic", "houseelectric", "covtype_elev")  # in 3, 11 and 53 features
ROWS = (3500, 10_000, 40_000)
FACTOR = 1.5  # that a plan should be within


def measure(name: str, rows: int, threads: int) -> dict[str, Any]:
    """One plan and its fit, in this process."""
    data = StandardisedSplit.of((load_large if name in LARGE else load_uci)(name), rows)
    model = GPRegressor(threads=threads)
    planned = model.plan(data.x, data.y).seconds
    start = time.perf_counter()
    model.fit(data.x, data.y)
    seconds = time.perf_counter() - start
    return {"set": name, "rows": len(data.y), "threads": threads, "planned": planned, "seconds": seconds}


def print_table(results: list[dict[str, Any]]) -> None:
    """Every fit, and how many were foreseen."""
    table = Table(title="Plan and fit, seconds", title_justify="left")
    for heading in ("set", "rows", "threads", "planned", "measured", "ratio"):
        table.add_column(heading, justify="left" if heading == "set" else "right")
    for row in results:
        ratio = row["planned"] / row["seconds"]
        mark = "" if 1 / FACTOR <= ratio <= FACTOR else " *"
        table.add_row(
            row["set"], f"{row['rows']:,}", str(row["threads"]), f"{row['planned']:.1f}",
            f"{row['seconds']:.1f}", f"{ratio:.2f}{mark}",
        )  # fmt: skip
    console.print(table)
    console.print(f"* not within a factor of {FACTOR:g}")


def main(
    sets: Annotated[str, typer.Option(help="By commas.")] = ",".join(SETS),
    rows: Annotated[str, typer.Option(help="By commas; at most those that a set has.")] = ",".join(
        map(str, ROWS)
    ),
    threads: Annotated[str, typer.Option(help="By commas.")] = "1,2",
    one: Annotated[bool, typer.Option("--one", hidden=True)] = False,
    output: Annotated[Path, typer.Option(help="JSON to merge into.")] = HERE / "plan.json",
) -> None:
    """Compare plans with fits."""
    if one:
        print(json.dumps(measure(sets, int(rows), int(threads))))
        return
    results: list[dict[str, Any]] = json.loads(output.read_text()) if output.exists() else []
    for name in sets.split(","):
        for count in map(int, rows.split(",")):
            for thread_count in threads.split(","):
                options = ["--sets", name, "--rows", str(count), "--threads", thread_count]
                command = [sys.executable, __file__, "--one", *options]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                row = json.loads(done.stdout.strip().splitlines()[-1])
                key = (row["set"], row["rows"], row["threads"])
                results = [r for r in results if (r["set"], r["rows"], r["threads"]) != key] + [row]
                results.sort(key=lambda r: ((*SETS, *LARGE).index(r["set"]), r["rows"], r["threads"]))
                output.write_text(json.dumps(results, indent=1) + "\n")
                console.print(f"[dim]{key}: planned {row['planned']:.1f}, took {row['seconds']:.1f} s[/]")
    print_table(results)


if __name__ == "__main__":
    typer.run(main)
