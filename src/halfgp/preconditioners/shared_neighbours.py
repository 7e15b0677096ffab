"""Landmarks and neighbours of rows that are shared out: every share builds and applies some groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from halfgp.backends.grouped_factor import GroupedFactor, GroupedRows
from halfgp.errors import InputError
from halfgp.operators.sharded import ShardedKernel
from halfgp.precision import DOUBLE, Format
from halfgp.preconditioners.pattern import Pattern

INDEFINITE = "A is not positive definite in double: give the operator a larger `noise`."


@dataclass(frozen=True)
class SharedNeighbours:
    """`LandmarksAndNeighbours` by shares; vectors (m, t) of the rows held here go in and come out.

    Groups are shared out as they follow each other in the order of the factor, whoever holds their rows: a
    vector is gathered for its products, as for one with the matrix, and what they come to is scattered.

    Attributes:
        operator: that it is for, whose shares meet.
        landmarks: (r,) rows, numbered among all.
        lower: C (r, r).
        explained: W' (m, r), zero where a row is a landmark.
        others: (n - r,) rows, in their order.
        factor: G, of the groups of this share.
        log_pivots: Σ log G_ii, of all rows.

    To apply it takes O(n (r + p + s) t / shares) time and two meetings of n t numbers, as a product does.
    """

    operator: ShardedKernel
    landmarks: Tensor
    lower: Tensor
    explained: Tensor
    others: Tensor
    factor: GroupedFactor
    log_pivots: float
    below: ClassVar[bool] = False
    whole: ClassVar[str] = "LandmarksAndNeighbours"  # the class of the same matrix, where none are shared

    def solve(self, v: Tensor) -> Tensor:
        """P^-1 v for v (m, t), float64."""
        top, left = self._without_landmarks(v.double())
        return self._unwhitened(top, self.factor.multiply(left))

    def whiten(self, v: Tensor, transposed: bool = False) -> Tensor:
        """R v, or R' v, for v (m, t), float64, where P^-1 = R' R."""
        v = v.double()
        if transposed:
            return self._unwhitened(self.operator.at(v, self.landmarks), self._ordered(v))
        top, left = self._without_landmarks(v)
        return self._placed(top, self._scattered(self.factor.multiply(left)))

    def matmul(self, v: Tensor) -> Tensor:
        """P v for v (m, t), float64: a solve with G goes through all groups, one share after the other."""
        v = v.double()
        top = self.lower.T @ self.operator.at(v, self.landmarks)
        top = top + self.operator.gram(self.explained, self._placed(None, v))
        ordered = self._ordered(v)
        ranks = self.operator.ranks
        for turn in reversed(range(ranks.count)):  # what it takes from earlier rows is for the next
            solved = self.factor.solve(ordered, transposed=True) if turn == ranks.index else ordered
            ordered = ordered + self.operator.total(solved - ordered)
        for turn in range(ranks.count):
            solved = self.factor.solve(ordered) if turn == ranks.index else ordered
            ordered = ordered + self.operator.total(solved - ordered)
        rest = v.new_zeros(self.operator.size, v.shape[1])
        rest[self.others] = ordered
        return self._placed(self.lower @ top, torch.addmm(rest[self.operator.held], self.explained, top))

    def log_determinant(self) -> float:
        """The logarithm of det P."""
        return 2.0 * (float(self.lower.diagonal().log().sum()) - self.log_pivots)

    def _without_landmarks(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """Of landmarks (r, t), whitened, and what they leave of the others (n - r, t)."""
        top = torch.linalg.solve_triangular(self.lower, self.operator.at(v, self.landmarks), upper=False)
        return top, self._ordered(torch.addmm(v, self.explained, top, alpha=-1.0))

    def _unwhitened(self, top: Tensor, rest: Tensor) -> Tensor:
        """Of rest (n - r, t) the rows of this share's groups."""
        found = self._placed(None, self._scattered(self.factor.multiply(rest, transposed=True)))
        top = top - self.operator.gram(self.explained, found)
        return self._placed(torch.linalg.solve_triangular(self.lower.T, top, upper=True), found)

    def _ordered(self, v: Tensor) -> Tensor:
        """All rows that are no landmarks (n - r, t), in their order, of v (m, t)."""
        return self.operator.gathered(v)[self.others]

    def _scattered(self, partial: Tensor) -> Tensor:
        """The rows held here (m, t) of the sum over shares of (n - r, t)."""
        whole = partial.new_zeros(self.operator.size, partial.shape[1])
        whole[self.others] = partial
        return self.operator.scattered(whole)

    def _placed(self, top: Tensor | None, rest: Tensor) -> Tensor:
        """Rows held here (m, t), those of landmarks replaced, by zeros where there is nothing else."""
        here, places = self.operator.here(self.landmarks)
        placed = rest.T.clone().T
        placed[places] = 0.0 if top is None else top[here]
        return placed


@torch.no_grad()
def shared_neighbours(
    operator: ShardedKernel,
    landmarks: Tensor,
    neighbours: int,
    group: int,
    seed: int,
    entries_in: Format = DOUBLE,
) -> SharedNeighbours:
    """Condition on landmarks (r,), then the groups of this share on their members.

    The factor is held in a format.

    While it is built, what landmarks explain of all rows, 8 n r bytes, is on every rank, for a moment twice.

    Raises:
        InputError: A is not positive definite in double; on all ranks alike.
    """
    summand = operator.summand
    lower, explained = _landmark_part(operator, landmarks)
    pattern = Pattern.around(summand, landmarks, neighbours, group, seed, operator.ranks.part)
    others = pattern.others
    of = GroupedRows(
        summand.x1[others],
        summand.variances()[others],
        operator.gathered(explained)[others],
        pattern.groups,
    )
    factor = summand.backend.grouped_factor(
        summand.kernel, of, entries_in=entries_in, threads=summand.threads
    )
    told = operator.total(explained.new_tensor([float(factor.indefinite), factor.log_pivots]))
    if told[0] > 0:
        raise InputError(INDEFINITE)
    return SharedNeighbours(operator, landmarks, lower, explained, others, factor, float(told[1]))


def _landmark_part(operator: ShardedKernel, landmarks: Tensor) -> tuple[Tensor, Tensor]:
    """C (r, r), and W' (m, r) of the rows held here, zero where they are landmarks."""
    rows = operator.with_precision("double").rows(landmarks)
    lower, failed = torch.linalg.cholesky_ex(operator.at(rows.T, landmarks))
    if int(failed):
        raise InputError(INDEFINITE)
    explained = torch.linalg.solve_triangular(lower, rows, upper=False).T.contiguous()
    explained[operator.here(landmarks)[1]] = 0.0
    return lower, explained
