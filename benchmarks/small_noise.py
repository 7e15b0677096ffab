"""Is a system with next to no noise solved, in few dimensions, or is its failure told?

Random points in a cube, a draw of a smooth function for targets, K + σ² for noise from 1e-2 down to 1e-8, by
`cg` with the automatic preconditioner to 1e-6. The residual beside it is that of the solution in double by
the reference backend, which shares no code with the engine.

    python benchmarks/small_noise.py                 two minutes on two cores; writes small_noise.json
    python benchmarks/small_noise.py --rows 2000     smaller
"""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.table import Table

from halfgp import RBF, AutomaticPreconditioner, KernelOperator, Matern, cg
from halfgp.errors import ConvergenceWarning, HalfGPError
from product_report import console

HERE = Path(__file__).parent
KERNELS = {
    "matern12": Matern(0.5, 0.3),
    "matern32": Matern(1.5, 0.3),
    "matern52": Matern(2.5, 0.3),
    "rbf": RBF(0.3),
}
NOISES = (1e-2, 1e-4, 1e-6, 1e-8)
DIMENSIONS = (1, 2, 3)
TOL, MOST = 1e-6, 1000


def measure(kernel: str, d: int, noise: float, rows: int) -> dict[str, Any]:
    """One solve, and what is true of it."""
    x = torch.rand(rows, d, generator=torch.Generator().manual_seed(d), dtype=torch.float64)
    y = torch.sin(6.0 * x.sum(dim=1)) + x[:, 0]
    found: dict[str, Any] = {"kernel": kernel, "d": d, "noise": noise, "rows": rows}
    operator = KernelOperator(KERNELS[kernel], x, noise=noise)
    start = time.perf_counter()
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", ConvergenceWarning)
            result = cg(operator, y, preconditioner=AutomaticPreconditioner(), tol=TOL, max_iterations=MOST)
    except HalfGPError as error:
        return {**found, "status": "refused", "message": str(error)}
    exact = KernelOperator(KERNELS[kernel], x, noise=noise, precision="double", backend="reference")
    left = float((y - exact @ result.solution).norm() / y.norm())
    return {
        **found,
        "status": str(result.status.value),
        "warned": bool(told),
        "iterations": result.iterations,
        "reported": float(result.residual_norms),
        "true": left,
        "seconds": time.perf_counter() - start,
    }


def print_table(results: list[dict[str, Any]]) -> None:
    """A line for each system."""
    table = Table(title=f"Solves to {TOL:g}, noise next to none", title_justify="left")
    for heading in ("kernel", "d", "noise", "status", "iterations", "residual told", "true", "seconds"):
        table.add_column(heading, justify="left" if heading in ("kernel", "status") else "right")
    for row in results:
        told = (
            f"{row['iterations']}",
            f"{row['reported']:.1e}",
            f"{row['true']:.1e}",
            f"{row['seconds']:.1f}",
        )
        table.add_row(
            row["kernel"], str(row["d"]), f"{row['noise']:g}", row["status"],
            *(("", "", "", "") if row["status"] == "refused" else told),
        )  # fmt: skip
    console.print(table)


def main(
    rows: Annotated[int, typer.Option(help="Points.")] = 6000,
    output: Annotated[Path, typer.Option(help="JSON to write.")] = HERE / "small_noise.json",
) -> None:
    """Solve, and check."""
    results = [measure(kernel, d, noise, rows) for kernel in KERNELS for d in DIMENSIONS for noise in NOISES]
    output.write_text(json.dumps(results, indent=1) + "\n")
    print_table(results)
    silent = [r for r in results if r["status"] == "converged" and r["true"] > 2.0 * TOL]
    console.print(f"{len(silent)} of {len(results)} say that they converged and did not")
    if silent:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
