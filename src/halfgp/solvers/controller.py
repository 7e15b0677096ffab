"""The decisions of a solve: when to look at the true residual, and what to do about it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from halfgp.data import Vectors
from halfgp.operators.base import column_major
from halfgp.preconditioners import Preconditioner
from halfgp.solvers.base import EARLIER, SolveResult, Status
from halfgp.solvers.best import Best
from halfgp.solvers.energy import EnergyMonitor
from halfgp.solvers.gap import GapMonitor
from halfgp.solvers.ladder import CONTRACTION, DIVERGENCE, OVERTAKEN, PROGRESS, Ladder
from halfgp.solvers.recurrence import Arithmetic, Recurrence
from halfgp.solvers.state import State, snapshot, with_columns

Callback = Callable[[int, Tensor], object]
READ_EVERY = 5  # iterations between readings of the gap
SAFETY = 1.25  # of the gap, which is read off a sample
# Of a controller, beside its parts: what a result is made of, and what the next iteration begins with.
IN_RESULT = ("_earlier", "_error")
BETWEEN_ITERATIONS = (
    *("_iterates", "_near", "_gap", "_known", "_lowest", "_low", "_iteration"),
    *("_held", "_active", "_live", "_offending", "_corrected", "_judged", "_judged_at"),
)
REST = 3  # iterations that a correction on the space so far has to last, or it does not help


@dataclass(frozen=True)
class Options:
    """What the caller of `cg` asked for; `paper` is a fixed 16-bit precision, where nothing is repaired."""

    tol: Tensor  # (t,)
    error_tol: Tensor  # (t,), infinite where the residual decides alone
    min_iterations: int
    max_iterations: int
    inner_product: str
    window: int | None
    paper: bool
    callback: Callback | None
    keep: Callable[[State], object] | None = None  # called with the state before every iteration


class Controller:
    """Phases of the recurrence, a true residual after each, and a verdict for every column in the end.

    Columns are numbered as in b: `open` ones have no verdict yet, `held` ones are in the recurrence, of which
    `active` ones still move. Each column is scaled by a power of two, so that thresholds see numbers near 1.
    `best` changes for a lower true residual, or for a later iterate within the tolerance. `low` are the
    iterates whose residuals were `lowest` as far as the recurrence knows, which are looked at where it fails.
    """

    def __init__(
        self, ladder: Ladder, preconditioner: Preconditioner | None, b: Tensor, options: Options
    ) -> None:
        self._ladder, self._preconditioner, self._options = ladder, preconditioner, options
        self._best = Best(ladder, b, options.tol)
        # No verdict yet; a zero column has its solution.
        self._status = [None if norm > 0 else Status.CONVERGED for norm in self._best.norms.tolist()]
        self._iterates = self._best.x.clone()
        self._earlier = self._best.x.clone()
        self._near = torch.zeros(len(self._best.norms), dtype=torch.bool)
        self._gap = torch.zeros_like(self._best.norms)
        self._known = self._best.relative.clone()
        self._energy = EnergyMonitor(ladder.wide, preconditioner, self._best.scale)
        self._error = torch.where(self._best.norms > 0, torch.inf, 0.0).double()
        self._lowest = self._best.relative.clone()
        self._low = self._best.x.clone()
        self._history: list[Tensor] = []
        self._iteration = 0
        self._judged, self._judged_at = self._best.relative.clone(), 0
        self._monitor: GapMonitor | None = None

    def run(self, x0: Tensor | None, state: State | None = None) -> None:
        """From x0, or from a state, until every column has a verdict."""
        if state is None:
            self._begin(x0)
        else:
            self._restore(state)
        while len(self._open()):
            self._decide(self._phase())

    def state(self) -> State:
        """What iterations to come depend on, or the result alone where none is to come."""
        parts = {"best": self._best.state(), "ladder": self._ladder.state()}
        names: tuple[str, ...] = IN_RESULT
        if len(self._open()):
            names += BETWEEN_ITERATIONS
            parts |= {"energy": self._energy.state(), "recurrence": self._recurrence.state()}
        statuses = [None if status is None else status.value for status in self._status]
        return {
            **{name: snapshot(getattr(self, name)) for name in names},
            **parts,
            "status": statuses,
            "history": snapshot(self._history),
        }

    def _restore(self, state: State) -> None:
        self._status = [None if status is None else Status(status) for status in state["status"]]
        self._history = list(state["history"])
        self._best.restore(state["best"])
        self._ladder.restore(state["ladder"])
        if len(self._open()):
            self._watch()
            self._restart()
            self._recurrence.restore(state["recurrence"])
            self._energy.restore(state["energy"])
        for name in (*IN_RESULT, *BETWEEN_ITERATIONS):
            if name in state:
                setattr(self, name, state[name])

    def _begin(self, x0: Tensor | None) -> None:
        if x0 is not None and len(self._open()):
            self._iterates = column_major(x0.double()) / self._best.scale
            self._low, self._earlier = self._iterates.clone(), self._iterates.clone()
            self._best.forget()
            self._look()
            self._judged = self._best.relative.clone()
        if not len(self._open()):
            return
        self._watch()
        self._ladder.start(self._monitor, self._least_residual())
        self._restart()

    def _watch(self) -> None:
        """Draw the rows that tell the gap."""
        if self._ladder.wide.has_rows and not self._options.paper:
            self._monitor = GapMonitor(self._ladder.wide, self._best.b)
            self._energy.allow(self._monitor.perturbation(self._ladder.given))

    def result(self, vectors: Vectors) -> SolveResult:
        """The outcome, in the library of the right-hand side."""
        endings = [status or Status.MAX_ITERATIONS for status in self._status]
        wanted = self._options.error_tol
        short = ~((self._error <= wanted) | wanted.isinf())
        result = self._best.result(vectors, endings, self._history, short)
        return replace(
            result,
            earlier=vectors.restore(self._earlier * self._best.scale, torch.float64),
            errors=Vectors(vectors.values, False, vectors.dtype).restore(self._error, torch.float64),
        )

    def _least_residual(self) -> float:
        """The smallest relative residual that may be needed: |r|² / noise is at least the error's square."""
        noise = self._ladder.wide.least_nugget
        least = self._options.error_tol * math.sqrt(noise * self._ladder.wide.size)
        size = self._best.norms * self._best.scale.reshape(-1)
        wanted = self._options.tol if noise <= 0.0 else torch.minimum(self._options.tol, least / size)
        return float(wanted[size > 0].min())

    @property
    def _may_stop(self) -> bool:
        return self._iteration >= min(self._options.min_iterations, self._options.max_iterations)

    def _open(self) -> Tensor:
        return torch.tensor([j for j, status in enumerate(self._status) if status is None], dtype=torch.long)

    def _restart(self) -> None:
        """A new recurrence for the open columns, from their best iterates."""
        self._held = self._open()
        self._active = self._live = torch.ones(len(self._held), dtype=torch.bool)
        self._offending = torch.zeros_like(self._active)
        options, system = self._options, self._ladder.system
        standard = options.inner_product == "direct" and options.window == 0
        self._corrected = self._iteration
        self._recurrence = Recurrence(
            system,
            self._preconditioner,
            arithmetic=Arithmetic.of(system.precision, options.paper, standard),
            inner_product=options.inner_product,
            window=options.window,
            x=column_major(self._best.x[:, self._held]),
            r=column_major(self._best.r[:, self._held]),
        )
        self._gap[self._held] = 0.0
        self._energy.forget()
        self._energy.turn(self._recurrence.norm, self._held)

    def _phase(self) -> str:
        """Iterate until a true residual is wanted; returns why."""
        while self._iteration < self._options.max_iterations:
            if self._options.keep is not None:
                self._options.keep(self.state())
            if not self._recurrence.is_finite:
                return "nonfinite"
            self._live = self._active
            self._ladder.passes[self._ladder.name] += 1
            self._offending = self._recurrence.step(self._active)
            if bool(self._offending.any()):
                return "curvature" if self._recurrence.curvature_is_finite else "nonfinite"
            self._iteration += 1
            event = self._observe()
            if event:
                return event
        return "limit"

    def _observe(self) -> str:
        """What an iteration showed: a reason to look at the true residual, or ""."""
        recurrence, tol = self._recurrence, self._options.tol[self._held]
        known = self._best.size(recurrence.r, self._held)
        self._energy.record(recurrence.gain, recurrence.norm, self._held, self._active)
        error = self._energy.estimate(recurrence.norm, self._held)
        self._record(known, error)
        self._offending = self._active & ~known.isfinite()
        if bool(self._offending.any()):
            return "nonfinite"
        exact = error <= self._options.error_tol[self._held]
        claims = self._may_stop and bool((self._active & (known <= tol) & exact).any())
        if self._monitor is not None and (claims or self._iteration % READ_EVERY == 0):
            reading = self._monitor.gap(recurrence.x, recurrence.r, self._held)
            self._gap[self._held] = SAFETY * reading / self._best.norms[self._held]
        gap = self._gap[self._held]
        self._remember(torch.hypot(known, gap))
        if self._may_stop:
            self._active = self._active & ~((torch.hypot(known, gap) <= tol) & exact)
        if not bool(self._active.any()):
            return "claim"
        if self._options.paper:
            return ""
        if bool((self._active & (gap > OVERTAKEN * known)).any()):
            return "overtaken"
        if bool((self._active & (recurrence.stray > OVERTAKEN)).any()) and not self._correct():
            return "overtaken"
        self._shrink()
        return ""

    def _record(self, known: Tensor, error: Tensor) -> None:
        close = known <= EARLIER * self._options.tol[self._held]
        close &= error <= EARLIER * self._options.error_tol[self._held]
        near = close & ~self._near[self._held]
        if bool(near.any()):
            self._earlier = with_columns(self._earlier, self._held[near], self._recurrence.x[:, near])
            self._near[self._held[near]] = True
        self._known = self._known.clone()
        self._known[self._held] = known
        self._history.append(self._known)
        if self._options.callback is not None:
            self._options.callback(self._iteration, self._known)

    def _remember(self, likely: Tensor) -> None:
        """Keep iterates whose residuals (held,) are lower than any before, or within the tolerance."""
        lower = (likely < self._lowest[self._held]) | (likely <= self._options.tol[self._held])
        columns = self._held[lower]
        self._lowest[columns] = likely[lower]
        self._low = with_columns(self._low, columns, self._recurrence.x.T[lower].T)

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

    def _look(self, recurrence: Recurrence | None = None) -> tuple[Tensor, Tensor]:
        """The true residual (n, open) of open columns and its relative norms; converged ones are settled.

        Args:
            recurrence: whose iterates these are; it took the residuals for others.
        """
        columns = self._open()
        r, relative = self._best.look(self._iterates[:, columns], columns)
        if recurrence is not None:
            missing = r[:, torch.isin(columns, self._held)] - recurrence.r
            self._gap[self._held] = self._best.size(missing, self._held)
        wanted = self._options.error_tol[columns]
        if bool(wanted.isfinite().any()):
            gap = self._gap[columns] * self._best.norms[columns]
            self._error[columns] = self._energy.after(self._best.r[:, columns], gap, columns)
        else:
            self._error[columns] = torch.nan  # nobody asked
        if self._may_stop:
            # Not what is merely not above: an error may not be a number.
            done = ~self._best.failing[columns] & ((self._error[columns] <= wanted) | wanted.isinf())
            self._settle(columns[done], Status.CONVERGED)
        return r, relative

    def _decide(self, event: str) -> None:
        """After a phase: look, then end, climb, replace the residual, or begin again."""
        columns = self._open()
        if self._options.paper:
            self._iterates = self._low.clone()  # nothing is repaired there
            r, relative = self._look()
        else:
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
        elif len(left) and self._options.paper:
            self._settle(left, Status.STAGNATED)
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
        if bool((relative > DIVERGENCE * before).any()):
            return "divergence"
        if self._iteration - self._judged_at < REST:
            return ""
        self._judged, self._judged_at = self._best.relative.clone(), self._iteration
        if bool((relative > PROGRESS * before).any()):
            return "stagnation"
        unknown = relative > OVERTAKEN**-1 * self._known[columns]
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
        """Climb; at the top, the columns that broke down end, and the others begin again."""
        if not self._ladder.climb(self._iteration, event):
            status = Status.BREAKDOWN if event == "curvature" else Status.NONFINITE
            broken = self._held[self._offending] if bool(self._offending.any()) else self._held
            self._settle(broken, status)
        if len(self._open()):
            self._restart()

    def _settle(self, columns: Tensor, status: Status) -> None:
        for j in columns.tolist():
            if self._status[j] is None:
                self._status[j] = status
