"""How far an iterate of CG is from the solution in the norm of A, which it never sees."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from halfgp.preconditioners import Preconditioner
from halfgp.solvers.system import System

WINDOW = 0.1  # of the iterations so far, whose gains are compared with those of as many before
FEWEST = 8  # iterations of a window: gains go up and down from one to the next
BELIEVED = 30.0  # times below the bound at most: where it was measured, the truth was up to 20 times below


class EnergyMonitor:
    """Estimates of |x - A^-1 b|_A / √n, by column.

    For a right-hand side of covariance A the norm |A^-1 b|_A / √n is 1: it is in units of what the vector's
    own randomness is worth. With d the diagonal of A^-1, an error e of the solution changes the leave-one-out
    residual of a row by e / d, in units of its deviation by e / √d; and the sum of those squares is at most
    about e'A e. A relative residual says nothing of the kind. There are two estimates, of which the
    smaller one counts:

    - √(r' P^-1 r / n). Preconditioners from a part of the kernel are never above A, and neither is a factor,
      but for the rounding of what they are made of (`allow`): so this is a bound, and close where P is.
    - What steps gain. CG lowers the squared norm of the error by α r'd in every step, so that all gains to
      come are what is lacking now. Gains that fell by q from one window of steps to the next are taken to
      go on so, and the last window is counted among what is lacking. On a plateau, where q is 1, that is
      infinite; and since a plateau may look like the end, the bound is believed up to a factor.
    """

    def __init__(self, system: System, preconditioner: Preconditioner | None, scale: Tensor) -> None:
        self._system, self._preconditioner = system, preconditioner
        self._unit = scale.double().reshape(-1) / math.sqrt(max(system.size, 1))  # columns are held scaled
        noise = float(system.noise.min()) if system.size else 0.0
        self._above = 1.0
        self._least = math.sqrt(noise) if noise > 0.0 else math.inf  # a root of A's least eigenvalue
        self._gains: list[Tensor] = []
        self._lacking = torch.full_like(self._unit, torch.inf)  # from gains alone

    def allow(self, perturbation: float) -> None:
        """Take it that the preconditioner was made of a matrix so far from A, and may be above it by that."""
        self._above = math.sqrt(1.0 + perturbation / self._least**2)

    def record(self, gains: Tensor, columns: Tensor) -> None:
        """Take what an iteration gained (c,) of these columns, which moved; the others did not."""
        row = torch.zeros_like(self._unit)
        row[columns] = gains.to(row)
        self._gains.append(row)
        self._lacking[columns] = self._extrapolated(columns)

    def forget(self) -> None:
        """The iterates begin again elsewhere: what led there says nothing."""
        self._gains.clear()
        self._lacking.fill_(torch.inf)

    def after(self, r: Tensor, gap: Tensor, columns: Tensor) -> Tensor:
        """Of iterates with the residuals (n, c), in these columns; costs one use of the preconditioner.

        Args:
            r: true.
            gap: (c,) norms of what the recurrence did not know of them, nor do its gains.
            columns: which these are.
        """
        if self._preconditioner is None:
            return self._estimate(torch.full((len(columns),), torch.inf), columns, gap)
        energy = self._system.dot(r, self._preconditioner.solve(r))
        return self._estimate(energy.clamp_min(0.0).sqrt(), columns, gap)

    def estimate(self, norm: Tensor, columns: Tensor) -> Tensor:
        """From √(r' P^-1 r) (c,), as the recurrence has it."""
        return self._estimate(torch.inf if self._preconditioner is None else norm, columns)

    def _estimate(self, norm: Tensor | float, columns: Tensor, gap: Tensor | None = None) -> Tensor:
        bound = norm * self._unit[columns] * self._above
        lacking = self._lacking[columns]
        if gap is not None:
            # Rounding is as good as random, and most of a random vector is where A is hardly above its noise.
            lacking = torch.hypot(lacking, gap * self._unit[columns] / self._least)
        # Without a preconditioner there is no bound, and gains are all there is.
        believed = torch.maximum(lacking, torch.where(bound.isinf(), 0.0, bound / BELIEVED))
        return torch.minimum(bound, believed)

    def _extrapolated(self, columns: Tensor) -> Tensor:
        """The last window's gains and all to come (c,); infinite while they are few, or do not fall."""
        size = max(FEWEST, math.ceil(WINDOW * len(self._gains)))
        if len(self._gains) < 2 * size:
            return torch.full((len(columns),), torch.inf, dtype=torch.float64)
        gains = torch.stack(self._gains[-2 * size :])[:, columns].reshape(2, size, -1).sum(dim=1)
        fall = gains[1] / gains[0]
        left = torch.where(fall < 1.0, gains[1] / (1.0 - fall), torch.inf)
        return left.sqrt() * self._unit[columns]
