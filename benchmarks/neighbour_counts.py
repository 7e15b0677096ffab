"""How many neighbours should a row have, where a pass looks at many others? Iterations saved beside building.

Rows of houseelectric with Matérn-3/2, at the hyperparameters that `GPRegressor` learns from them: the targets
are solved for to 1e-3 by `cg` as it comes, with the automatic preconditioner but for its number of
neighbours.

    HALFGP_DATA=... python benchmarks/neighbour_counts.py                60,000 rows; two minutes
    HALFGP_DATA=... python benchmarks/neighbour_counts.py --rows 20000   replaces neighbour_counts.json
"""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from halfgp import AutomaticPreconditioner, cg
from halfgp.datasets import load_large
from halfgp.model import ExactGP
from halfgp.preconditioners.automatic import paying_neighbours
from halfgp.settings import SolveOptions, VarianceOptions
from neighbours import seconds_of_a_pass
from product_report import console
from training_peers import StandardisedSplit

HERE = Path(__file__).parent
TOLERANCE = 1e-3
MEMORY = 2**33  # bytes, so that no number is cut


def measure(rows: int, counts: list[int]) -> list[dict[str, Any]]:
    """Each number of neighbours, on one system."""
    data = StandardisedSplit.of(load_large("houseelectric"), rows, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is learned is wanted, not the solve
        solve = SolveOptions(max_iterations=1, unsolved="warn")
        model = ExactGP("matern32", solve=solve, variances=VarianceOptions("local", calibrate=False))
        model.fit(data.x, data.y)
    problem, hyperparameters = model.posterior.problem, model.hyperparameters
    operator, b = problem.operator(hyperparameters, "single"), hyperparameters.centred(problem.y)[:, 0]
    passes = {name: seconds_of_a_pass(operator.with_precision(name)) for name in ("single", "double")}
    found = []
    for count in counts:
        began = time.perf_counter()
        built = AutomaticPreconditioner(neighbours=count, memory=MEMORY).build(operator)
        building = time.perf_counter() - began
        began = time.perf_counter()
        result = cg(operator, b, preconditioner=built, tol=TOLERANCE)
        found.append(
            {
                "rows": len(b),
                "noise": float(operator.noise.min()),
                "neighbours": count,
                "building": building,
                "solving": time.perf_counter() - began,
                "iterations": result.iterations if result.converged else None,
                "passes": result.passes_by_precision,
                "seconds_of_a_pass": passes,
            }
        )
    return found


def show(cases: list[dict[str, Any]]) -> None:
    headings = (
        "neighbours",
        "building, s",
        "in passes in single",
        "iterations",
        "single, double",
        "solving, s",
    )
    table = Table(*headings, box=None)
    for case in cases:
        passes = case["passes"]
        table.add_row(
            *(str(case["neighbours"]), f"{case['building']:.1f}"),
            f"{case['building'] / case['seconds_of_a_pass']['single']:.0f}",
            str(case["iterations"]),
            f"{passes.get('single', 0)}, {passes.get('double', 0)}",
            f"{case['solving']:.1f}",
        )
    console.print(table)
    console.print(f"by default: {paying_neighbours(cases[0]['rows'])}")


def main(
    rows: Annotated[int, typer.Option(help="Of houseelectric.")] = 60_000,
    counts: Annotated[list[int] | None, typer.Option(help="Of neighbours.")] = None,
) -> None:
    """Measure, print, and write neighbour_counts.json."""
    cases = measure(rows, counts or [15, 30, 60])
    show(cases)
    (HERE / "neighbour_counts.json").write_text(json.dumps(cases, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
