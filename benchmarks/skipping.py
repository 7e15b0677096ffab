"""What is gained by passing by tiles of zeros, at the lengthscales that a fit finds?

200,000 rows of a magnetic survey, standardised, at the hyperparameters that `GPRegressor` learns from them
with each kernel. One product with one vector, with tiles of zeros passed by and with all of them looked at;
the ideal gain is that of a program that looks at none but the pairs whose covariance is not taken for zero,
which are counted among those of a sample of rows with all others.

    HALFGP_DATA=... python benchmarks/skipping.py                   five minutes on two cores
    HALFGP_DATA=... python benchmarks/skipping.py --rows 50000      less; replaces skipping.json
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.table import Table

from halfgp import KernelOperator
from halfgp.datasets import load_large
from halfgp.hyperparameters import Hyperparameters
from halfgp.model import ExactGP
from halfgp.precision import Precision
from halfgp.settings import SolveOptions, VarianceOptions
from halfgp.truncation import resolve_truncation
from product_report import console
from training_peers import StandardisedSplit

HERE = Path(__file__).parent
KERNELS = ("matern32", "rbf")
PRECISIONS = ("single", "half")
SAMPLED = 256  # rows that are met with all others
REPEATS = 3
ASKED = {"matern32": "60 % of the ideal", "rbf": "20x"}


def learned(kernel: str, rows: int) -> tuple[Hyperparameters, torch.Tensor]:
    """What a fit learns, and its standardised points (n, d)."""
    data = StandardisedSplit.of(load_large("osborne_magnetic"), rows, 1)
    # What is learned is wanted, not the solve: one iteration of that, whatever it leaves.
    solve = SolveOptions(max_iterations=1, unsolved="warn")
    model = ExactGP(kernel, solve=solve, variances=VarianceOptions("local", calibrate=False))
    model.fit(data.x, data.y)
    return model.hyperparameters, model.posterior.problem.x


def seconds_of(operator: KernelOperator, v: torch.Tensor) -> float:
    """Of a product, the fastest of some."""
    best = float("inf")
    for _ in range(REPEATS):
        start = time.perf_counter()
        operator @ v
        best = min(best, time.perf_counter() - start)
    return best


def live(hyperparameters: Hyperparameters, x: torch.Tensor, precision: str) -> float:
    """The share of pairs whose covariance is not taken for zero, by some rows with all others."""
    kernel, rung = hyperparameters.kernel, Precision.resolve(precision)
    zero = resolve_truncation("auto", kernel, len(x), rung).vanishing(rung)
    some = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:SAMPLED]
    cross = KernelOperator(kernel, x[some], x, precision="double", truncate=False).to_dense()
    deviation = float(kernel.diagonal(x[:1])[0])  # the same everywhere, for a stationary kernel
    return float((torch.as_tensor(cross) > zero * deviation).double().mean())


def measure(kernel: str, rows: int) -> list[dict[str, Any]]:
    """Every precision, at what one fit learned."""
    hyperparameters, x = learned(kernel, rows)
    v = torch.randn(len(x), 1, generator=torch.Generator().manual_seed(0))
    found = []
    for precision in PRECISIONS:
        options: dict[str, Any] = {"precision": precision, "storage": "on_the_fly"}
        skipping = KernelOperator(hyperparameters.kernel, x, **options)
        seconds = seconds_of(skipping, v)
        whole = seconds_of(KernelOperator(hyperparameters.kernel, x, truncate=False, **options), v)
        case = {"kernel": kernel, "rows": len(x), "precision": precision, "seconds": seconds, "all": whole}
        found.append(
            {**case, "skipped": skipping.skipped, "ideal": 1.0 / live(hyperparameters, x, precision)}
        )
    return found


def show(cases: list[dict[str, Any]]) -> None:
    headings = ("kernel", "precision", "all tiles, s", "skipping, s", "gain", "ideal", "of it", "skipped")
    table = Table(*headings, "asked", box=None)
    for case in cases:
        gain = case["all"] / case["seconds"]
        table.add_row(
            *(case["kernel"], case["precision"], f"{case['all']:.3g}", f"{case['seconds']:.3g}"),
            *(f"{gain:.1f}x", f"{case['ideal']:.1f}x", f"{gain / case['ideal']:.0%}"),
            *(f"{case['skipped']:.1%}", ASKED[case["kernel"]]),
        )
    console.print(table)


def main(rows: Annotated[int, typer.Option(help="Of the survey.")] = 200_000) -> None:
    """Measure, print, and write skipping.json."""
    cases = [case for kernel in KERNELS for case in measure(kernel, rows)]
    show(cases)
    (HERE / "skipping.json").write_text(json.dumps(cases, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
