"""Running parts: one after another, each kept when it is done, none keeping the others from being run."""

from __future__ import annotations

import importlib.util
import json
import sys
import time
import traceback
import warnings
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path

from halfgp import doctor
from halfgp.errors import HalfGPError, HalfGPWarning, InputError, MissingData
from halfgp.json_text import as_json
from halfgp.paper.frame import store
from halfgp.paper.frame.context import Context
from halfgp.paper.frame.page import build_page
from halfgp.paper.frame.part import Claim, Outcome, Part, Verdict
from halfgp.paper.frame.progress import RunProgress
from halfgp.paper.frame.store import Result, Status
from halfgp.replacement import write_whole
from halfgp.report import words

PAGE = "index.html"
QUICK_SECONDS = 4.0  # a part takes about so long; only the time left comes from it


@dataclass(frozen=True)
class Run:
    """How a run went.

    Attributes:
        page: where it is.
        results: of the parts that were asked for, in their order.
    """

    page: Path
    results: tuple[Result, ...]

    @property
    def failed(self) -> tuple[Result, ...]:
        """Parts that raised something."""
        return tuple(result for result in self.results if result.status is Status.FAILED)

    @property
    def unmet(self) -> tuple[tuple[str, Claim], ...]:
        """Required claims that do not hold, each with the name of its part."""
        return tuple(
            (result.name, claim)
            for result in self.results
            for claim in result.claims
            if claim.required and claim.verdict is not Verdict.HOLDS
        )


def run(
    parts: Sequence[Part],
    context: Context,
    *,
    contents: Sequence[Part],
    again: bool = False,
    progress: RunProgress | None = None,
) -> Run:
    """Run the parts that have no current result, and write the page of all results.

    A part that raises is reported with its traceback in `<name>.log`, and the next one is run. The page is
    written after each part, so that a killed run leaves one too.

    Args:
        parts: to run, in this order.
        context: of the run; its `progress` and `since` are set here.
        contents: all parts that there are, for the page.
        again: run also what is finished, its fits included.
        progress: who is told.

    Raises:
        InputError: matplotlib is missing, or the output holds results of the other mode.
        FileError: the output cannot be written, or holds a file that is no result.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise InputError("The report is drawn by matplotlib: `pip install halfgp[paper]`.")
    output = context.output
    store.check_mode(output, (part.name for part in contents), context.mode)
    for part in contents:
        store.fingerprint_now(part, context)  # reads the code now, as it was imported
    progress = RunProgress(quiet=True) if progress is None else progress
    context = replace(context, progress=progress.step, since=time.time() if again else 0.0)
    earlier = {part.name: store.read(output, part.name) for part in parts}
    current = (
        {} if again else {p.name: r for p in parts if (r := earlier[p.name]) and _is_current(p, r, context)}
    )
    progress.expect({p.name: _seconds(p, earlier[p.name], context) for p in parts if p.name not in current})
    results, machine = [], doctor.examine()
    with progress:
        for part in parts:
            result = current.get(part.name)
            if result is None:
                progress.begin(part)
                result = _attempt(part, context, machine)
                store.write(output, result)
                progress.end(result)
                _write_page(contents, context)
            else:
                if part.panels is not None and not store.picture_paths(output, part.name):
                    store.draw(output, part, result)
                progress.keep(result)
            results.append(result)
    _write_page(contents, context)
    return Run(output / PAGE, tuple(results))


def _is_current(part: Part, result: Result, context: Context) -> bool:
    return result.status is Status.DONE and store.is_current(part, result, context)


def _seconds(part: Part, earlier: Result | None, context: Context) -> float:
    """What it should take: as the last time, else as its author says."""
    if earlier is not None and earlier.status is Status.DONE:
        return earlier.seconds
    return QUICK_SECONDS if context.quick else 60 * part.minutes


def _attempt(part: Part, context: Context, machine: doctor.Report) -> Result:
    """Measure and draw; whatever is raised becomes a result too."""
    context = replace(context, sets={})
    log = context.output / f"{part.name}.log"
    log.unlink(missing_ok=True)
    start = time.perf_counter()
    status, reason, outcome = Status.DONE, "", Outcome({}, (), "")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", HalfGPWarning)  # each is shown on the page
        try:
            with redirect_stdout(sys.stderr):  # what peers print is not what the command says
                outcome = part.measure(context)
        except MissingData as error:
            status, reason = Status.SKIPPED, str(error)
        except Exception as error:
            status, reason = Status.FAILED, _explained(error, log)
    seconds = time.perf_counter() - start
    result = Result(
        name=part.name,
        status=status,
        mode=context.mode,
        fingerprint=store.fingerprint_now(part, context),
        seconds=seconds,
        reason=reason,
        data=json.loads(as_json(outcome.data)),
        claims=outcome.claims,
        note=outcome.note,
        warnings=tuple(dict.fromkeys(str(warning.message) for warning in caught)),
        versions=machine.versions,
        machine=f"{machine.processor}, {words.plural(machine.cores, 'core')}",
        sets=context.sets,
    )
    try:
        store.draw(context.output, part, result)
    except Exception as error:
        return replace(result, status=Status.FAILED, reason=_explained(error, log))
    return result


def _explained(error: Exception, log: Path) -> str:
    """In one line; the traceback goes into the log."""
    log.parent.mkdir(parents=True, exist_ok=True)
    write_whole(log, "".join(traceback.format_exception(error)))
    text = str(error) if isinstance(error, HalfGPError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())


def _write_page(contents: Sequence[Part], context: Context) -> None:
    page = build_page(contents, context)
    write_whole(context.output / PAGE, page)
