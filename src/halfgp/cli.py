"""The command line: parse, call, print."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console

from halfgp import doctor as diagnosis
from halfgp.version import __version__

app = typer.Typer(
    name="halfgp",
    help="Exact Gaussian processes in low precision.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"halfgp {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and stop."),
    ] = False,
) -> None:
    """Exact Gaussian processes in low precision."""


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the facts as JSON instead.")] = False,
) -> None:
    """Show what this machine has, and which backend would serve it."""
    report = diagnosis.examine()
    if as_json:
        typer.echo(json.dumps(report.as_dict(), indent=2))
    else:
        Console().print(diagnosis.render(report))


def main() -> None:
    """Entry point of the `halfgp` command."""
    app()
