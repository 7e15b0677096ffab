"""How the measurements of solvers.py are shown: a table a section, and the claims they support."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from halfgp.doctor import examine
from product_report import Claim, console

MOST_PASSES = 1.3  # of the default, times those of double
MOST_SECONDS = 0.5
HALF_TOLERANCE = 0.5  # the paper's
Row = Mapping[str, Any]


def label(row: Row) -> str:
    return f"{row['set']}, {row['kernel']}"


def print_rows(title: str, headings: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    """A table whose first column is text."""
    table = Table(title=title, title_justify="left")
    for k, heading in enumerate(headings):
        table.add_column(heading, justify="right" if k else "left")
    for row in cells:
        table.add_row(*row)
    console.print(table)


def by_precision(passes: Mapping[str, int]) -> str:
    return " + ".join(f"{count} {name}" for name, count in passes.items())


def print_half(title: str, rows: Sequence[Row]) -> None:
    """Sections `standard` and `stable`: a solve in half, 50 iterations at most."""
    headings = (
        "",
        "N",
        "rank",
        "status",
        "iterations",
        "residual of y",
        "worst of t",
        "of recurrence",
        "t",
        "s",
    )
    cells = [
        (
            label(row),
            f"{row['n']:,}",
            str(row["rank"]),
            row["status"],
            str(row["iterations"]),
            f"{row['residual_y']:.3g}",
            f"{row['residual']:.3g}",
            f"{row['recurrence']:.3g}",
            str(row["t"]),
            f"{row['seconds']:.1f}",
        )
        for row in rows
    ]
    print_rows(title, headings, cells)


def print_default(rows: Sequence[Row]) -> None:
    """Section `default`: the ladder beside double."""
    headings = (
        "",
        "N",
        "t",
        "tol",
        "residual",
        "passes",
        "double",
        "ratio",
        "s",
        "double",
        "ratio",
        "by precision",
    )
    cells = [
        (
            label(row),
            f"{row['n']:,}",
            str(row["t"]),
            f"{row['tol']:.0e}",
            f"{row['default']['residual']:.1e}",
            str(row["default"]["passes"]),
            str(row["double"]["passes"]),
            f"{row['passes_ratio']:.2f}",
            f"{row['default']['seconds']:.2f}",
            f"{row['double']['seconds']:.2f}",
            f"{row['seconds_ratio']:.2f}",
            by_precision(row["default"]["passes_by_precision"]),
        )
        for row in rows
    ]
    print_rows("The default beside double, rank 100, seconds without the preconditioner's", headings, cells)


def print_ranks(rows: Sequence[Row]) -> None:
    """Section `ranks`."""
    headings = ("", "tol", "rank", "solver", "passes", "s", "true residual", "s to build")
    cells = [
        (
            label(row),
            f"{row['tol']:.0e}",
            str(row["rank"]),
            row["solver"],
            str(row["passes"]),
            f"{row['seconds']:.2f}",
            f"{row['residual']:.1e}",
            f"{row['build_seconds']:.2f}",
        )
        for row in rows
    ]
    print_rows("Ranks, y alone", headings, cells)


def print_overhead(rows: Sequence[Row]) -> None:
    """Section `overhead`."""
    headings = ("", "N", "t", "precision", "iterations", "s", "of it outside", "share")
    cells = [
        (
            label(row),
            f"{row['n']:,}",
            str(row["t"]),
            row["precision"],
            str(row["iterations"]),
            f"{row['seconds']:.2f}",
            f"{row['outside']:.2f}",
            f"{row['share']:.1%}",
        )
        for row in rows
    ]
    print_rows("Time outside the products", headings, cells)


def print_build(rows: Sequence[Row]) -> None:
    """Section `build`."""
    headings = ("", "N", "s to build", "in half products", "in single", "in double")
    cells = [
        (
            label(row),
            f"{row['n']:,}",
            f"{row['seconds']:.3f}",
            *(f"{row['in_products'][name]:.2f}" for name in ("half", "single", "double")),
        )
        for row in rows
    ]
    print_rows("Building PivotedCholesky(rank=100), t = 11", headings, cells)


def claims(results: Mapping[str, Sequence[Row]]) -> list[Claim]:
    """What issue and paper ask for beside what came, for the sections that were measured."""
    found: list[Claim] = []
    for row in results.get("standard", ()):
        found.append(
            Claim(
                f"{label(row)}, rank {row['rank']}: standard CG in half fails, residual of y",
                row["residual_y"],
                "at least",
                HALF_TOLERANCE,
                "",
            )
        )
    for row in results.get("stable", ()):
        what = f"{label(row)}: the paper's stable CG, residual of y"
        found.append(Claim(what, row["residual_y"], "at most", HALF_TOLERANCE, ""))
    for row in results.get("default", ()):
        what = f"{label(row)}, {row['tol']:.0e}: default,"
        found += [
            Claim(f"{what} true residual", row["default"]["residual"], "at most", row["tol"], ""),
            Claim(f"{what} passes over double's", row["passes_ratio"], "at most", MOST_PASSES, "x"),
            Claim(f"{what} seconds over double's", row["seconds_ratio"], "at most", MOST_SECONDS, "x"),
        ]
    for row in results.get("overhead", ()):
        what = f"{label(row)}, {row['precision']}: share of time outside the products"
        found.append(Claim(what, 100 * row["share"], "at most", 20, " %"))
    for row in results.get("build", ()):
        what = f"{label(row)}: building rank 100, in half products with t = 11"
        found.append(Claim(what, row["in_products"]["half"], "at most", 1, "x"))
    return found


PRINTERS = {
    "standard": lambda rows: print_half(
        "Standard CG in half: 50 iterations, direct sums, no re-orthogonalisation", rows
    ),
    "stable": lambda rows: print_half(
        "The paper's stable CG in half: 50 iterations, rank 15, tolerance 0.5", rows
    ),
    "default": print_default,
    "ranks": print_ranks,
    "overhead": print_overhead,
    "build": print_build,
}


def identity(row: dict[str, Any]) -> tuple[Any, ...]:
    """What a row is a measurement of."""
    return tuple(row.get(name) for name in ("set", "kernel", "tol", "rank", "precision", "solver"))


def merged(path: Path, found: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """Rows of an earlier file, but for those of sections and problems that were measured again."""
    earlier = json.loads(path.read_text())["results"] if path.exists() else {}
    for section, rows in found.items():
        again = {identity(row) for row in rows}
        kept = [row for row in earlier.get(section, []) if identity(row) not in again]
        earlier[section] = kept + rows
    return {section: earlier[section] for section in PRINTERS if section in earlier}


def write(path: Path, results: dict[str, list[dict[str, Any]]]) -> None:
    """Merge results into a file, with the claims on all of them and the machine of the last run."""
    results = merged(path, results)
    document = {
        "machine": examine().as_dict(),
        "claims": [claim.as_dict() for claim in claims(results)],
        "results": results,
    }
    path.write_text(json.dumps(document, indent=1) + "\n")
