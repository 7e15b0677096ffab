"""Options that several commands share, each said once."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Annotated, Any

import typer

from halfgp.delimited import Dialect
from halfgp.errors import InputError
from halfgp.options import Options, words_of
from halfgp.settings import (
    MOST_SEED,
    MOST_THREADS,
    Settings,
    SolveOptions,
    TrainingOptions,
    VarianceOptions,
)

MEANS_IN_FILES = ("zero", "constant")
NO_PRIORS = "none"
_MODEL = "Model"
_RUN = "Run"
_TEXT = "Text files"

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")]
Data = Annotated[
    Path,
    typer.Argument(
        help="Table of numbers: .csv, .tsv (also .gz), .parquet or a folder of them, .npy or .npz; - for text"
        " on standard input.",
        show_default=False,
    ),
]
PlannedData = Annotated[
    Path | None, typer.Argument(help="Table of numbers, as for `fit`.", show_default=False)
]
PlannedTarget = Annotated[
    str | None,
    typer.Option("--target", "-t", help="Column to learn, as for `fit`.", show_default=False),
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


def _setting(name: str, *flags: str, of: type[Options] = Settings, **more: Any) -> Any:
    """An option of a model, in the words of its declaration."""
    return typer.Option(*flags, help=words_of(of, name), rich_help_panel=_MODEL, **more)


# Named as the settings are, with `group__name` for one within a group, so that errors can be told in options.
Kernel = Annotated[str, _setting("kernel")]
Ard = Annotated[bool, _setting("ard", "--ard/--no-ard")]
Mean = Annotated[str, _setting("mean")]
Priors = Annotated[str, _setting("priors")]
Noise = Annotated[float | None, _setting("noise", show_default=False)]
NoiseFloor = Annotated[float | None, _setting("noise_floor", show_default=False)]
Steps = Annotated[int | None, _setting("steps", "--steps", of=TrainingOptions, show_default=False)]
Subset = Annotated[int, _setting("subset", "--subset", of=TrainingOptions)]
Method = Annotated[str, _setting("method")]
Precision = Annotated[str, _setting("precision")]
Variance = Annotated[str, _setting("method", "--variance", of=VarianceOptions)]
SolveTol = Annotated[float, _setting("tol", "--solve-tol", of=SolveOptions)]
SolveIterations = Annotated[int, _setting("max_iterations", "--solve-max-iterations", of=SolveOptions)]
Unsolved = Annotated[str, _setting("unsolved", "--unsolved", of=SolveOptions)]
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


def mean(name: str) -> str:
    """By name, and one that a model's file can hold: a fit that cannot be saved would be lost.

    Raises:
        InputError: it is neither.
    """
    if name not in MEANS_IN_FILES:
        raise InputError(f"`--mean` must be one of {', '.join(MEANS_IN_FILES)}; got {name!r}.")
    return name


def columns(text: str | None, option: str) -> list[str] | None:
    """Names from a list with commas; one that holds a comma itself is put in double quotes."""
    if text is None:
        return None
    names = [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]
    if not all(names) or not names:
        raise InputError(f'`{option}` must be names with commas, such as "a,b"; got {text!r}.')
    return names
