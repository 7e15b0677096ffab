"""The default method: iterations on a ladder of precisions, whose drift is watched and repaired."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from halfgp.precision import Precision
from halfgp.preconditioners import Preconditioner, has_root, is_below
from halfgp.solvers.base import Status
from halfgp.solvers.gap import GapMonitor
from halfgp.solvers.iteration import Iteration, Options
from halfgp.solvers.ladder import CONTRACTION, DIVERGENCE, OVERTAKEN, PROGRESS, Ladder
from halfgp.solvers.recurrence import Arithmetic
from halfgp.solvers.state import with_columns

READ_EVERY = 5  # iterations between readings of the gap
SAFETY = 1.25  # of the gap, which is read off a sample
REST = 3  # iterations that a correction on the space so far has to last, or it does not help


class Controller(Iteration):
    """A solve that reads its drift off a few rows, replaces residuals that have drifted, and climbs."""

    between_iterations = (*Iteration.between_iterations, "_corrected", "_judged", "_judged_at")

    def __init__(
        self, ladder: Ladder, preconditioner: Preconditioner | None, b: Tensor, options: Options
    ) -> None:
        super().__init__(ladder, preconditioner, b, options)
        self._judged, self._judged_at = self._best.relative.clone(), 0
        self._monitor: GapMonitor | None = None

    def _arithmetic(self, precision: Precision) -> Arithmetic:
        return Arithmetic.of(precision)

    def _prepare(self, anew: bool) -> None:
        """Draw the rows that tell the gap, and go to the rung that it allows."""
        if self._ladder.wide.has_rows:
            self._monitor = GapMonitor(self._ladder.wide, self._best.b)
            self._energy.allow(self._monitor.perturbation(self._ladder.given))
        if anew:
            self._judged = self._best.relative.clone()
            self._ladder.start(self._monitor, self._least_residual(), self._gain())

    def _gain(self) -> float:
        """|A^-1 v| / |v| of a random v, as a preconditioner has it that may be above A, and so is near it."""
        system, preconditioner = self._ladder.wide, self._preconditioner
        if not has_root(preconditioner) or is_below(preconditioner) or self._ladder.fixed:
            return 0.0
        v = torch.randn(system.size, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        v = v.to(self._best.b.device)[system.held]
        solved = preconditioner.solve(v)
        return float((system.dot(solved, solved) / system.dot(v, v)).sqrt())

    def _least_residual(self) -> float:
        """The smallest relative residual that may be needed: |r|² / noise is at least the error's square."""
        noise = self._ladder.wide.least_nugget
        least = self._options.error_tol * math.sqrt(noise * self._ladder.wide.size)
        size = self._best.norms * self._best.scale.reshape(-1)
        wanted = self._options.tol if noise <= 0.0 else torch.minimum(self._options.tol, least / size)
        return float(wanted[size > 0].min())

    def _restart(self) -> None:
        super()._restart()
        self._corrected = self._iteration

    def _likely(self, known: Tensor, exact: Tensor) -> Tensor:
        """With the gap, which is read every few iterations and before a column may stop."""
        recurrence, tol = self._recurrence, self._options.tol[self._held]
        claims = self._may_stop and bool((self._active & (known <= tol) & exact).any())
        if self._monitor is not None and (claims or self._iteration % READ_EVERY == 0):
            reading = self._monitor.gap(recurrence.x, recurrence.r, self._held)
            self._gap[self._held] = SAFETY * reading / self._best.norms[self._held]
        return torch.hypot(known, self._gap[self._held])

    def _drift(self, known: Tensor) -> str:
        """Whether the gap has overtaken the residual, or directions no longer see it."""
        if bool((self._active & (self._gap[self._held] > OVERTAKEN * known)).any()):
            return "overtaken"
        if bool((self._active & (self._recurrence.stray > OVERTAKEN)).any()) and not self._correct():
            return "overtaken"
        self._shrink()
        return ""

    def _correct(self) -> bool:
        """Solve on the space so far what its directions no longer see of the residual: no pass over A."""
        if not self._recurrence.can_replace or self._iteration - self._corrected < REST:
            return False
        self._shrink(everything=True)
        self._corrected = self._iteration
        self._recurrence.replace(self._recurrence.r)
        self._energy.turn(self._recurrence.norm, self._held)
        return True

    def _shrink(self, everything: bool = False) -> None:
        """Take columns that stand still out of the product, once they are half of it."""
        if bool(self._active.all()) or (not everything and 2 * int(self._active.sum()) > len(self._active)):
            return
        still = ~self._active
        self._iterates = with_columns(self._iterates, self._held[still], self._recurrence.x[:, still])
        self._keep(self._active)

    def _keep(self, which: Tensor) -> None:
        """Only these of the held columns stay in the recurrence."""
        self._recurrence.keep(which)
        self._held, self._live = self._held[which], self._live[which]
        self._active, self._offending = self._active[which], self._offending[which]

    def _decide(self, event: str) -> None:
        """After a phase: look, then end, climb, replace the residual, or begin again."""
        columns = self._open()
        self._iterates = with_columns(self._iterates, self._held, self._recurrence.x)
        r, relative = self._look(self._recurrence)
        left = self._open()
        reason = ""
        if len(left) and event in ("claim", "overtaken"):
            reason = self._reason(left, relative[torch.isin(columns, left)])
        if len(left) and (reason or event not in ("claim", "overtaken")):
            self._recall()
            left = self._open()
        if event == "limit":
            self._settle(left, Status.MAX_ITERATIONS)
        elif len(left) and event in ("curvature", "nonfinite"):
            self._broken(event)
        elif reason and len(left) and self._ladder.climb(self._iteration, reason):
            self._restart()
        elif reason in ("stagnation", "divergence"):
            self._settle(left, Status.STAGNATED)
        elif len(left):
            self._go_on(left, r[:, torch.isin(columns, left)])

    def _recall(self) -> None:
        """Look where the recurrence was lowest, before columns end or begin again: it has got worse since."""
        columns = self._open()
        promising = columns[self._lowest[columns] < PROGRESS * self._best.relative[columns]]
        if len(promising):
            self._iterates = with_columns(self._iterates, promising, self._low[:, promising])
            self._look()
        self._lowest[columns] = self._best.relative[columns]  # what it promised is known now

    def _reason(self, columns: Tensor, relative: Tensor) -> str:
        """Why this rung should be left, or "", from true residuals by column: now, and when last judged.

        A few iterations have to pass between judgements: residuals need not fall from one to the next, and
        what an error lacks may call for looks one after the other.
        """
        before = self._judged[columns]
        # A residual that the recurrence knows may rise, above all once a true one took its place: what is not
        # known tells of the arithmetic.
        unknown = relative > OVERTAKEN**-1 * self._known[columns]
        if bool((unknown & (relative > DIVERGENCE * before)).any()):
            return "divergence"
        if self._iteration - self._judged_at < REST:
            return ""
        self._judged, self._judged_at = self._best.relative.clone(), self._iteration
        if bool((relative > PROGRESS * before).any()):
            return "stagnation"
        if bool((unknown & (relative > CONTRACTION * before)).any()):
            return "gap"
        return ""

    def _go_on(self, left: Tensor, r: Tensor) -> None:
        """Replace the residual by r (n, left) where the recurrence still knows every column that is left."""
        if not self._recurrence.can_replace or not bool(torch.isin(left, self._held[self._live]).all()):
            self._restart()
            return
        self._keep(torch.isin(self._held, left))
        self._active = torch.ones_like(self._active)
        self._corrected = self._iteration
        self._recurrence.replace(r)
        self._energy.turn(self._recurrence.norm, self._held)
        self._gap[self._held] = 0.0

    def _broken(self, event: str) -> None:
        """Climb; at the top, the columns that broke down end."""
        if self._ladder.climb(self._iteration, event):
            self._restart()
        else:
            super()._broken(event)
