"""What a command writes: tables or one JSON document to standard output, remarks to standard error."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from halfgp.errors import FileError
from halfgp.report.files import as_json


class _Console(Console):
    """One whose reader may go away: that is for `failures` to handle, once for all commands."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def show(*renderables: RenderableType) -> None:
    """Print to standard output for people; text from files is never taken for markup."""
    console = _Console(highlight=False, markup=False)
    for renderable in renderables:
        console.print(renderable)


def show_json(document: Mapping[str, Any]) -> None:
    """Print the one JSON document of a command; what is not finite is null, as JSON has no word for it."""
    typer.echo(as_json(document, indent=2))


def remark(text: str, style: str = "") -> None:
    """Print one line to standard error, however long it is."""
    console = _Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    head, _, rest = text.partition(":")
    console.print(Text.assemble((head, style), ":", rest) if rest and style else Text(text))


def facts(pairs: list[tuple[str, str]]) -> Table:
    """Labels and what they say, in two columns."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column()
    for label, text in pairs:
        grid.add_row(Text(label), Text(text))
    return grid


def check_output(path: Path) -> None:
    """Refuse an output that cannot be written before any work is done for it.

    Raises:
        FileError: the path is a directory, or its directory is absent or not writable.
    """
    if path.is_dir():
        raise FileError(f"The output `{path}` is a directory. Give the path of a file.")
    if not path.parent.is_dir():
        raise FileError(f"The output `{path}` is in no directory that exists. Make `{path.parent}` first.")
    try:  # not `os.access`, which knows neither a read-only file system nor a full one
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise FileError(
            f"The output `{path}` cannot be written: {error.strerror}. Choose another directory."
        ) from error
