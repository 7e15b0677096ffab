"""What does a whole fit cost, and how good is it, beside GPyTorch, GPBoost, HiGP and scikit-learn?

Split 0 of the UCI sets, and rows of a magnetic survey and of a terrain, which are dense. Two cores, every fit
in a process of its own, one after another. Figures are on standardised targets. A fit is timed with its
predictions and their variances.

    default    GPRegressor(), nothing chosen
    cholesky   GPRegressor() on 3,000 rows: exact, in double; what coverage is to be had
    paper      GPRegressor.paper(): RBF with ARD, half, 50 steps of Adam, at least 10 CG iterations each
    paper-auto the same with the automatic preconditioner in place of rank 15, and at least 4 iterations
    gpytorch   the same setting in GPyTorch, dense float32; beyond 15,700 rows on so many, its time times N²
    gpboost    GPBoost, Vecchia with 20 neighbours, Matérn-3/2 with ARD; for the dense sets
    higp       HiGP on 4,000 rows, Matérn-3/2 with one lengthscale, 50 steps of Adam
    sklearn    GaussianProcessRegressor on 1,000 rows
    memory     GPRegressor(memory_limit="2GB") at N = 40,000: does it stay within?

    HALFGP_DATA=... python benchmarks/training.py             everything; an hour on two cores
    python benchmarks/training.py --sets pol --methods paper  some; replaces its rows in training.json
    python benchmarks/training.py --sets osborne-891888 --methods default    one of LARGE: minutes to hours
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table
from scipy.stats import norm

from halfgp.datasets import load_dem, load_large, load_uci
from halfgp.memory import peak_memory
from halfgp.scores import score
from product_report import console
from training_peers import METHODS, StandardisedSplit

HERE = Path(__file__).parent
UCI = ("pol", "elevators", "bike", "kin40k", "protein")
# Training rows, and rows to be tested by, drawn from a large set. Of the survey all that there are: residuals
# have heavy tails, and of 10,000 rows two decide a tenth of the NLL.
DENSE: dict[str, tuple[str, int, int | None]] = {
    "osborne-30000": ("osborne_magnetic", 30_000, None),
    "osborne-100000": ("osborne_magnetic", 100_000, None),
    "terrain": ("dem", 20_000, None),
}
# Those that take longer, in pairs: more rows have to be worth it.
LARGE: dict[str, tuple[str, int, int | None]] = {
    "osborne-50000": ("osborne_magnetic", 50_000, None),
    "osborne-200000": ("osborne_magnetic", 200_000, None),
    "osborne-891888": ("osborne_magnetic", 891_888, None),
    "covtype-20000": ("covtype_elev", 20_000, 10_000),
    "covtype-100000": ("covtype_elev", 100_000, 10_000),
    "houseelectric-50000": ("houseelectric", 50_000, 10_000),
    "houseelectric-500000": ("houseelectric", 500_000, 10_000),
}
DRAWN = DENSE | LARGE
DRAWN_METHODS = ("default", "gpboost")
SETS = (*UCI, *DENSE)
ALL_SETS = (*SETS, *LARGE)
HEADINGS = (
    *("set", "method", "rows", "RMSE", "NLL", "constant", "95 %", "fit s", "predict s", "x GPyTorch", "GB"),
)
# The paper's Table 1: RMSE and NLL in single and half, seconds on a V100.
PUBLISHED = {
    "pol": {"rmse": (0.117, 0.121), "nll": (-0.349, -0.316), "seconds": (57.6, 88.3)},
    "elevators": {"rmse": (0.364, 0.382), "nll": (0.515, 0.663), "seconds": (58.4, 90.1)},
    "bike": {"rmse": (0.074, 0.083), "nll": (-0.371, -0.413), "seconds": (62.3, 85.6)},
    "kin40k": {"rmse": (0.099, 0.100), "nll": (0.235, 0.241), "seconds": (65.5, 92.9)},
    "protein": {"rmse": (0.55, 0.635), "nll": (0.980, 1.412), "seconds": (70.9, 115.7)},
}


def measure(set_name: str, method: str) -> dict[str, Any]:
    """One fit, in this process."""
    run, limit = METHODS[method]
    tests: int | None = None
    if set_name in DRAWN:
        source, full, tests = DRAWN[set_name]
        dataset = load_dem() if source == "dem" else load_large(source)
    else:
        dataset = load_uci(set_name)
        full = len(dataset.split(0)[1])
    rows = StandardisedSplit.of(dataset, full if limit is None else min(limit, full), tests)
    outcome = run(rows)
    found = score(rows.y_test, outcome.mean, outcome.std, intervals=outcome.intervals)
    scaled = (full / len(rows.y)) ** 2 if method == "gpytorch" else 1.0
    return {
        "set": set_name,
        "method": method,
        "rows": len(rows.y),
        "rmse": found.rmse,
        "nll": found.nll,
        "crps": found.crps,
        "coverage": found.coverage[0.95] if found.coverage else None,
        "interval_coverage": found.interval_coverage,
        "constant_nll": 0.5 * math.log(2 * math.pi * math.e * found.rmse**2),
        "fit_seconds": outcome.fit_seconds,
        "predict_seconds": outcome.predict_seconds,
        "scaled": scaled,
        "total_seconds": scaled * (outcome.fit_seconds + outcome.predict_seconds),
        "peak_bytes": peak_memory(),
        "load": os.getloadavg()[0],
        "losses": (-norm.logpdf(rows.y_test, outcome.mean, outcome.std)).tolist(),
        **outcome.about,
    }


def beside(ours: list[float], theirs: list[float]) -> tuple[float, float]:
    """By how much the NLL of a peer on the same rows is above ours, and the standard error of that."""
    difference = np.subtract(theirs, ours)
    return float(difference.mean()), float(difference.std() / math.sqrt(len(difference)))


def print_table(results: list[dict[str, Any]]) -> None:
    """Everything measured, and beside GPyTorch where that was."""
    table = Table(title="Fit and predict, split 0", title_justify="left")
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading in ("set", "method") else "right")
    peers = {row["set"]: row for row in results if row["method"] == "gpytorch"}
    for row in results:
        peer = peers.get(row["set"])
        ratio = f"{peer['total_seconds'] / row['total_seconds']:.1f}" if peer else ""
        mark = "*" if row["scaled"] > 1 else ""
        table.add_row(
            row["set"], row["method"], f"{row['rows']:,}{mark}", f"{row['rmse']:.4f}", f"{row['nll']:.3f}",
            f"{row['constant_nll']:.3f}", f"{100 * row['coverage']:.1f}", f"{row['fit_seconds']:.1f}",
            f"{row['predict_seconds']:.1f}", ratio, f"{row['peak_bytes'] / 1e9:.2f}",
        )  # fmt: skip
    console.print(table)
    console.print("* fewer rows than the set has; its time, scaled by N², is what ratios are taken of")


def main(
    sets: Annotated[str, typer.Option(help="By commas.")] = ",".join(SETS),
    methods: Annotated[str, typer.Option(help="By commas.")] = ",".join(METHODS),
    one: Annotated[bool, typer.Option("--one", hidden=True)] = False,
    output: Annotated[Path, typer.Option(help="JSON to merge into.")] = HERE / "training.json",
) -> None:
    """Measure fits on real data."""
    unknown = [name for name in methods.split(",") if name not in METHODS]
    if unknown:
        raise typer.BadParameter(f"no method {', '.join(unknown)}; there are {', '.join(METHODS)}")
    if one:
        print(json.dumps(measure(sets, methods)))
        return
    results: list[dict[str, Any]] = json.loads(output.read_text()) if output.exists() else []
    for set_name in sets.split(","):
        ours: list[float] | None = None  # losses of rows, by our default
        for method in methods.split(","):
            if method == "memory" and set_name != "protein":
                continue  # the one set with 40,000 rows
            if (method not in DRAWN_METHODS) if set_name in DRAWN else (method == "gpboost"):
                continue
            command = [sys.executable, __file__, "--one", "--sets", set_name, "--methods", method]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                console.print(f"[red]{set_name}, {method} failed:[/] {done.stderr.strip()[-600:]}")
                continue
            row = json.loads(done.stdout.strip().splitlines()[-1])
            losses = row.pop("losses")
            if method == "default":
                ours = losses
            elif ours is not None and len(ours) == len(losses):
                row["nll_above_ours"] = beside(ours, losses)
            results = [r for r in results if (r["set"], r["method"]) != (set_name, method)] + [row]
            results.sort(key=lambda r: (ALL_SETS.index(r["set"]), list(METHODS).index(r["method"])))
            output.write_text(json.dumps(results, indent=1) + "\n")
            console.print(
                f"[dim]{set_name}, {method}: RMSE {row['rmse']:.4f}, NLL {row['nll']:.3f},"
                f" {row['total_seconds']:.1f} s"
                + (
                    " (NLL above ours by {:.4f} ± {:.4f})".format(*row["nll_above_ours"])
                    if "nll_above_ours" in row
                    else ""
                )
                + "[/]"
            )
    print_table(results)


if __name__ == "__main__":
    typer.run(main)
