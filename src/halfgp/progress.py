"""A progress bar for a fit, on a terminal and nowhere else."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from halfgp.model import FitCallback, FitEvent
from halfgp.settings import Settings
from halfgp.training import Step

SOLVE = "solve"


@contextmanager
def shown_progress(settings: Settings, wanted: bool = True) -> Iterator[tuple[FitCallback, ...]]:
    """Callbacks for a fit with these settings that show a bar, if it is wanted; none otherwise."""
    if not wanted:
        yield ()
        return
    with ProgressBar(settings) as bar:
        yield (bar,)


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
        self._totals = {"subset": exact, "cholesky": exact, "cg": settings.training.steps or 0, SOLVE: 100}
        self._digits = -math.log(settings.solve.tol)
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
            self._show_solve(event.iteration, event.residual)

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

    def _show_solve(self, iteration: int, residual: float) -> None:
        """How far the solve is that predictions rest on, in percent of the digits it is to gain."""
        gained = -math.log(max(residual, 1e-300)) / self._digits if self._digits > 0 else 1.0
        figures = f"residual {residual:.1e}, {iteration} iterations"
        self._progress.update(
            self._task(SOLVE), completed=round(100 * min(max(gained, 0.0), 1.0)), figures=figures
        )

    def _task(self, stage: str) -> TaskID:
        """The line of a stage; those before it are done."""
        if stage not in self._tasks:
            for earlier in self._tasks.values():  # a search may end before its last iteration
                self._progress.update(earlier, total=self._progress.tasks[earlier].completed)
            self._tasks[stage] = self._progress.add_task(stage, total=self._totals.get(stage), figures="")
        return self._tasks[stage]
