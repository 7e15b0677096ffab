"""Every earlier residual, kept so that the next one can be made orthogonal to all of them."""

from __future__ import annotations

import torch
from torch import Tensor

from halfgp.errors import InputError
from halfgp.operators.base import Operator
from halfgp.precision import Format
from halfgp.solvers.state import OfRows, State

CHUNK = 32  # vectors per allocation
MEMORY = 2**30  # bytes that "every earlier residual" may take before the oldest are dropped


def window_of(reorthogonalise: bool | int) -> int | None:
    """How many earlier residuals take part: 0 for False, a positive integer, or None for all of them."""
    if reorthogonalise is True:
        return None
    if not isinstance(reorthogonalise, int) or reorthogonalise < 0:
        raise InputError(
            f"`reorthogonalise` must be True, False or a non-negative integer; got {reorthogonalise!r}."
        )
    return int(reorthogonalise)


class Basis:
    """Vectors (n, t), held in one format, column by column, with the two products that Gram-Schmidt takes.

    What is subtracted errs by eps of that format times the vector, in every direction of the basis: in the
    leading ones A makes eps |A| of it, which has to stay below the smallest eigenvalue. So a process in
    double needs its basis in double, though the orthogonality that single gives would do; where products
    are in single, eps |A| is lost in them anyway. Memory is 4 or 8 n t bytes a vector; a product with
    all k takes O(n t k).

    Attributes:
        complete: whether nothing has been dropped since it began.
    """

    def __init__(self, system: Operator, window: int | None, fmt: Format) -> None:
        self._system = system
        self._window = window
        self._dtype = fmt.dtype
        self._chunks: list[Tensor] = []
        self._count = 0
        self.complete = window is None

    def __len__(self) -> int:
        return min(self._count, self._capacity())

    def append(self, v: Tensor) -> None:
        """Keep the columns of v (n, t); the oldest go once the window or the memory is full."""
        if self._window == 0:
            return
        if self._window is None and self._count >= self._most(v.shape[1]):
            self._window, self.complete = self._capacity(), False
        if self._count >= self._capacity() and (self._window is None or self._capacity() < self._window):
            size = CHUNK if self._window is None else min(CHUNK, self._window - self._capacity())
            shape = v.shape[1], size, v.shape[0]
            self._chunks.append(torch.empty(shape, dtype=self._dtype, device=v.device))
        self._slot(self._count % self._capacity()).copy_(v.T)
        self._count += 1

    def withdraw(self) -> None:
        """Forget the vector that was kept last."""
        self._count -= 1

    def coefficients(self, v: Tensor) -> Tensor:
        """Inner products (k, t) of every kept vector with the columns of v (n, t), in float64."""
        held = v.T.to(self._dtype)
        parts = [
            torch.stack([torch.mv(chunk[j], held[j]) for j in range(len(held))], dim=1)
            for chunk in self._filled()
            if len(held)
        ]
        if not parts:
            return torch.zeros(0, v.shape[1], dtype=torch.float64, device=v.device)
        return self._system.total(torch.cat(parts).double())

    def combine(self, c: Tensor) -> Tensor:
        """The combination (n, t) of kept vectors with coefficients c (k, t), by columns, in its format."""
        filled = self._filled()
        if not filled:
            raise InputError("An empty basis has no combinations.")
        weights = c.T[:, None].to(self._dtype)
        total = torch.zeros(len(weights), 1, filled[0].shape[2], dtype=self._dtype, device=c.device)
        start = 0
        for chunk in filled:
            end = start + chunk.shape[1]
            total.baddbmm_(weights[:, :, start:end], chunk)
            start = end
        return total[:, 0].T

    def stacked(self) -> Tensor:
        """All vectors (t, k, n), oldest first as long as nothing was dropped."""
        return torch.cat(self._filled(), dim=1)

    def keep(self, columns: Tensor | slice) -> None:
        """Drop all but these columns."""
        self._chunks = [chunk[columns] for chunk in self._chunks]

    def state(self) -> State:
        """The vectors, and beside them a copy of the one whose place the next may take."""
        full = self._count >= self._capacity() > 0
        return {
            "filled": [OfRows(filled, axis=2) for filled in self._filled()],
            "sizes": [chunk.shape[1] for chunk in self._chunks],
            "oldest": OfRows(self._slot(self._count % self._capacity()).clone(), axis=1) if full else None,
            "count": self._count,
            "window": self._window,
            "complete": self.complete,
        }

    def restore(self, state: State) -> None:
        """Go on from there."""
        self._chunks = []
        for filled, size in zip(state["filled"], state["sizes"], strict=True):
            chunk = (
                filled if filled.shape[1] == size else filled.new_empty(len(filled), size, filled.shape[2])
            )
            chunk[:, : filled.shape[1]] = filled
            self._chunks.append(chunk)
        self._count, self._window, self.complete = state["count"], state["window"], state["complete"]
        if state["oldest"] is not None:
            self._slot(self._count % self._capacity()).copy_(state["oldest"])
        if self._chunks and len(self) > (most := self._most(len(self._chunks[0]))):
            # More processes had memory for more: the newest are kept, or, where some are gone, any.
            self._chunks = [self.stacked()[:, -most:].clone()]
            self._count = self._window = most
            self.complete = False

    def _most(self, columns: int) -> int:
        """How many vectors of so many columns, in whole chunks; all shares drop the same ones."""
        size = self._dtype.itemsize * self._system.most_held * columns
        return CHUNK * -(-max(MEMORY // max(size, 1), 1) // CHUNK)

    def _capacity(self) -> int:
        return sum(chunk.shape[1] for chunk in self._chunks)

    def _slot(self, i: int) -> Tensor:
        for chunk in self._chunks:
            if i < chunk.shape[1]:
                return chunk[:, i]
            i -= chunk.shape[1]
        raise IndexError(i)

    def _filled(self) -> list[Tensor]:
        """The chunks, the last cut to what it holds."""
        left, filled = len(self), []
        for chunk in self._chunks:
            if left > 0:
                filled.append(chunk[:, :left])
            left -= chunk.shape[1]
        return filled
