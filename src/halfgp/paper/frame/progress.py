"""How far a run is: a line for each finished part and, on a terminal, a bar with the time left."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from halfgp.paper.frame.part import Part, Verdict
from halfgp.paper.frame.store import Result, Status
from halfgp.report import words


class RunProgress:
    """Told by a run what begins, how far it is and how it ended; a context manager.

    Args:
        console: where to; the standard error stream if None.
        quiet: whether to write nothing at all.
    """

    def __init__(self, console: Console | None = None, quiet: bool = False) -> None:
        self._console = Console(stderr=True, highlight=False) if console is None else console
        self._quiet = quiet
        self._expected: dict[str, float] = {}
        self._spent = 0.0  # seconds on parts that are finished
        self._foreseen = 0.0  # seconds that were expected for them
        self._current = ""
        self._began = 0.0
        self._share = 0.0  # of the current part that is done
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            _TimeLeft(self),
            TextColumn("{task.fields[what]}"),
            console=self._console,
            transient=True,
            disable=quiet or not self._console.is_terminal,
        )
        self._task = self._progress.add_task("", total=1.0, what="")

    def __enter__(self) -> RunProgress:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def expect(self, seconds: Mapping[str, float]) -> None:
        """Take note of the parts to come and what each should take."""
        self._expected = dict(seconds)

    def begin(self, part: Part) -> None:
        """Show that a part has begun."""
        self._current, self._began = part.name, time.monotonic()
        self._progress.update(self._task, description=part.name, what="")
        self._move(0.0)

    def step(self, done: int, total: int, what: str) -> None:
        """Show how far the current part is."""
        self._progress.update(self._task, what=what)
        self._move(done / max(total, 1))

    def end(self, result: Result) -> None:
        """Show how it ended."""
        expected = self._expected.pop(result.name, 0.0)
        if result.status is Status.DONE:  # what failed at once says nothing about the speed of the machine
            self._spent += result.seconds
            self._foreseen += expected
        self._current = ""
        self._line(result, words.duration(result.seconds))

    def keep(self, result: Result) -> None:
        """Show that a part was finished before."""
        self._line(result, "kept")

    def seconds_left(self) -> float:
        """Of what was expected for the parts to come, corrected by how the finished ones fared."""
        later = sum(seconds for name, seconds in self._expected.items() if name != self._current)
        if later:  # parts differ: what few have shown weighs little against what is still to come
            later *= (self._spent + later) / (self._foreseen + later)
        return later + self._left_of_current()

    def _left_of_current(self) -> float:
        """By its own steps where it tells them, else by what was expected."""
        if not self._current:
            return 0.0
        passed = time.monotonic() - self._began
        if self._share > 0.0:
            return passed * (1.0 / self._share - 1.0)
        return max(self._expected.get(self._current, 0.0) - passed, 0.0)

    def _move(self, share: float) -> None:
        """Fill the bar by the seconds expected: of the finished parts, and so much of the current one."""
        self._share = share
        total = self._foreseen + sum(self._expected.values())
        done = self._foreseen + share * self._expected.get(self._current, 0.0)
        self._progress.update(self._task, completed=done, total=total)

    def _line(self, result: Result, when: str) -> None:
        if not self._quiet:
            self._progress.console.print(
                Text.assemble((f"{result.name:<36}", "bold"), f"{when:>8}  ", *_told(result)), soft_wrap=True
            )


class _TimeLeft(ProgressColumn):
    """The time left, anew at each refresh."""

    def __init__(self, run: RunProgress) -> None:
        super().__init__()
        self._run = run

    def render(self, task: Task) -> Text:
        seconds = self._run.seconds_left()
        return Text(f"{words.duration(seconds)} left" if seconds >= 1 else "nearly done", style="cyan")


def _told(result: Result) -> list[tuple[str, str]]:
    """How a part ended, with styles."""
    if result.status is not Status.DONE:
        style = "red" if result.status is Status.FAILED else "yellow"
        return [(f"{result.status.value}: {result.reason}", style)]
    styles = {Verdict.HOLDS: "green", Verdict.IN_PART: "yellow", Verdict.FAILS: "red", Verdict.OPEN: "dim"}
    counts = [(sum(claim.verdict is verdict for claim in result.claims), verdict) for verdict in styles]
    parts = [(f"{count} {verdict.value}", styles[verdict]) for count, verdict in counts if count]
    spaced = [piece for part in parts for piece in (part, (", ", ""))]
    return spaced[:-1]
