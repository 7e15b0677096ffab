"""What a command writes: tables or one JSON document to standard output, remarks to standard error."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from halfgp.errors import FileError
from halfgp.json_text import as_json
from halfgp.replacement import mode_of_regular

# What a terminal obeys instead of showing it: control characters, and those that reverse the order of others.
OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class _Console(Console):
    """One whose reader may go away, and whose text may come from anyone.

    The first is for `failures` to handle, once for all commands.
    """

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else _harmless(text), style, control)


def _harmless(text: str) -> str:
    """With whatever would command a terminal spelled out."""
    return OBEYED.sub(lambda match: repr(match[0])[1:-1], text)


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
    text = text.replace("\n", "\\n")
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


def check_output(path: Path, inputs: Sequence[Path] = ()) -> None:
    """Refuse an output that cannot or should not be written before any work is done for it.

    Raises:
        FileError: the path is that of a directory or a device, of an input or of a file that is read-only, or
            its directory is absent or not writable.
    """
    try:
        _check_file(path, inputs)
        parent = Path(os.path.realpath(path)).parent
        if not parent.is_dir():
            raise FileError(
                f"The output `{path}` is in no directory that exists. Make `{path.parent}` first."
            )
        # Not `os.access`, which knows neither a read-only file system nor a full one.
        with tempfile.TemporaryFile(dir=parent):
            pass
    except OSError as error:
        raise FileError(
            f"The output `{path}` cannot be written: {error.strerror}. Choose another directory."
        ) from error


def _check_file(path: Path, inputs: Sequence[Path]) -> None:
    """What is there already under that name."""
    mode = mode_of_regular(path)
    for other in inputs:
        # By file, for one may have several names; by name, for there may be no file yet.
        if os.path.realpath(path) == os.path.realpath(other) or (
            mode is not None and other.exists() and path.samefile(other)
        ):
            raise FileError(
                f"The output `{path}` is the file `{other}` of this command, which it would overwrite. Give"
                " another path."
            )
    # Root may write to it all the same, and the file is not written but replaced: it is the wish that counts.
    if mode is not None and not (mode & 0o222 and os.access(path, os.W_OK)):
        raise FileError(f"The output `{path}` is read-only. Give another path, or allow it: chmod u+w.")
