"""`halfgp paper`: the paper's figures and tables, measured here."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from halfgp.cli import options
from halfgp.cli.failures import CANNOT, Interruption
from halfgp.cli.output import remark, show, show_json
from halfgp.errors import FileError, InputError
from halfgp.paper.frame.context import Context
from halfgp.paper.frame.part import Part, Verdict
from halfgp.paper.frame.progress import RunProgress
from halfgp.paper.frame.run import Run, run
from halfgp.report import words

FOLDERS = {"quick": Path("paper-quick"), "full": Path("paper-full")}

app = typer.Typer(
    help="The paper's figures and tables, measured here, with a verdict on each claim.", no_args_is_help=True
)


@app.command("run")
def run_parts(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[PART]...", help="Such as fig4b; by default all.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small samples: minutes in all, instead of hours.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Directory; by default paper-quick or paper-full.", show_default=False
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Directory of the data sets; by default HALFGP_DATA.", show_default=False),
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Run also what is finished.")] = False,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Measure parts of the paper and write one HTML page about all that were measured.

    A part that is finished is not run again unless its code, versions, settings or data have changed, so that
    a killed run goes on where it was. A part whose data are absent is skipped. Exits with 1 if a part failed,
    or if a claim that must hold does not.
    """
    parts = _chosen(names or [])
    folder = output or FOLDERS["quick" if quick else "full"]
    _check_folder(folder)
    context = Context(quick=quick, output=folder, data=data)
    try:
        found = run(
            parts, context, contents=_contents(), again=again, progress=RunProgress(quiet=quiet or as_json)
        )
    except KeyboardInterrupt:
        raise Interruption(
            f"Interrupted: what is finished is in {folder}; the same command goes on from there."
        ) from None
    _tell(found, as_json, quiet)
    if found.failed or found.unmet:
        raise typer.Exit(CANNOT)


@app.command("list")
def list_parts(as_json: options.AsJson = False) -> None:
    """List the parts, in the order of the paper."""
    if as_json:
        show_json(
            {
                "parts": [
                    {"name": p.name, "place": p.place, "title": p.title, "minutes": p.minutes}
                    for p in _contents()
                ]
            }
        )
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("part", "in the paper", "shows", "in full"):
        table.add_column(heading, no_wrap=heading in ("part", "in full"))
    for part in _contents():
        time = words.duration(60 * part.minutes)
        table.add_row(Text(part.name, style="bold"), Text(part.short_place), Text(part.title), time)
    show(table)


def _contents() -> tuple[Part, ...]:
    """All parts, imported only where they are wanted: no other command should wait for them."""
    from halfgp.paper.contents import PARTS

    return PARTS


def _chosen(names: list[str]) -> tuple[Part, ...]:
    """The parts of those names in the order of the paper; all of them for no name."""
    contents = _contents()
    known = [part.name for part in contents]
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
            hint = f"Did you mean {' or '.join(near)}?" if near else "`halfgp paper list` shows them."
            raise InputError(f"There is no part {name!r}. {hint}")
    return tuple(part for part in contents if part.name in names or not names)


def _check_folder(folder: Path) -> None:
    """Make it now, before hours of work for nothing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(
            f"The output `{folder}` cannot be made: {error.strerror}. Choose another directory."
        ) from error


def _tell(found: Run, as_json: bool, quiet: bool) -> None:
    """The page, and how many claims have which verdict."""
    if as_json:
        show_json(
            {
                "page": found.page,
                "parts": [
                    {
                        "name": result.name,
                        "status": result.status.value,
                        "reason": result.reason,
                        "seconds": result.seconds,
                        "claims": [
                            {
                                "text": claim.text,
                                "verdict": claim.verdict.value,
                                "measured": claim.measured,
                                "required": claim.required,
                            }
                            for claim in result.claims
                        ],
                    }
                    for result in found.results
                ],
            }
        )
        return
    for name, claim in found.unmet:
        remark(f"Required: {name}: {claim.text} ({claim.verdict.value}: {claim.measured})", "bold red")
    if quiet:
        return
    verdicts = [claim.verdict for result in found.results for claim in result.claims]
    counts = [f"{verdicts.count(verdict)} {verdict.value}" for verdict in Verdict if verdict in verdicts]
    claims = f": {', '.join(counts)}" if counts else ""
    show(f"{words.plural(len(verdicts), 'claim')}{claims}.\nThe page is {found.page}")
