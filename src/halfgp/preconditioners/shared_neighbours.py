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
from halfgp.precision import DOUBLE, Format, Precision
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
        others: (n - r,) rows, in their order.
        columns: (m, k) of G beside its diagonal, rows numbered among all, -1 for none.
        entries: (m, k + 1) of G, the diagonal's last; zero where a row is a landmark.
        factor: G (m, n) of these.
        log_pivots: Σ log G_ii, of all rows.

    To apply it takes O(m (r + neighbours) t) time and two meetings of n t numbers, as a product does.
    """

    operator: ShardedKernel
    landmarks: Tensor
    lower: Tensor
    explained: Tensor
    others: Tensor
    columns: Tensor
    entries: Tensor
    factor: SparseFactor
    log_pivots: float
    below: ClassVar[bool] = False
    whole: ClassVar[str] = "LandmarksAndNeighbours"  # the class of the same matrix, where none are shared

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

    def matmul(self, v: Tensor) -> Tensor:
        """P v for v (m, t), float64: solves with G go through all rows, so that it is gathered then."""
        v = v.double()
        rest = self._placed(None, v)
        top = self.lower.T @ self.operator.at(v, self.landmarks) + self.operator.gram(self.explained, rest)
        whole, ordered = self._whole_factor(), self.operator.gathered(v)[self.others]
        solved = v.new_zeros(self.operator.size, v.shape[1])
        solved[self.others] = whole.solve(whole.solve(ordered, transposed=True))
        back = torch.addmm(solved[self.operator.held], self.explained, top)
        return self._placed(self.lower @ top, back)

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
        rest = self.operator.scattered(self.factor.multiply(rest, transposed=True))
        top = top - self.operator.gram(self.explained, rest)
        return self._placed(torch.linalg.solve_triangular(self.lower.T, top, upper=True), rest)

    def _whole_factor(self) -> SparseFactor:
        """G (n - r, n - r) of all rows, in their order."""
        columns, entries = self.operator.gathered(self.columns), self.operator.gathered(self.entries)
        places = torch.full((self.operator.size,), -1, device=columns.device)
        places[self.others] = torch.arange(len(self.others), device=columns.device)
        columns = torch.where(columns >= 0, places[columns.clamp_min(0)], -1)
        summand = self.operator.summand
        return summand.backend.sparse_factor(
            columns[self.others], entries[self.others], threads=summand.threads
        )

    def _placed(self, top: Tensor | None, rest: Tensor) -> Tensor:
        """Rows held here (m, t), those of landmarks replaced, by zeros where there is nothing else."""
        here, places = self.operator.here(self.landmarks)
        placed = rest.T.clone().T
        placed[places] = 0.0 if top is None else top[here]
        return placed


@torch.no_grad()
def shared_neighbours(
    operator: ShardedKernel, landmarks: Tensor, neighbours: int, seed: int, entries_in: Format = DOUBLE
) -> SharedNeighbours:
    """Condition on landmarks (r,), then every other row held here on its neighbours among all.

    The factor is held in a format.

    While it is built, what landmarks explain of all rows, 8 n r bytes, is on every rank: neighbours are.

    Raises:
        InputError: A is not positive definite in double; on all ranks alike.
    """
    kernel, summand = operator.summand.kernel, operator.summand
    n, x = operator.size, operator.summand.x1.double()
    lower, explained = _landmark_part(operator, landmarks)
    others = in_order(n, landmarks, seed)
    places, at = operator.here(others)  # in the order of the factor, and among the rows held here
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
    left = diagonal[own] - explained[at].square().sum(dim=1)
    if int(operator.total((failed & ~(left > 0)).sum())):
        raise InputError(INDEFINITE)
    members[failed] = -1
    entries[failed] = 0.0
    entries[failed, -1] = left[failed].rsqrt()
    entries = entries.to(entries_in.dtype)  # as it is held
    log_pivots = float(operator.total(entries[:, -1].double().log().sum()))
    columns = members.new_full((operator.rows_held, k), -1)
    values = entries.new_zeros(operator.rows_held, k + 1)
    columns[at], values[at] = members, entries
    rows = SomeRows(operator.numbers, n)
    factor = summand.backend.sparse_factor(columns, values, threads=summand.threads, some=rows)
    return SharedNeighbours(
        operator, landmarks, lower, explained, others, columns, values, factor, log_pivots
    )


def _landmark_part(operator: ShardedKernel, landmarks: Tensor) -> tuple[Tensor, Tensor]:
    """C (r, r), and W' (m, r) of the rows held here, zero where they are landmarks."""
    rows = operator.with_precision("double").rows(landmarks)
    lower, failed = torch.linalg.cholesky_ex(operator.at(rows.T, landmarks))
    if int(failed):
        raise InputError(INDEFINITE)
    explained = torch.linalg.solve_triangular(lower, rows, upper=False).T.contiguous()
    explained[operator.here(landmarks)[1]] = 0.0
    return lower, explained
