"""The least eigenvalue of the preconditioned matrix, as far as conjugate gradients has seen it."""

from __future__ import annotations

import numpy as np
import torch
from scipy.linalg import eigh_tridiagonal
from torch import Tensor

from halfgp.solvers.state import State, snapshot

FEWEST = 4  # iterations that a value is read off


class LeastRitzValue:
    """A running estimate of the least eigenvalue of P^-1 A, from the steps of CG.

    With γ = r' P^-1 r, a step of length α gains αγ of the squared error in the norm of A. Gains and γ hold
    every α and β, and those are the tridiagonal matrix of Lanczos, whose least eigenvalue comes down to
    that of P^-1 A. It does so from above, and soonest where right-hand sides have much in its direction.

    Attributes:
        value: the least of any column so far; NaN while there are too few steps.
    """

    def __init__(self, columns: Tensor) -> None:
        self.value = float("nan")
        self._gains: list[Tensor] = []  # (t,) of every step since the recurrence began
        self._gammas: list[Tensor] = []  # (t,) before every step, and after the last
        self._live = torch.ones_like(columns, dtype=torch.bool)

    def begin(self, gammas: Tensor) -> None:
        """A recurrence begins, with γ (t,): what earlier ones saw of the spectrum stays known."""
        self._gains, self._gammas = [], [gammas.double()]
        self._live = torch.ones_like(gammas, dtype=torch.bool)

    def record(self, gains: Tensor, gammas: Tensor, moved: Tensor) -> None:
        """A step was taken: what it gained (t,), γ after it (t,), and the columns that moved (t,)."""
        self._gains.append(gains.double())
        self._gammas.append(gammas.double())
        self._live = self._live & moved
        if len(self._gains) >= FEWEST:
            self._look()

    def _look(self) -> None:
        gains, gammas = torch.stack(self._gains)[:, self._live], torch.stack(self._gammas)[:, self._live]
        inverse = gammas[:-1] / gains  # 1 / α
        betas = gammas[1:] / gammas[:-1]
        diagonal, off = inverse.clone(), betas[:-1].sqrt() * inverse[:-1]
        diagonal[1:] += betas[:-1] * inverse[:-1]
        for main, side in zip(diagonal.T.cpu().numpy(), off.T.cpu().numpy(), strict=True):
            if np.isfinite(main).all() and np.isfinite(side).all():
                least = eigh_tridiagonal(main, side, True, select="i", select_range=(0, 0))[0]
                self.value = float(np.fmin(self.value, least))

    def state(self) -> State:
        """All that it knows."""
        lists = {"gains": snapshot(self._gains), "gammas": snapshot(self._gammas)}
        # A tensor, for it may be no number, which JSON has not.
        value = torch.tensor(self.value, dtype=torch.float64)
        return {**lists, "value": value, "live": snapshot(self._live)}

    def restore(self, state: State) -> None:
        """Go on from there."""
        self._gains, self._gammas = list(state["gains"]), list(state["gammas"])
        self.value, self._live = float(state["value"]), state["live"]
