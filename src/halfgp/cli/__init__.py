"""The command line: parse, call, print. One file for each command."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from halfgp.cli.failures import Commands
from halfgp.version import __version__

app = typer.Typer(
    name="halfgp",
    cls=Commands,
    help="Exact Gaussian processes in low precision.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"halfgp {__version__}")
        raise typer.Exit


@app.callback(
    epilog="Exit codes: 0 done, 1 it could not be done, 2 not understood, 130 Ctrl-C."
    " HALFGP_DEBUG=1 shows tracebacks."
)
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and stop."),
    ] = False,
) -> None:
    """Exact Gaussian processes in low precision."""


def main() -> None:
    """Run the command that the arguments of the process name."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by who started us: nobody wants to read it
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a bar is no reason to fail where only ASCII can be printed
    app()
