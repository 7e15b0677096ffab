"""A progress bar for a fit, on a terminal and nowhere else."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from halfgp.model import FitCallback, FitEvent, SolveIteration
from halfgp.settings import Settings
from halfgp.training import Step

SOLVE = "solve"
FEWEST = 8  # iterations that show a slope
LEAST = 1e-300  # a residual of zero has no logarithm


@contextmanager
def shown_progress(settings: Settings, wanted: bool = True) -> Iterator[tuple[FitCallback, ...]]:
    """Callbacks for a fit with these settings that show a bar, if it is wanted; none otherwise."""
    if not wanted:
        yield ()
        return
    with ProgressBar(settings) as bar:
        yield (bar,)


class Descent:
    """How many iterations a solve takes: its residual goes on falling as it did in the second half of them.

    That is the slope of its logarithm by least squares, for residuals of CG go up and down.
    """

    def __init__(self) -> None:
        self._logarithms: list[float] = []

    def expected(self, event: SolveIteration) -> int | None:
        """All iterations that it takes, or None as long as that cannot be seen."""
        if event.iteration <= len(self._logarithms):  # another solve
            self._logarithms.clear()
        now = math.log(max(event.residual, LEAST))
        self._logarithms += [now] * (event.iteration - len(self._logarithms))
        left = now - math.log(max(event.wanted, LEAST))
        if left <= 0.0:
            return event.iteration
        seen = self._logarithms[-max(FEWEST, event.iteration // 2) :]
        if len(seen) < FEWEST:
            return None
        slope = float(np.polyfit(np.arange(len(seen)), seen, 1)[0])
        return event.iteration + math.ceil(left / -slope) if slope < 0.0 else None


class ProgressBar:
    """A callback of a fit that shows how far it is; use it as a context manager around the fit.

    One line for each stage: loss, residual, passes so far and the time left. It is gone when the fit is.
    Without a terminal nothing is written.

    Args:
        settings: of the fit, which say how many steps a stage has at most.
        console: where to; the standard error stream if None, so that results can be piped.
    """

    def __init__(self, settings: Settings, console: Console | None = None) -> None:
        exact = settings.training.subset_iterations
        self._totals = {"subset": exact, "cholesky": exact, "cg": settings.training.steps or 0}
        self._descent = Descent()
        console = Console(stderr=True) if console is None else console
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}
        self._passes = 0

    def __enter__(self) -> ProgressBar:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def __call__(self, event: FitEvent) -> None:
        """Show one more step of training, or iteration of the last solve."""
        if isinstance(event, Step):
            self._show_step(event)
        else:
            self._show_solve(event)

    def _show_step(self, step: Step) -> None:
        self._passes += step.passes
        task = self._task(step.stage)
        done = step.index + 1
        # A line search may evaluate the likelihood more often than there are iterations.
        total = max(done, self._totals.get(step.stage, 0))
        figures = f"loss {step.loss:.4f}"
        if step.stage == "cg":
            figures += f", residual {step.residual:.1e} ({step.precision}), {self._passes} passes"
        self._progress.update(task, completed=done, total=total, figures=figures)

    def _show_solve(self, event: SolveIteration) -> None:
        """How far the solve is that predictions rest on; its time left follows from its iterations."""
        total = self._descent.expected(event)
        figures = f"residual {event.residual:.1e} of {event.wanted:.1e}, {event.iteration} iterations"
        self._progress.update(self._task(SOLVE), completed=event.iteration, total=total, figures=figures)

    def _task(self, stage: str) -> TaskID:
        """The line of a stage; those before it are done."""
        if stage not in self._tasks:
            for earlier in self._tasks.values():  # a search may end before its last iteration
                self._progress.update(earlier, total=self._progress.tasks[earlier].completed)
            self._tasks[stage] = self._progress.add_task(stage, total=self._totals.get(stage), figures="")
        return self._tasks[stage]
