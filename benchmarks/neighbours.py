"""How many passes does a solve take with landmarks and neighbours, beside low rank and a plain factor?

Training rows of split 0 of five UCI sets, and 30,000 rows of a magnetic survey, at the hyperparameters that
`GPRegressor` learns from all rows, both kernels. One right-hand side, the targets; `cg` as it comes. A pass
is a product with K, whatever its precision; those of building are its time over that of a pass.

    auto       AutomaticPreconditioner(), the default of fits
    rank 500   PivotedCholesky(rank=500)
    factor     SparseInverseCholesky(neighbours=30, group=1), no landmarks, and every row by itself

    HALFGP_DATA=... python benchmarks/neighbours.py                     everything; half an hour on two cores
    python benchmarks/neighbours.py --sets bike --kernels matern32      some; replaces them in neighbours.json
"""

from __future__ import annotations

import json
import os
import time
import warnings
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from rich.table import Table
from torch import Tensor

from halfgp import AutomaticPreconditioner, KernelOperator, PivotedCholesky, SparseInverseCholesky, cg
from halfgp.errors import ConvergenceWarning
from halfgp.model import ExactGP
from halfgp.preconditioners import LowRankPlusNoise
from halfgp.settings import SolveOptions, VarianceOptions
from product_report import console
from uci import data_directory, training_rows

HERE = Path(__file__).parent
SETS = ("pol", "elevators", "bike", "kin40k", "protein", "osborne")
KERNELS = ("matern32", "rbf")
RECIPES: dict[str, Any] = {
    "auto": AutomaticPreconditioner(),
    "rank 500": PivotedCholesky(rank=500),
    "factor": SparseInverseCholesky(neighbours=30, group=1),
}
TOLERANCES = (1e-2, 1e-6)
MOST = 600  # passes that a solve may take
OSBORNE_ROWS = 30_000


def rows_of(name: str) -> tuple[Tensor, Tensor]:
    """Standardised features (n, d) and targets (n,)."""
    if name != "osborne":
        return training_rows(data_directory(None), name)
    import pyarrow.parquet

    path = Path(os.environ["HALFGP_DATA"]) / "large" / "osborne_magnetic.parquet"
    table = pyarrow.parquet.read_table(path).to_pandas().to_numpy(dtype=np.float64)
    table = table[np.random.default_rng(0).permutation(len(table))[:OSBORNE_ROWS]]
    table = torch.from_numpy((table - table.mean(axis=0)) / table.std(axis=0))
    return table[:, :-1].contiguous(), table[:, -1].contiguous()


def learned(name: str, kernel: str) -> tuple[KernelOperator, Tensor]:
    """K + noise as a fit would solve it, and the targets without their mean."""
    x, y = rows_of(name)
    # What is learned is wanted, not the solve: one iteration of that, whatever it leaves.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        solve = SolveOptions(max_iterations=1, unsolved="warn")
        model = ExactGP(kernel, solve=solve, variances=VarianceOptions("local", calibrate=False))
        model.fit(x.numpy(), y.numpy())
    problem, hyperparameters = model.posterior.problem, model.hyperparameters
    return problem.operator(hyperparameters, "single"), hyperparameters.centred(problem.y)[:, 0]


def seconds_of_a_pass(operator: KernelOperator) -> float:
    """Of a product with one column in single, the fastest of three."""
    v, best = torch.ones(operator.shape[1], 1), float("inf")
    for _ in range(3):
        start = time.perf_counter()
        operator @ v
        best = min(best, time.perf_counter() - start)
    return best


def measure(name: str, kernel: str) -> list[dict[str, Any]]:
    """Passes to each tolerance by each recipe; None where there are more than enough."""
    operator, b = learned(name, kernel)
    a_pass = seconds_of_a_pass(operator)
    found = []
    for label, recipe in RECIPES.items():
        start = time.perf_counter()
        built = recipe.build(operator)
        building = (time.perf_counter() - start) / a_pass
        row: dict[str, Any] = {
            "set": name,
            "kernel": kernel,
            "rows": len(b),
            "noise": float(operator.noise.min()),
            "recipe": label,
            "chosen": "low rank" if isinstance(built, LowRankPlusNoise) else "neighbours",
            "building": building,
        }
        for tol in TOLERANCES:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                result = cg(operator, b, preconditioner=built, tol=tol, max_iterations=MOST)
            row[f"{tol:g}"] = result.iterations if result.converged else None
            if not result.converged:
                break
        found.append(row)
    return found


def print_table(results: list[dict[str, Any]]) -> None:
    """One line a problem."""
    table = Table(title=f"Passes to a true relative residual ({MOST} at most)", title_justify="left")
    headings = ("set", "kernel", "noise", "auto chose", "building: auto, rank 500")
    for heading in (*headings, *(f"{tol:g}: auto, rank 500, factor" for tol in TOLERANCES)):
        table.add_column(heading)
    for name in SETS:
        for kernel in KERNELS:
            rows = {r["recipe"]: r for r in results if (r["set"], r["kernel"]) == (name, kernel)}
            if set(rows) != set(RECIPES):
                continue
            cells = [", ".join(str(rows[r].get(f"{tol:g}") or "-") for r in RECIPES) for tol in TOLERANCES]
            building = f"{rows['auto']['building']:.1f}, {rows['rank 500']['building']:.1f}"
            table.add_row(
                name, kernel, f"{rows['auto']['noise']:.1e}", rows["auto"]["chosen"], building, *cells
            )
    console.print(table)


def main(
    sets: Annotated[str, typer.Option(help="By commas.")] = ",".join(SETS),
    kernels: Annotated[str, typer.Option(help="By commas.")] = ",".join(KERNELS),
    output: Annotated[Path, typer.Option(help="JSON to merge into.")] = HERE / "neighbours.json",
) -> None:
    """Count passes on real data."""
    unknown = [name for name in sets.split(",") if name not in SETS]
    if unknown:
        raise typer.BadParameter(f"no set {', '.join(unknown)}; there are {', '.join(SETS)}")
    results: list[dict[str, Any]] = json.loads(output.read_text()) if output.exists() else []
    for name in sets.split(","):
        for kernel in kernels.split(","):
            rows = measure(name, kernel)
            results = [r for r in results if (r["set"], r["kernel"]) != (name, kernel)] + rows
            output.write_text(json.dumps(results, indent=1) + "\n")
            console.print(f"[dim]{name}, {kernel} done[/]")
    print_table(results)


if __name__ == "__main__":
    typer.run(main)
