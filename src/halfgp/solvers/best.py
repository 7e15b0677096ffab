"""The best iterate of every column so far, judged by its true residual, and the result made of it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from halfgp.data import Vectors
from halfgp.operators.base import column_major, rung_name
from halfgp.solvers.base import SolveResult, Status, worst
from halfgp.solvers.ladder import Ladder
from halfgp.solvers.state import OfRows, State, with_columns


class Best:
    """The best iterates so far, for A x = b, or (A + s_j) x_j = b_j column by column.

    Each column is scaled by a power of two, so that thresholds and formats see numbers near 1.

    Attributes:
        b: scaled right-hand sides (n, t), float64.
        norms: (t,) of b.
        x: the best iterates (n, t).
        r: their true residuals (n, t), with A in double.
        relative: (t,) norms of r relative to b's; zero for a zero column, whose solution is zero.
        tol: what is to be reached, by all columns or by each (t,).
    """

    def __init__(self, ladder: Ladder, b: Tensor, tol: float | Tensor, shifts: Tensor | None = None) -> None:
        given = column_major(b.double())
        self._ladder, self._shifts = ladder, shifts
        self.tol = tol
        self.scale = ladder.wide.binary_scale(given)
        self.b = given / self.scale
        self.norms = ladder.wide.dot(self.b, self.b).sqrt()
        self.x = torch.zeros_like(self.b)
        self.r = self.b.clone()
        self.relative = (self.norms > 0).double()

    @property
    def failing(self) -> Tensor:
        """Columns (t,) above the tolerance."""
        return self.relative > self.tol

    def size(self, r: Tensor, columns: Tensor | slice = slice(None)) -> Tensor:
        """Norms of r relative to those of b, for these columns."""
        norms = self.norms[columns]
        return self._ladder.wide.dot(r, r).sqrt() / torch.where(norms > 0, norms, 1.0)

    def look(self, trial: Tensor, columns: Tensor | slice = slice(None)) -> tuple[Tensor, Tensor]:
        """The true residual of a trial (n, columns), in one pass in double; what is better is kept.

        A column that overflowed is looked at where it was best, for a product with NaN tells nothing.

        Returns:
            Residuals and their relative norms.
        """
        trial = torch.where(self._ladder.wide.finite(trial), trial, self.x[:, columns])
        self._ladder.passes[rung_name(self._ladder.wide.precision)] += 1
        r = self.b[:, columns] - self._ladder.wide.matmul(trial)
        if self._shifts is not None:
            r = r - trial * self._shifts[columns]
        relative = self.size(r, columns)
        tol = self.tol[columns] if isinstance(self.tol, Tensor) else self.tol
        # Within the tolerance the latest is the best: each iteration comes nearer in the norm of A, though
        # residuals may grow on the way.
        better = (relative < self.relative[columns]) | (relative <= tol)
        self.x = with_columns(self.x, columns, torch.where(better, trial, self.x[:, columns]))
        self.r = with_columns(self.r, columns, torch.where(better, r, self.r[:, columns]))
        self.relative[columns] = torch.where(better, relative, self.relative[columns])
        return r, relative

    def state(self) -> State:
        """What a solve changes."""
        return {"x": OfRows(self.x), "r": OfRows(self.r), "relative": self.relative.clone()}

    def restore(self, state: State) -> None:
        """Go on from there."""
        self.x, self.r, self.relative = state["x"], state["r"], state["relative"]

    def forget(self) -> None:
        """Whatever is looked at next is better: for a start that the caller wants, however bad."""
        self.relative = torch.where(self.norms > 0, torch.inf, 0.0).double()

    def result(
        self,
        vectors: Vectors,
        ending: Status | Sequence[Status],
        history: list[Tensor],
        short: Tensor | None = None,
    ) -> SolveResult:
        """The outcome, in the library of the right-hand side and in double, as it was measured.

        Args:
            vectors: the right-hand side as it was given.
            ending: why the columns that did not converge stopped, one for all or each its own.
            history: (t,) by iteration.
            short: (t,) columns that did not converge though their residual is within the tolerance.
        """
        endings = [ending] * len(self.norms) if isinstance(ending, Status) else list(ending)
        finite = self._ladder.wide.finite(self.x * self.scale)
        for j in (~finite).nonzero().flatten().tolist():
            # Solved, but beyond the range of double: nothing is returned for it.
            column = torch.tensor([j], device=self.b.device)
            self.x = with_columns(self.x, column, torch.zeros_like(self.b[:, column]))
            self.r = with_columns(self.r, column, self.b[:, column])
            self.relative[j] = 1.0
            endings[j] = Status.NONFINITE
            short = self.failing if short is None else short
            short[j] = True
        failing = self.failing if short is None else self.failing | short
        status = tuple(
            end if fails else Status.CONVERGED for end, fails in zip(endings, failing.tolist(), strict=True)
        )
        table = torch.stack(history) if history else self.relative.new_zeros(0, len(status))
        numbers = Vectors(vectors.values, False, vectors.dtype)
        return SolveResult(
            solution=vectors.restore(self.x * self.scale, torch.float64),
            status=worst(status),
            column_status=status,
            iterations=len(history),
            passes=sum(self._ladder.passes.values()),
            passes_by_precision=dict(self._ladder.passes),
            residual_norms=numbers.restore(self.relative, torch.float64),
            history=numbers.restore(table, torch.float64),
            precision=self._ladder.name,
            climbs=tuple(self._ladder.climbs),
            tol=float(torch.as_tensor(self.tol).amax()) if len(status) else math.nan,
            residual=vectors.restore(self.r * self.scale, torch.float64),
        )
