"""How do time and memory of a pass over K grow with the rows, where their density in lengthscales is fixed?

Rows are uniform in a cube, so many to a unit of volume, and the lengthscale is 1: with more rows the cube
grows, and a row has as many others within the kernel's reach as before, but for the surface. How far that is
goes by kernel and format: of Matérn-3/2 in single some seventeen lengthscales, so that in three features
10,000 rows all reach each other, and of RBF in half less than six. Every case has a process of its own; a
pass is the best of three, or one that takes long. Growth is the exponent of rows in a least-squares fit on
logarithms.

    bind      points are ordered, scaled and packed, and tiles of zeros are found
    pass      K v for one vector
    memory    the process's peak, beyond what it had before its rows

    python benchmarks/scaling.py                       10^4 to 10^6 rows; ten minutes on two cores
    python benchmarks/scaling.py --largest 100000      less; replaces scaling.json and scaling.png
"""

from __future__ import annotations

import json
import math
import multiprocessing
import time
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.table import Table

from halfgp import RBF, KernelOperator, Matern
from halfgp.kernels import Kernel
from halfgp.memory import peak_memory
from product_report import console

HERE = Path(__file__).parent
DENSITIES = {2: 16.0, 3: 2.0, 9: 1.0}  # rows to a unit of volume, by features
KERNELS: dict[str, Kernel] = {"Matérn-3/2": Matern(1.5), "RBF": RBF()}
CASES = (  # kernel, precision, features
    *(("Matérn-3/2", "single", features) for features in (2, 3, 9)),
    *(("Matérn-3/2", "half", 3), ("RBF", "single", 3), ("RBF", "half", 3)),
)
Found = dict[str, list[dict[str, float]]]  # by what `named` says of a case
SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000)
MEASURED = ("bind", "pass", "memory")
REPEATS, LONG = 3, 10.0  # passes of more seconds than that are timed once


def named(kernel: str, precision: str, features: int) -> str:
    return f"{kernel}, {precision}, {features} features"


def measure(rows: int, kernel: str, precision: str, features: int) -> dict[str, float]:
    """One case, in a process of its own."""
    before = peak_memory()
    side = (rows / DENSITIES[features]) ** (1.0 / features)
    generator = torch.Generator().manual_seed(0)
    x = side * torch.rand(rows, features, generator=generator, dtype=torch.float64)
    v = torch.randn(rows, 1, generator=generator, dtype=torch.float64)
    began = time.perf_counter()
    operator = KernelOperator(KERNELS[kernel], x, precision=precision)
    bound = time.perf_counter() - began
    best, left = math.inf, REPEATS
    while left:
        began = time.perf_counter()
        operator @ v
        best = min(best, time.perf_counter() - began)
        left = left - 1 if best < LONG else 0
    memory = float(peak_memory() - before)
    return {"rows": rows, "bind": bound, "pass": best, "memory": memory, "skipped": operator.skipped}


def exponent(cases: list[dict[str, float]], name: str) -> float:
    """The slope of the logarithm of a measure in that of the rows."""
    x, y = (torch.tensor([case[key] for case in cases], dtype=torch.float64).log() for key in ("rows", name))
    x = x - x.mean()
    return float(x @ y / (x @ x))


def show(found: Found) -> None:
    table = Table("", "rows", "bind s", "pass s", "memory MB", "skipped", box=None)
    for name, cases in found.items():
        for case in cases:
            numbers = [f"{case['bind']:.3g}", f"{case['pass']:.3g}", f"{case['memory'] / 1e6:.0f}"]
            table.add_row(name, f"{case['rows']:,.0f}", *numbers, f"{case['skipped']:.1%}")
        grows = [f"N^{exponent(cases, measured):.2f}" for measured in MEASURED]
        table.add_row(name, "grows as", *grows, "", style="bold")
    console.print(table)


def draw(found: Found, path: Path) -> None:
    from matplotlib.figure import Figure  # for the picture alone

    figure = Figure(figsize=(9.0, 3.8), layout="constrained")
    units = {"pass": ("seconds of a pass", 1.0), "memory": ("memory (MB)", 1e6)}
    for axes, (measured, (label, unit)) in zip(figure.subplots(1, 2), units.items(), strict=True):
        for name, cases in found.items():
            grows = f"{name}: N^{exponent(cases, measured):.2f}"
            axes.loglog(
                [case["rows"] for case in cases], [case[measured] / unit for case in cases], "o-", label=grows
            )
        axes.set(xlabel="rows", ylabel=label)
        axes.legend(frameon=False, fontsize=7)
    figure.savefig(path, dpi=160)


def main(
    largest: Annotated[int, typer.Option(help="Rows at most.")] = SIZES[-1],
    features: Annotated[list[int] | None, typer.Option(help="Which of 2, 3 and 9.")] = None,
) -> None:
    """Measure, print exponents, and draw."""
    found: Found = {}
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for case in CASES:
            if case[-1] in (features or DENSITIES):
                sizes = [(rows, *case) for rows in SIZES if rows <= largest]
                found[named(*case)] = pool.starmap(measure, sizes, chunksize=1)
    show(found)
    (HERE / "scaling.json").write_text(json.dumps(found, indent=1) + "\n")
    draw(found, HERE / "scaling.png")


if __name__ == "__main__":
    typer.run(main)
