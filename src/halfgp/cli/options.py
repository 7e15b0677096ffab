"""Options that several commands share, each said once."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Annotated

import typer

from halfgp.delimited import Dialect
from halfgp.errors import InputError
from halfgp.priors import NAMED
from halfgp.settings import CHOICES, MOST_SEED, MOST_THREADS

NO_PRIORS = "none"
_MODEL = "Model"
_RUN = "Run"
_TEXT = "Text files"

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")]
Data = Annotated[
    Path,
    typer.Argument(
        help="Table of numbers: .csv, .tsv (also .gz), .parquet, .npy or .npz; - for text on standard input.",
        show_default=False,
    ),
]
Model = Annotated[Path, typer.Argument(help="Model that `halfgp fit` wrote.", show_default=False)]
Target = Annotated[
    str,
    typer.Option("--target", "-t", help="Column to learn: its name, or -1 for the last.", show_default=False),
]
KnownTarget = Annotated[
    str | None,
    typer.Option(
        "--target", "-t", help="Column of the values; by default that of the fit.", show_default=False
    ),
]
Features = Annotated[
    str | None,
    typer.Option(
        "--features",
        help="Columns to learn from, with commas; by default all others.",
        show_default=False,
    ),
]
Drop = Annotated[
    str | None, typer.Option("--drop", help="Columns to leave out, with commas.", show_default=False)
]
Header = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header",
        help="Whether the first row holds names; by default if it is not all numbers.",
        show_default=False,
        rich_help_panel=_TEXT,
    ),
]
Delimiter = Annotated[
    str | None,
    typer.Option(
        help="Between cells: one character, or tab; by default what splits all rows alike.",
        show_default=False,
        rich_help_panel=_TEXT,
    ),
]
Decimal = Annotated[
    str | None,
    typer.Option(
        help="In numbers: a point or a comma; by default what can be nothing else.",
        show_default=False,
        rich_help_panel=_TEXT,
    ),
]
Kernel = Annotated[
    str,
    typer.Option(help="rbf, matern12, matern32, matern52 or rational_quadratic.", rich_help_panel=_MODEL),
]
Ard = Annotated[
    bool, typer.Option("--ard/--no-ard", help="One lengthscale per feature.", rich_help_panel=_MODEL)
]
Mean = Annotated[str, typer.Option(help=", ".join(CHOICES["mean"]) + ".", rich_help_panel=_MODEL)]
Priors = Annotated[str, typer.Option(help=", ".join((*NAMED, NO_PRIORS)) + ".", rich_help_panel=_MODEL)]
Noise = Annotated[
    float | None,
    typer.Option(
        help="Variance of the noise where training starts, of standardised targets.",
        show_default=False,
        rich_help_panel=_MODEL,
    ),
]
NoiseFloor = Annotated[
    float,
    typer.Option(help="Least variance of the noise, of standardised targets.", rich_help_panel=_MODEL),
]
Steps = Annotated[int, typer.Option(help="Training steps on all rows, by solves.", rich_help_panel=_MODEL)]
Subset = Annotated[
    int, typer.Option(help="Rows of the exact training before them; 0 for none.", rich_help_panel=_MODEL)
]
Method = Annotated[str, typer.Option(help=", ".join(CHOICES["method"]) + ".", rich_help_panel=_MODEL)]
Precision = Annotated[
    str,
    typer.Option(help="Of training solves: auto, half, bfloat16, single or double.", rich_help_panel=_MODEL),
]
Variance = Annotated[str, typer.Option(help=", ".join(CHOICES["variance"]) + ".", rich_help_panel=_MODEL)]
TestTol = Annotated[float, typer.Option(help="Relative residual of the final solve.", rich_help_panel=_MODEL)]
TestMaxIterations = Annotated[
    int, typer.Option(help="Iterations of the final solve, at most.", rich_help_panel=_MODEL)
]
Unsolved = Annotated[
    str,
    typer.Option(
        help=", ".join(CHOICES["unsolved"]) + ": where the final solve is not exact enough.",
        rich_help_panel=_MODEL,
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        help="Threads; by default one per core.",
        show_default=False,
        min=1,
        max=MOST_THREADS,
        rich_help_panel=_RUN,
    ),
]
MemoryLimit = Annotated[
    str | None,
    typer.Option(
        help="Such as 2GB; by default what the machine has.", show_default=False, rich_help_panel=_RUN
    ),
]
Seed = Annotated[int, typer.Option(help="Of everything random.", min=0, max=MOST_SEED, rich_help_panel=_RUN)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors and warnings only.")]


def dialect(header: bool | None, delimiter: str | None, decimal: str | None) -> Dialect:
    """Of text files; a tab can be said in letters."""
    said = {"tab": "\t", "\\t": "\t"}
    return Dialect(header, None if delimiter is None else said.get(delimiter, delimiter), decimal).check()


def priors(name: str) -> str | None:
    """By name, as `Settings` has them."""
    return None if name == NO_PRIORS else name


def columns(text: str | None, option: str) -> list[str] | None:
    """Names from a list with commas; one that holds a comma itself is put in double quotes."""
    if text is None:
        return None
    names = [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]
    if not all(names) or not names:
        raise InputError(f'`{option}` must be names with commas, such as "a,b"; got {text!r}.')
    return names
