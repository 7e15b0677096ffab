"""Landmarks and neighbours of rows that are shared out: every share builds and applies its own rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from halfgp.backends.conditionals import Neighbourhoods
from halfgp.backends.sparse_factor import SomeRows, SparseFactor
from halfgp.errors import InputError
from halfgp.nearest import NearestSearch, metric
from halfgp.operators.sharded import ShardedKernel
from halfgp.precision import Precision
from halfgp.preconditioners.pattern import in_order

INDEFINITE = "A is not positive definite in double: give the operator a larger `noise`."


@dataclass(frozen=True)
class SharedNeighbours:
    """`LandmarksAndNeighbours` by rows, those held here; vectors (m, t) go in and come out.

    Attributes:
        operator: that it is for, whose shares meet.
        landmarks: (r,) rows, numbered among all.
        lower: C (r, r).
        explained: W' (m, r), zero where a row is a landmark.
        factor: G (m, n), zero there too.
        log_pivots: Σ log G_ii, of all rows.

    To apply it takes O(m (r + neighbours) t) time and two meetings of n t numbers, as a product does. It does
    not multiply: that would take solves with G, one row after the other.
    """

    operator: ShardedKernel
    landmarks: Tensor
    lower: Tensor
    explained: Tensor
    factor: SparseFactor
    log_pivots: float
    below: ClassVar[bool] = False

    def solve(self, v: Tensor) -> Tensor:
        """P^-1 v for v (m, t), float64."""
        return self._unwhitened(*self._whitened(v))

    def whiten(self, v: Tensor, transposed: bool = False) -> Tensor:
        """R v, or R' v, for v (m, t), float64, where P^-1 = R' R."""
        v = v.double()
        if transposed:
            return self._unwhitened(self.operator.at(v, self.landmarks), self._placed(None, v))
        top, rest = self._whitened(v)
        return self._placed(top, rest)

    def log_determinant(self) -> float:
        """The logarithm of det P."""
        return 2.0 * (float(self.lower.diagonal().log().sum()) - self.log_pivots)

    def _whitened(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """Of landmarks (r, t), and of rows held here (m, t), zero where they are landmarks."""
        v = v.double()
        top = torch.linalg.solve_triangular(self.lower, self.operator.at(v, self.landmarks), upper=False)
        left = self._placed(None, torch.addmm(v, self.explained, top, alpha=-1.0))
        return top, self.factor.multiply(self.operator.gathered(left))

    def _unwhitened(self, top: Tensor, rest: Tensor) -> Tensor:
        rest = self.operator.ranks.scattered(self.factor.multiply(rest, transposed=True))
        top = top - self.operator.gram(self.explained, rest)
        return self._placed(torch.linalg.solve_triangular(self.lower.T, top, upper=True), rest)

    def _placed(self, top: Tensor | None, rest: Tensor) -> Tensor:
        """Rows held here (m, t), those of landmarks replaced, by zeros where there is nothing else."""
        held = self.operator.held
        here = ((self.landmarks >= held.start) & (self.landmarks < held.stop)).nonzero()[:, 0]
        placed = rest.T.clone().T
        placed[self.landmarks[here] - held.start] = 0.0 if top is None else top[here]
        return placed


@torch.no_grad()
def shared_neighbours(
    operator: ShardedKernel, landmarks: Tensor, neighbours: int, seed: int
) -> SharedNeighbours:
    """Condition on landmarks (r,), then every other row held here on its neighbours among all.

    While it is built, what landmarks explain of all rows, 8 n r bytes, is on every rank: neighbours are.

    Raises:
        InputError: A is not positive definite in double; on all ranks alike.
    """
    kernel, summand, held = operator.summand.kernel, operator.summand, operator.held
    n, x = operator.size, operator.summand.x1.double()
    lower, explained = _landmark_part(operator, landmarks)
    others = in_order(n, landmarks, seed)
    places = ((others >= held.start) & (others < held.stop)).nonzero()[:, 0]
    own = others[places]
    z = metric(kernel, x[others])
    positions = torch.arange(len(others), device=x.device)
    search = NearestSearch(z, z[places], places, positions)
    k = min(neighbours, max(len(others) - 1, 0))
    found = summand.backend.nearest(search, k, threads=summand.threads)
    members = torch.where(found >= 0, others[found.clamp_min(0)] if len(others) else found, -1)
    diagonal = summand.variances()
    none = diagonal.new_empty(n, 0)
    of = Neighbourhoods(x, own, members, diagonal, none, operator.gathered(explained))
    double = Precision.resolve("double")
    entries = summand.backend.conditionals(kernel, of, precision=double, threads=summand.threads).factor
    failed = ~entries.isfinite().all(dim=1)
    left = (diagonal[held] - explained.square().sum(dim=1))[own - held.start]
    if int(operator.total((failed & ~(left > 0)).sum())):
        raise InputError(INDEFINITE)
    members[failed] = -1
    entries[failed] = 0.0
    entries[failed, -1] = left[failed].rsqrt()
    log_pivots = float(operator.total(entries[:, -1].log().sum()))
    columns = members.new_full((operator.rows_held, k), -1)
    values = entries.new_zeros(operator.rows_held, k + 1)
    columns[own - held.start], values[own - held.start] = members, entries
    rows = SomeRows(torch.arange(held.start, held.stop, device=x.device), n)
    factor = summand.backend.sparse_factor(columns, values, threads=summand.threads, some=rows)
    return SharedNeighbours(operator, landmarks, lower, explained, factor, log_pivots)


def _landmark_part(operator: ShardedKernel, landmarks: Tensor) -> tuple[Tensor, Tensor]:
    """C (r, r), and W' (m, r) of the rows held here, zero where they are landmarks."""
    rows = operator.with_precision("double").rows(landmarks)
    lower, failed = torch.linalg.cholesky_ex(operator.at(rows.T, landmarks))
    if int(failed):
        raise InputError(INDEFINITE)
    explained = torch.linalg.solve_triangular(lower, rows, upper=False).T.contiguous()
    held = operator.held
    here = landmarks[(landmarks >= held.start) & (landmarks < held.stop)] - held.start
    explained[here] = 0.0
    return lower, explained
