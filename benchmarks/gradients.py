"""How exact is a stochastic gradient of the log marginal likelihood, by each of its estimators?

Random training rows of UCI sets, at the hyperparameters that `ExactGP` learns from them, both kernels. The
standard error of the gradient per row with 10 probes, on the logarithm of every parameter: the median over
parameters, and the worst. Solves are exact, by a Cholesky factor in double: all errors are of probes.

    neighbours k    as "neighbours", with k of them; 100 is what it takes

    HALFGP_DATA=... python benchmarks/gradients.py                 everything; some minutes on two cores
    python benchmarks/gradients.py --sets pol --kernels rbf        some; replaces them in gradients.json
"""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.table import Table
from torch import Tensor

from halfgp.hyperparameters import Coordinates, Hyperparameters
from halfgp.likelihood import GradientEstimator
from halfgp.likelihood.dense import lower_kernel
from halfgp.likelihood.traces import HutchinsonTrace, NeighbourTrace, PathwiseTrace, Trace
from halfgp.model import ExactGP
from halfgp.problem import Problem
from halfgp.settings import SolveOptions, VarianceOptions
from product_report import console
from uci import data_directory, training_rows

HERE = Path(__file__).parent
SETS = ("pol", "bike", "kin40k", "protein")
KERNELS = ("matern32", "rbf")
PROBES = 10  # of a gradient
DRAWN = 60  # that their deviation is taken from
COUNTS = (30, 50, 100)
TRACES: dict[str, Callable[[Hyperparameters, Problem, int, int], Trace]] = {
    "hutchinson": HutchinsonTrace.draw,
    "pathwise": PathwiseTrace.draw,
} | {f"neighbours {k}": lambda *about, k=k: NeighbourTrace.draw(*about, neighbours=k) for k in COUNTS}


def learned(name: str, kernel: str, rows: int) -> tuple[Problem, Hyperparameters]:
    """Rows as a fit standardises them, and what it learns."""
    x, y = training_rows(data_directory(None), name, rows)
    # What is learned is wanted, not the solve: whatever it leaves.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        solve, variances = SolveOptions(unsolved="warn"), VarianceOptions("local", calibrate=False)
        model = ExactGP(kernel, method="cholesky", solve=solve, variances=variances)
        model.fit(x.numpy(), y.numpy())
    return model.posterior.problem, model.hyperparameters


def by_logarithms(hyperparameters: Hyperparameters, each: Mapping[str, Tensor]) -> Tensor:
    """Gradients (s, p) on the real line, from those in the values by name; zero by the mean."""
    coordinates = Coordinates(hyperparameters)
    vector, named = coordinates.vector(hyperparameters), hyperparameters.named_parameters()
    zeros = {name: torch.zeros_like(p.value) for name, p in named.items()}
    count = len(next(iter(each.values())))
    pulled = [coordinates.pull_back(vector, zeros | {n: g[c] for n, g in each.items()}) for c in range(count)]
    means = sum(p.value.numel() for name, p in named.items() if name == "mean")
    return torch.stack(pulled)[:, : len(vector) - means]


def measure(name: str, kernel: str, rows: int) -> list[dict[str, Any]]:
    """The standard errors of every estimator."""
    problem, hyperparameters = learned(name, kernel, rows)
    noise = hyperparameters.diagonal_noise(problem.fixed_noise)
    matrix = lower_kernel(hyperparameters.kernel, problem.x)
    matrix.diagonal().add_(noise)
    factor = torch.linalg.cholesky(matrix)
    operator = problem.system(hyperparameters, "double")
    found = []
    for label, draw in TRACES.items():
        trace = draw(hyperparameters, problem, DRAWN, 0)
        start = time.perf_counter()
        equations = GradientEstimator(problem.y, trace, {}).at(hyperparameters, operator)
        seconds = time.perf_counter() - start
        solutions = torch.cholesky_solve(equations.right_hand_sides, factor)
        each = by_logarithms(hyperparameters, equations.gradients_of_probes(solutions))
        errors = each.std(dim=0) / math.sqrt(PROBES)
        found.append(
            {
                "set": name,
                "kernel": kernel,
                "rows": problem.rows,
                "noise": float(noise.min()),
                "estimator": label,
                "errors": [float(f"{error:.4g}") for error in errors],
                "seconds": round(seconds, 4),
            }
        )
    return found


def told(errors: Tensor, against: Tensor) -> str:
    """Median and worst error, and how many times smaller than those of another both are."""
    ratios = against / errors
    return (
        f"{float(errors.median()):.1e}, {float(errors.max()):.1e}"
        f" ({float(ratios.median()):.1f}, {float(against.max() / errors.max()):.1f})"
    )


def print_table(results: list[dict[str, Any]]) -> None:
    """One line a problem."""
    table = Table(
        title=f"Standard error of the gradient per row with {PROBES} probes: median, worst"
        " (how many times smaller than pathwise's)",
        title_justify="left",
    )
    for heading in ("set", "kernel", "rows", "noise", *TRACES):
        table.add_column(heading)
    for name in SETS:
        for kernel in KERNELS:
            rows = {r["estimator"]: r for r in results if (r["set"], r["kernel"]) == (name, kernel)}
            if set(rows) != set(TRACES):
                continue
            errors = {label: torch.tensor(r["errors"]) for label, r in rows.items()}
            cells = [told(errors[label], errors["pathwise"]) for label in TRACES]
            first = rows["pathwise"]
            table.add_row(name, kernel, str(first["rows"]), f"{first['noise']:.1e}", *cells)
    console.print(table)


def main(
    sets: Annotated[str, typer.Option(help="By commas.")] = ",".join(SETS),
    kernels: Annotated[str, typer.Option(help="By commas.")] = ",".join(KERNELS),
    rows: Annotated[int, typer.Option(help="Of each set, drawn at random.")] = 3000,
    output: Annotated[Path, typer.Option(help="JSON to merge into.")] = HERE / "gradients.json",
) -> None:
    """Measure the errors of gradients on real data."""
    unknown = [name for name in sets.split(",") if name not in SETS]
    if unknown:
        raise typer.BadParameter(f"no set {', '.join(unknown)}; there are {', '.join(SETS)}")
    results: list[dict[str, Any]] = json.loads(output.read_text()) if output.exists() else []
    for name in sets.split(","):
        for kernel in kernels.split(","):
            measured = measure(name, kernel, rows)
            results = [r for r in results if (r["set"], r["kernel"]) != (name, kernel)] + measured
            lines = ",\n".join(json.dumps(result) for result in results)  # one a line: errors are many
            output.write_text(f"[\n{lines}\n]\n")
            console.print(f"[dim]{name}, {kernel} done[/]")
    print_table(results)


if __name__ == "__main__":
    typer.run(main)
