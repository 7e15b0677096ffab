"""Do linear solves survive half precision on real data, and what does the default cost beside double?

Five UCI sets, split 0, all training rows, RBF and Matérn-3/2 at the hyperparameters of hyperparameters.json.
Right-hand sides are the targets and ten Gaussian probes up to `--probe-rows`, the targets alone beyond. Every
residual is |b - A x| / |b| with A in double from the inputs as given; of several columns the worst.

    standard   standard CG in half, without a preconditioner and with rank 15: does it fail?
    stable     the paper's stable CG in half, rank 15, 50 iterations, tolerance 0.5
    default    the ladder at 1e-2 and 1e-6 beside textbook PCG in double, rank 100: passes and seconds
    ranks      ranks 0 to 500 beside SciPy and GPyTorch, targets alone
    overhead   time outside the products, N = 20,000, t = 11, 50 iterations with re-orthogonalisation
    build      PivotedCholesky(rank=100) in units of one product, N = 20,000, t = 11

    HALFGP_DATA=... python benchmarks/solvers.py           everything; hours on two cores
    python benchmarks/solvers.py --quick                   a smoke run on 3000 rows of two sets; prints only
    python benchmarks/solvers.py --only default --sets pol some of it; replaces its rows in solvers.json
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor

from halfgp.errors import ConvergenceWarning
from halfgp.preconditioners import PivotedCholesky
from halfgp.solvers import SolveResult, cg
from product_report import console, print_claims
from solver_peers import PEERS, TimedOperator
from solver_report import PRINTERS, claims, write
from timing import round_robin
from uci import KERNELS, SETS, Problem, data_directory, trained_problem

HERE = Path(__file__).parent
PROBES = 10
TOLERANCES = "1e-2,1e-6"
RANKS = (0, 5, 15, 50, 100, 500)
HALF_ITERATIONS = 50  # the paper's
# Preconditioned conjugate gradients as everybody has them.
TEXTBOOK: dict[str, Any] = {"precision": "double", "inner_product": "direct", "reorthogonalise": False}
SHARED_ROWS = 20_000  # of `overhead` and `build`


@dataclass
class Run:
    """What to measure, and what has been found so far, by section."""

    directory: Path
    sets: tuple[str, ...]
    kernels: tuple[str, ...]
    rows: int | None
    probe_rows: int
    max_iterations: int
    tolerances: tuple[float, ...]
    path: Path | None
    results: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def problems(self) -> Iterator[Problem]:
        for set_name in self.sets:
            for kernel_name in self.kernels:
                yield trained_problem(self.directory, set_name, kernel_name, self.rows)

    def right_hand_sides(self, problem: Problem) -> Tensor:
        return problem.right_hand_sides(PROBES if len(problem.y) <= self.probe_rows else 0)

    def add(self, section: str, problem: Problem, **values: Any) -> None:
        row = {"set": problem.set_name, "kernel": problem.kernel_name, "n": len(problem.y), **values}
        row |= {"threads": torch.get_num_threads(), "load": os.getloadavg()[0]}  # was the machine quiet?
        self.results.setdefault(section, []).append(row)
        told = ("tol", "rank", "precision", "solver", "status", "residual", "passes_ratio", "seconds_ratio")
        figures = ", ".join(f"{name} {row[name]}" for name in told if name in row)
        console.print(f"[dim]{section}: {problem.label}: {figures}[/]", highlight=False)
        if self.path is not None:  # after every row: a run takes long, and may be stopped
            write(self.path, self.results)


def solve(operator: Any, b: Tensor, **options: Any) -> tuple[SolveResult, float]:
    """The result and its seconds. Not to converge is an outcome here, and is reported as one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        start = time.perf_counter()
        result = cg(operator, b, **options)
        return result, time.perf_counter() - start


def summary(result: SolveResult, seconds: float) -> dict[str, Any]:
    """What of a result goes into the JSON."""
    return {
        "status": str(result.status),
        "residual": float(torch.as_tensor(result.residual_norms).max()),
        "iterations": result.iterations,
        "passes": result.passes,
        "passes_by_precision": result.passes_by_precision,
        "climbs": [f"{c.iteration}: {c.source} to {c.target}, {c.reason}" for c in result.climbs],
        "seconds": seconds,
    }


def in_half(run: Run, section: str, ranks: tuple[int, ...], **options: Any) -> None:
    """The paper's method in half, at the paper's tolerance."""
    for problem in run.problems():
        b = run.right_hand_sides(problem)
        operator = problem.operator()
        for rank in ranks:
            result, seconds = solve(
                operator,
                b,
                preconditioner=PivotedCholesky(rank=rank).build(operator) if rank else None,
                method="paper",
                precision="half",
                tol=0.5,
                max_iterations=HALF_ITERATIONS,
                **options,
            )
            history = torch.as_tensor(result.history)
            run.add(
                section,
                problem,
                rank=rank,
                t=b.shape[1],
                residual_y=float(result.residual_norms[0]),
                recurrence=float(history[-1].max()) if len(history) else 1.0,  # of x = 0
                **summary(result, seconds),
            )


def standard(run: Run) -> None:
    """The textbook recurrence with everything in half."""
    in_half(run, "standard", (0, 15), inner_product="direct", reorthogonalise=False)


def stable(run: Run) -> None:
    """The paper's algorithm as corrected."""
    in_half(run, "stable", (15,), inner_product="log", reorthogonalise=True)


def default(run: Run) -> None:
    """The ladder beside textbook PCG in double with the same preconditioner, in turns."""
    for problem in run.problems():
        b = run.right_hand_sides(problem)
        operator = problem.operator()
        preconditioner = PivotedCholesky(rank=100).build(operator)
        for tol in run.tolerances:
            found = {
                name: summary(
                    *solve(
                        operator,
                        b,
                        preconditioner=preconditioner,
                        tol=tol,
                        max_iterations=run.max_iterations,
                        **options,
                    )
                )
                for name, options in (("default", {}), ("double", TEXTBOOK))
            }
            run.add(
                "default",
                problem,
                tol=tol,
                t=b.shape[1],
                passes_ratio=found["default"]["passes"] / found["double"]["passes"],
                seconds_ratio=found["default"]["seconds"] / found["double"]["seconds"],
                **found,
            )


def ranks(run: Run) -> None:
    """Passes and seconds by rank, beside SciPy and GPyTorch, the targets alone."""
    tol = run.tolerances[0]
    for problem in run.problems():
        operator, b = problem.operator(), problem.y[:, None]
        for rank in RANKS:
            start = time.perf_counter()
            preconditioner = PivotedCholesky(rank=rank).build(operator)
            common = {"rank": rank, "tol": tol, "build_seconds": time.perf_counter() - start}
            result, seconds = solve(
                operator, b, preconditioner=preconditioner, tol=tol, max_iterations=run.max_iterations
            )
            run.add("ranks", problem, solver="default", **common, **summary(result, seconds))
            for name, peer in PEERS.items():
                found = peer(operator, b, preconditioner, tol, run.max_iterations)
                run.add("ranks", problem, solver=name, **common, **found.as_dict())


def shared_problems(run: Run) -> Iterator[Problem]:
    """Sets that have so many rows, cut to them; in a quick run whatever there is."""
    rows = min(run.rows or SHARED_ROWS, SHARED_ROWS)
    for set_name in run.sets:
        problem = trained_problem(run.directory, set_name, "rbf", rows)
        if len(problem.y) == rows:
            yield problem


def overhead(run: Run) -> None:
    """The share of vectors, dots, preconditioner and re-orthogonalisation, products timed one by one."""
    for problem in shared_problems(run):
        b = problem.right_hand_sides(PROBES)
        plain = problem.operator()
        preconditioner = PivotedCholesky(rank=100).build(plain)
        for name, method in (("auto", "auto"), ("half", "paper")):
            timed = TimedOperator(plain)
            result, seconds = solve(
                timed,
                b,
                preconditioner=preconditioner,
                tol=1e-14,  # out of reach, so that all iterations are taken
                max_iterations=HALF_ITERATIONS,
                method=method,
                inner_product="direct",
                precision=name,
            )
            outside = seconds - sum(timed.log)
            run.add(
                "overhead",
                problem,
                precision=name,
                t=b.shape[1],
                outside=outside,
                share=outside / seconds,
                **summary(result, seconds),
            )


def build(run: Run) -> None:
    """The preconditioner of rank 100 in units of a product."""
    for problem in shared_problems(run):
        b = problem.right_hand_sides(PROBES)
        operators = {name: problem.operator(name) for name in ("half", "single", "double")}
        candidates: dict[str, Callable[[], object]] = {
            name: lambda op=op, b=b: op @ b for name, op in operators.items()
        }
        recipe = PivotedCholesky(rank=100)
        candidates["build"] = lambda op=operators["single"], recipe=recipe: recipe.build(op)
        timings = round_robin(candidates, rounds=3)
        seconds = timings.pop("build").best
        run.add(
            "build",
            problem,
            seconds=seconds,
            in_products={name: seconds / timing.best for name, timing in timings.items()},
        )


SECTIONS: dict[str, Callable[[Run], None]] = {
    "standard": standard,
    "stable": stable,
    "default": default,
    "ranks": ranks,
    "overhead": overhead,
    "build": build,
}


def main(
    data: Annotated[Path | None, typer.Option(help="Directory of the sets; default HALFGP_DATA.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="3000 rows of two sets: does it run?")] = False,
    only: Annotated[str, typer.Option(help=f"Sections, by commas: {', '.join(SECTIONS)}.")] = "",
    sets: Annotated[str, typer.Option(help="By commas.")] = "",
    kernels: Annotated[str, typer.Option(help="By commas.")] = ",".join(KERNELS),
    rows: Annotated[int | None, typer.Option(help="At most so many training rows.")] = None,
    probe_rows: Annotated[
        int, typer.Option(help="Probes up to so many rows, the targets alone beyond.")
    ] = 20_000,
    max_iterations: Annotated[int, typer.Option(help="Of every solve that is not cut at 50.")] = 1000,
    tolerances: Annotated[
        str, typer.Option(help="Of `default`, by commas; `ranks` takes the first.")
    ] = TOLERANCES,
    threads: Annotated[int | None, typer.Option(help="Of the products; fewer where others work too.")] = None,
    output: Annotated[
        Path | None, typer.Option(help="JSON to merge into; solvers.json unless --quick.")
    ] = None,
) -> None:
    """Measure the solvers on real data."""
    chosen = [name.strip() for name in only.split(",") if name.strip()] or list(SECTIONS)
    unknown = sorted(set(chosen) - set(SECTIONS))
    if unknown:
        raise typer.BadParameter(f"no section {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    names = tuple(sets.split(",")) if sets else (("elevators", "protein") if quick else SETS)
    if threads is not None:
        torch.set_num_threads(threads)
    run = Run(
        data_directory(data),
        names,
        tuple(kernels.split(",")),
        3000 if quick and rows is None else rows,
        probe_rows,
        max_iterations,
        tuple(float(tol) for tol in tolerances.split(",")),
        output or (None if quick else HERE / "solvers.json"),
    )
    for name in chosen:
        SECTIONS[name](run)
        if run.results.get(name):
            PRINTERS[name](run.results[name])
    print_claims(claims(run.results), {})


if __name__ == "__main__":
    typer.run(main)
