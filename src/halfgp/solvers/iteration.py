"""The iterations of a solve, column by column: what every method of conjugate gradients does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from halfgp.data import Vectors
from halfgp.operators.base import column_major
from halfgp.precision import Precision
from halfgp.preconditioners import Preconditioner
from halfgp.solvers.base import EARLIER, SolveResult, Status
from halfgp.solvers.best import Best
from halfgp.solvers.energy import EnergyMonitor
from halfgp.solvers.ladder import Ladder
from halfgp.solvers.recurrence import Arithmetic, Recurrence
from halfgp.solvers.state import OfRows, State, snapshot, with_columns

Callback = Callable[[int, Tensor], object]
IN_RESULT = ("_earlier", "_error")  # what a result is made of, beside the parts of a solve
OF_ROWS = ("_earlier", "_iterates", "_low")


@dataclass(frozen=True)
class Options:
    """What the caller of `cg` wants of any method."""

    tol: Tensor  # (t,)
    error_tol: Tensor  # (t,), infinite where the residual decides alone
    min_iterations: int
    max_iterations: int
    inner_product: str
    window: int | None
    callback: Callback | None
    keep: Callable[[State], object] | None = None  # called with the state before every iteration


class Iteration(ABC):
    """Phases of the recurrence, a true residual after each, and a verdict for every column in the end.

    Columns are numbered as in b: `open` ones have no verdict yet, `held` ones are in the recurrence, of which
    `active` ones still move. Each column is scaled by a power of two, so that thresholds see numbers near 1.
    `best` changes for a lower true residual, or for a later iterate within the tolerance. `low` are the
    iterates whose residuals were `lowest` as far as the recurrence knows, which are looked at where it fails.

    A method says in which arithmetic it iterates, how it begins (`_prepare`) and what follows from a true
    residual (`_decide`). It may also watch the iterations more closely than by the residual of the
    recurrence (`_likely`, `_drift`).
    """

    # What the next iteration begins with, beside the parts of a solve.
    between_iterations: ClassVar[tuple[str, ...]] = (
        *("_iterates", "_near", "_gap", "_known", "_lowest", "_low", "_iteration"),
        *("_held", "_active", "_live", "_offending"),
    )

    def __init__(
        self, ladder: Ladder, preconditioner: Preconditioner | None, b: Tensor, options: Options
    ) -> None:
        self._ladder, self._preconditioner, self._options = ladder, preconditioner, options
        self._best = Best(ladder, b, options.tol)
        # No verdict yet; a zero column has its solution.
        self._status = [None if norm > 0 else Status.CONVERGED for norm in self._best.norms.tolist()]
        self._iterates = self._best.x.clone()
        self._earlier = self._best.x.clone()
        self._near = torch.zeros_like(self._best.norms, dtype=torch.bool)
        self._gap = torch.zeros_like(self._best.norms)
        self._known = self._best.relative.clone()
        self._energy = EnergyMonitor(ladder.wide, preconditioner, self._best.scale)
        self._error = torch.where(self._best.norms > 0, torch.inf, 0.0).double()
        self._lowest = self._best.relative.clone()
        self._low = self._best.x.clone()
        self._history: list[Tensor] = []
        self._iteration = 0

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
            names += self.between_iterations
            parts |= {"energy": self._energy.state(), "recurrence": self._recurrence.state()}
        statuses = [None if status is None else status.value for status in self._status]
        return {
            **{name: self._kept(name) for name in names},
            **parts,
            "status": statuses,
            "history": snapshot(self._history),
        }

    def _kept(self, name: str) -> Any:
        value = snapshot(getattr(self, name))
        return OfRows(value) if name in OF_ROWS else value

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

    @abstractmethod
    def _arithmetic(self, precision: Precision) -> Arithmetic:
        """The formats of the recurrence on a rung."""

    @abstractmethod
    def _prepare(self, anew: bool) -> None:
        """Before the first iteration, or before the first after a kill, where nothing is chosen `anew`."""

    @abstractmethod
    def _decide(self, event: str) -> None:
        """After a phase: look at the true residual, then end columns or let them go on."""

    def _likely(self, known: Tensor, exact: Tensor) -> Tensor:
        """Relative residuals (held,) as the method takes them, of those that the recurrence knows.

        Args:
            known: (held,) relative norms of the residuals of the recurrence.
            exact: (held,) whether estimated errors are within their tolerance.
        """
        return known

    def _drift(self, known: Tensor) -> str:
        """A reason to look at the true residual while columns still move, or ""."""
        return ""

    def _restore(self, state: State) -> None:
        self._status = [None if status is None else Status(status) for status in state["status"]]
        self._history = list(state["history"])
        self._best.restore(state["best"])
        self._ladder.restore(state["ladder"])
        if len(self._open()):
            self._prepare(anew=False)
            self._restart()
            self._recurrence.restore(state["recurrence"])
            self._energy.restore(state["energy"])
        for name in (*IN_RESULT, *self.between_iterations):
            if name in state:
                setattr(self, name, state[name])

    def _begin(self, x0: Tensor | None) -> None:
        if x0 is not None and len(self._open()):
            self._iterates = column_major(x0.double()) / self._best.scale
            self._low, self._earlier = self._iterates.clone(), self._iterates.clone()
            self._best.forget()
            self._look()
        if len(self._open()):
            self._prepare(anew=True)
            self._restart()

    @property
    def _may_stop(self) -> bool:
        return self._iteration >= min(self._options.min_iterations, self._options.max_iterations)

    def _open(self) -> Tensor:
        still = [j for j, status in enumerate(self._status) if status is None]
        return torch.tensor(still, dtype=torch.long, device=self._best.norms.device)

    def _restart(self) -> None:
        """A new recurrence for the open columns, from their best iterates."""
        self._held = self._open()
        self._active = self._live = torch.ones_like(self._held, dtype=torch.bool)
        self._offending = torch.zeros_like(self._active)
        options, system = self._options, self._ladder.system
        self._recurrence = Recurrence(
            system,
            self._preconditioner,
            arithmetic=self._arithmetic(system.precision),
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
        likely = self._likely(known, exact)
        self._remember(likely)
        if self._may_stop:
            self._active = self._active & ~((likely <= tol) & exact)
        if not bool(self._active.any()):
            return "claim"
        return self._drift(known)

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

    def _broken(self, event: str) -> None:
        """The columns that broke down end, and the others begin again."""
        status = Status.BREAKDOWN if event == "curvature" else Status.NONFINITE
        broken = self._held[self._offending] if bool(self._offending.any()) else self._held
        self._settle(broken, status)
        if len(self._open()):
            self._restart()

    def _settle(self, columns: Tensor, status: Status) -> None:
        for j in columns.tolist():
            if self._status[j] is None:
                self._status[j] = status
