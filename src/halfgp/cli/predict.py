"""`halfgp predict`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.table import Table

from halfgp.cli import options
from halfgp.cli.models import NamedModel, read_points
from halfgp.cli.output import check_output, show, show_json
from halfgp.data import as_levels
from halfgp.model import ExactGP
from halfgp.report import words
from halfgp.tables import Floats, check_format, write_table

SHOWN = 10  # rows, without an output
DEFAULT = 0.95  # of an interval


def run(
    model: options.Model,
    data: options.Data,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Table to write; without it the first rows are shown.", show_default=False
        ),
    ] = None,
    std: Annotated[bool, typer.Option("--std/--no-std", help="Standard deviations and intervals.")] = True,
    error: Annotated[bool, typer.Option("--error", help="Estimates of the numerical error.")] = False,
    interval: Annotated[
        list[float] | None,
        typer.Option(
            help="Probability of an interval; 0.9 writes lower_90 and upper_90. May be said again.",
            show_default="0.95",
        ),
    ] = None,
    samples: Annotated[int, typer.Option(help="So many functions drawn from the posterior.", min=0)] = 0,
    header: options.Header = None,
    delimiter: options.Delimiter = None,
    decimal: options.Decimal = None,
    seed: options.Seed = 0,
    threads: options.Threads = None,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Predict the target for new rows.

    Columns are matched by name, and others are ignored; a model that was fitted without names takes them as
    they stand. Deviations and intervals are those of a new value, its noise included; samples are of the
    function without noise. Intervals come from quantiles of leave-one-out residuals: the mean need not be in
    their middle.
    """
    levels, _ = as_levels(interval or [DEFAULT], "interval")
    if output is not None:
        check_output(output, [model, data])
        check_format(output)
    if threads is not None:
        torch.set_num_threads(threads)
    dialect = options.dialect(header, delimiter, decimal)
    named = NamedModel.load(model)
    X = read_points(named, data, dialect)
    columns = _columns(named.gp, X, std=std, error=error, levels=levels, samples=samples, seed=seed)
    if output is not None:
        write_table(output, columns)
    if as_json:
        values = {} if output is not None else {name: column.tolist() for name, column in columns.items()}
        written = [] if output is None else list(columns)
        show_json({"rows": len(X), "output": output, "columns": written or values})
    elif output is None:
        show(_table(columns))
    elif not quiet:
        show(f"{words.plural(len(X), 'row')} with {', '.join(columns)} in {output}")


def _columns(
    gp: ExactGP, X: Floats, *, std: bool, error: bool, levels: list[float], samples: int, seed: int
) -> dict[str, Floats]:
    """What is asked for, by the names of its columns."""
    found = gp.predict(X, return_std=std, return_error=error)
    columns: dict[str, Floats] = {"mean": found.mean}
    if found.std is not None:
        columns["std"] = found.std
        for level, lower, upper in zip(levels, *gp.fitted.interval(found, levels), strict=True):
            percent = f"{100 * level:.12g}"  # as it was said, without the rounding of the product
            columns |= {f"lower_{percent}": lower, f"upper_{percent}": upper}
    if found.error is not None:
        columns["mean_error"] = found.error.mean
        if found.error.std is not None:
            columns["std_error"] = found.error.std
    if samples:
        draws = gp.sample(X, samples, seed=seed)
        columns |= {f"sample_{k + 1}": draws[:, k] for k in range(samples)}
    return columns


def _table(columns: dict[str, Floats]) -> Table:
    rows = len(next(iter(columns.values())))
    more = f"{rows - SHOWN:,} more rows: write them all with -o out.csv" if rows > SHOWN else None
    table = Table(box=None, padding=(0, 2, 0, 0), caption=more, caption_justify="left")
    for name in ("row", *columns):
        table.add_column(name, justify="right")
    for k in range(min(rows, SHOWN)):
        table.add_row(
            str(k + 1),
            *(words.number(float(c[k]), 2 if "error" in name else 5) for name, c in columns.items()),
        )
    return table
