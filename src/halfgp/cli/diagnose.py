"""`halfgp diagnose`."""

from __future__ import annotations

import io
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import torch
import typer

from halfgp.analysis import Diagnosis, diagnose
from halfgp.cli import options
from halfgp.cli.models import NamedModel, read_rows, read_training
from halfgp.cli.output import check_output, facts, remark, show, show_json
from halfgp.delimited import Dialect
from halfgp.errors import FileError, InputError
from halfgp.replacement import replacing
from halfgp.tables import Floats

PICTURES = (".png", ".svg", ".pdf")


def run(
    data: options.Data,
    target: options.KnownTarget = None,
    model: Annotated[
        Path | None,
        typer.Option(
            "--model", "-m", help="Model that `halfgp fit` wrote: its kernel and noise.", show_default=False
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Picture to write: .png, .svg or .pdf.", show_default=False),
    ] = None,
    features: options.Features = None,
    drop: options.Drop = None,
    header: options.Header = None,
    delimiter: options.Delimiter = None,
    decimal: options.Decimal = None,
    kernel: Annotated[
        str | None,
        typer.Option(
            help="Without a model: rbf, matern12, matern32, matern52 or rational_quadratic.",
            show_default=False,
        ),
    ] = None,
    noise: Annotated[
        float | None,
        typer.Option(
            help="Without a model: variance of the noise, of standardised targets.", show_default=False
        ),
    ] = None,
    tol: Annotated[float, typer.Option(help="Relative residual that a solve should reach.")] = 0.01,
    rows: Annotated[int, typer.Option(help="Rows that are measured, drawn at random.")] = 2000,
    threads: options.Threads = None,
    seed: options.Seed = 0,
    as_json: options.AsJson = False,
) -> None:
    """Tell which precision is safe for your data, what vanishes in it, and which rank pays.

    With a model, of its kernel and noise; without, of the values that a fit would start from.
    """
    if output is not None:
        _check_picture(output, [data] if model is None else [data, model])
    if threads is not None:
        torch.set_num_threads(threads)
    dialect = options.dialect(header, delimiter, decimal)
    if model is None:
        X, y = _read(data, target, features, drop, dialect)
        found = diagnose(X, y, kernel, noise, rows=rows, tol=tol, threads=threads, seed=seed)
    else:
        given = {"--features": features, "--drop": drop, "--kernel": kernel, "--noise": noise}
        extra = [name for name, value in given.items() if value is not None]
        if extra:
            raise InputError(f"`{extra[0]}` and `--model` exclude each other: a model has its own.")
        named = NamedModel.load(model)
        known = read_rows(named, data, target, dialect)
        if known.dropped and not as_json:
            remark(f"Warning: {known.dropped:,} rows without a value left out.", "bold yellow")
        found = diagnose(known.X, known.y, model=named.gp, rows=rows, tol=tol, threads=threads, seed=seed)
    if output is not None:
        _write(found, output)
    if as_json:
        show_json({**found.as_dict(), "words": found.sentences(), "output": output})
    else:
        show(facts(list(found.sentences().items())))


def _read(
    data: Path, target: str | None, features: str | None, drop: str | None, dialect: Dialect
) -> tuple[Floats, Floats]:
    if target is None:
        raise InputError("`target` must name the column to learn, or `model` a model that knows it.")
    read = read_training(data, target, features, drop, dialect)
    return read.points(), read.y


def _check_picture(output: Path, inputs: list[Path]) -> None:
    """Refuse what cannot be drawn or written before any work is done for it."""
    check_output(output, inputs)
    if find_spec("matplotlib") is None:
        raise InputError("A diagnosis is drawn by matplotlib: `pip install halfgp[plot]`.")
    if output.suffix.lower() not in PICTURES:
        raise FileError(f"The output `{output}` must end in {', '.join(PICTURES)}.")


def _write(found: Diagnosis, output: Path) -> None:
    """Under its name only once it is complete."""
    drawn = io.BytesIO()
    found.plot().savefig(drawn, format=output.suffix[1:].lower(), dpi=150)
    with replacing(output) as partial:
        partial.write_bytes(drawn.getvalue())
