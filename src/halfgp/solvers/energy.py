"""How far an iterate of CG is from the solution in the norm of A, which it never sees."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from halfgp.operators.base import Operator
from halfgp.preconditioners import Preconditioner, is_below
from halfgp.solvers.ritz import LeastRitzValue
from halfgp.solvers.state import State, snapshot

WINDOW = 0.2  # of the iterations so far, whose gains are compared with those of as many before
FEWEST = 8  # iterations of a window: gains go up and down from one to the next
LARGEST_RESIDUAL = 0.1  # that an estimate goes with: above it, what is solved may be a small part of b
SEEN = 0.25  # of the least Ritz value: below it no eigenvalue of the preconditioned matrix is expected
BELIEVED = 30.0  # times below the bound at most: where it was measured, the truth was up to 20 times below


class EnergyMonitor:
    """Estimates of |x - A^-1 b|_A / √n, by column.

    For a right-hand side of covariance A the norm |A^-1 b|_A / √n is 1: it is in units of what the vector's
    own randomness is worth. With d the diagonal of A^-1, an error e of the solution changes the leave-one-out
    residual of a row by e / d, in units of its deviation by e / √d; and the sum of those squares is at most
    about e'A e. A relative residual says nothing of the kind. There are two estimates, of which the
    smaller one counts:

    - √(r' P^-1 r / n). Preconditioners from a part of the kernel are never above A, and neither is a factor,
      but for the rounding of what they are made of (`allow`), nor is the noise, which stands for P where
      there is none; so that this is a bound. It is close where P is. Of other preconditioners the steps tell
      how far P is above A at most (`ritz`), and the noise bounds what true residuals leave.
    - What steps gain. CG lowers the squared norm of the error by α r'd in every step, so that all gains to
      come are what is lacking now. Gains that fell by q from one window of steps to the next are taken to
      go on so, and the last window is counted among what is lacking. On a plateau, where q is 1, that is
      infinite; and since a plateau may look like the end, the bound is believed up to a factor.

    Where neither a preconditioner nor noise is known gains are all there is, and a spectrum with a gap, whose
    upper part is solved long before the lower one, deceives them.
    """

    def __init__(self, system: Operator, preconditioner: Preconditioner | None, scale: Tensor) -> None:
        self._system, self._preconditioner = system, preconditioner
        self._unit = scale.double().reshape(-1) / math.sqrt(max(system.size, 1))  # columns are held scaled
        noise = system.least_nugget if system.size else 0.0
        self._above = 1.0
        above = preconditioner is not None and not is_below(preconditioner)
        self._ritz = LeastRitzValue(self._unit) if above else None
        self._least = math.sqrt(noise) if noise > 0.0 else math.inf  # a root of A's least eigenvalue
        self._gains: list[Tensor] = []
        self._lacking = torch.full_like(self._unit, torch.inf)  # from gains alone

    def allow(self, perturbation: float) -> None:
        """Take it that the preconditioner was made of a matrix so far from A, and may be above it by that."""
        self._above = math.sqrt(1.0 + perturbation / self._least**2)

    def record(self, gains: Tensor, norm: Tensor, columns: Tensor, moved: Tensor) -> None:
        """Take what an iteration gained.

        Args:
            gains: (c,) by column.
            norm: (c,) √(r' P^-1 r) after it.
            columns: (c,) which these are.
            moved: (c,) which of them moved; the others gained nothing.
        """
        row, which = torch.zeros_like(self._unit), torch.zeros_like(self._unit, dtype=torch.bool)
        row[columns[moved]] = gains[moved].to(row)
        which[columns[moved]] = True
        self._gains.append(row)
        self._lacking[columns[moved]] = self._extrapolated(columns[moved])
        if self._ritz is not None:
            self._ritz.record(row, self._squares(norm, columns), which)

    def turn(self, norm: Tensor, columns: Tensor) -> None:
        """A recurrence begins with these norms (c,): its steps do not follow from earlier ones."""
        if self._ritz is not None:
            self._ritz.begin(self._squares(norm, columns))

    def _squares(self, norm: Tensor, columns: Tensor) -> Tensor:
        squares = torch.full_like(self._unit, torch.nan)
        squares[columns] = norm.to(squares).square()
        return squares

    def forget(self) -> None:
        """The iterates begin again elsewhere: what led there says nothing."""
        self._gains.clear()
        self._lacking.fill_(torch.inf)

    def state(self) -> State:
        """What was gained so far."""
        ritz = None if self._ritz is None else self._ritz.state()
        return {"gains": snapshot(self._gains), "lacking": snapshot(self._lacking), "ritz": ritz}

    def restore(self, state: State) -> None:
        """Go on from there."""
        self._gains, self._lacking = list(state["gains"]), state["lacking"]
        if self._ritz is not None:
            self._ritz.restore(state["ritz"])

    def after(self, r: Tensor, gap: Tensor, columns: Tensor) -> Tensor:
        """Of iterates with the residuals (n, c), in these columns; costs one use of the preconditioner.

        Args:
            r: true.
            gap: (c,) norms of what the recurrence did not know of them, nor do its gains.
            columns: which these are.
        """
        energy = self._system.dot(r, r if self._preconditioner is None else self._preconditioner.solve(r))
        found = self._estimate(energy.clamp_min(0.0).sqrt(), columns, gap)
        if self._ritz is None or math.isinf(self._least):
            return found
        # Whatever the preconditioner, A is not below its noise.
        return torch.minimum(found, self._system.dot(r, r).sqrt() * self._unit[columns] / self._least)

    def estimate(self, norm: Tensor, columns: Tensor) -> Tensor:
        """From √(r' P^-1 r) (c,), as the recurrence has it; √(r' r) without a preconditioner."""
        return self._estimate(norm, columns)

    def _estimate(self, norm: Tensor, columns: Tensor, gap: Tensor | None = None) -> Tensor:
        bound = norm.double() * self._unit[columns] * self._above
        if self._ritz is not None:
            least = SEEN * self._ritz.value
            bound = bound / math.sqrt(least) if least > 0.0 else torch.full_like(bound, torch.inf)
        if self._preconditioner is None:
            bound = bound / self._least if math.isfinite(self._least) else torch.full_like(bound, torch.inf)
        lacking = self._lacking[columns]
        if gap is not None:
            # Rounding is as good as random, and most of a random vector is where A is hardly above its noise.
            lacking = torch.hypot(lacking, gap * self._unit[columns] / self._least)
        # Without a bound gains are all there is.
        believed = torch.maximum(lacking, torch.where(bound.isinf(), 0.0, bound / BELIEVED))
        return torch.minimum(bound, believed)

    def _extrapolated(self, columns: Tensor) -> Tensor:
        """The last window's gains and all to come (c,); infinite while they are few, or do not fall."""
        size = max(FEWEST, math.ceil(WINDOW * len(self._gains)))
        if len(self._gains) < 2 * size:
            return torch.full_like(columns, torch.inf, dtype=torch.float64)
        gains = torch.stack(self._gains[-2 * size :])[:, columns].reshape(2, size, -1).sum(dim=1)
        fall = gains[1] / gains[0]
        left = torch.where(fall < 1.0, gains[1] / (1.0 - fall), torch.inf)
        return left.sqrt() * self._unit[columns]
