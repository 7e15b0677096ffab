"""A sparse factor of the inverse: landmarks exactly, then every row given its nearest neighbours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from halfgp.backends.grouped_factor import GroupedFactor, GroupedRows
from halfgp.errors import InputError
from halfgp.operators import Operator, ShardedKernel, as_operator
from halfgp.operators.bound import BoundKernel
from halfgp.precision import DOUBLE, Format
from halfgp.preconditioners.base import check_count
from halfgp.preconditioners.partial_cholesky import partial_cholesky
from halfgp.preconditioners.pattern import Pattern
from halfgp.preconditioners.pivoted_cholesky import LARGEST_BLOCK, Greedy
from halfgp.preconditioners.shared_neighbours import INDEFINITE, SharedNeighbours, shared_neighbours

CHUNK = 4096  # rows at a time, of all landmarks


@dataclass(frozen=True)
class SparseInverseCholesky:
    """A^-1 ≈ R' R, where R is sparse below a few full columns (Vecchia's approximation, as a factor).

    Rows are put into an order: first landmarks, which pivoted Cholesky picks, then the others, in groups of
    near ones. Landmarks are conditioned on exactly. Every other row is conditioned on all landmarks, on the
    rows before it in its group, and on what any row of the group has for one of the nearest neighbours among
    the rows before it; where these are too many in all, on those nearest to most rows. Of all factors with
    that pattern this one has the least Kullback-Leibler divergence from A. Landmarks see what is smooth and
    far, neighbours what is rough and near: where low rank alone takes hundreds of passes, the two together
    take ten or twenty.

    Attributes:
        neighbours: of every row that is no landmark; 0 for none.
        landmarks: how many; 0 for none.
        seed: of the order.
        group: about how many rows share their neighbours; 1 for rows that have none but their own.

    A group of s rows has at most 2 √s times as many members as a row has neighbours, p, and to build takes
    O(n (p + s)² (p + s + landmarks) / s) time in double and the search for neighbours, memory
    8 n (p + s + landmarks) bytes. It needs a `KernelOperator`, whose covariances between any two rows it can
    ask for.
    """

    neighbours: int = 30
    landmarks: int = 0
    seed: int = 0
    group: int = 32

    def __post_init__(self) -> None:
        for name in ("neighbours", "landmarks", "seed"):
            check_count(getattr(self, name), name)
        check_count(self.group, "group", least=1)

    def build(self, operator: object) -> LandmarksAndNeighbours | SharedNeighbours:
        """The preconditioner of a square operator, by rows where they are shared out."""
        source = as_operator(operator)
        if isinstance(source, ShardedKernel):
            return shared_neighbours(source, self._pivots(source), self.neighbours, self.group, self.seed)
        return conditioned_on(require_kernel(source), self.pattern(source))

    def pattern(self, operator: object) -> Pattern:
        """Landmarks and neighbours alone, which may serve for more than one matrix of the same points."""
        source = require_kernel(operator)
        return Pattern.around(source, self._pivots(source), self.neighbours, self.group, self.seed)

    def _pivots(self, source: Operator) -> Tensor:
        """The rows that become landmarks."""
        count = min(self.landmarks, source.shape[0])
        if not count:
            return torch.empty(0, dtype=torch.long, device=source.device)
        block = max(1, min(LARGEST_BLOCK, count // 8))
        return partial_cholesky(source, count, None, Greedy(block)).pivots


def require_kernel(operator: object) -> BoundKernel:
    """The operator of a kernel, which knows its points.

    Raises:
        InputError: it is a matrix of another kind.
    """
    source = as_operator(operator)
    if not isinstance(source, BoundKernel):
        raise InputError(
            "A preconditioner of neighbours is built from a `KernelOperator`, which knows the points;"
            f" got {type(operator).__name__}. Use `PivotedCholesky` for other matrices."
        )
    return source


@dataclass(frozen=True)
class LandmarksAndNeighbours:
    """P = R^-1 R'^-1 with R = [C^-1, 0; -G W' C^-1, G].

    C is the Cholesky factor of A on the landmarks, W = C^-1 A between landmarks and others, and G the sparse
    inverse factor of what landmarks leave of A.

    Attributes:
        landmarks: (r,) rows.
        others: (n - r,) rows, in their order.
        lower: C (r, r).
        explained: W' (n - r, r), by rows in their order.
        factor: G.
        gram: sums over rows, from the operator, so that rows may be sharded.

    Applying it to (n, t) takes O(n (r + p + s) t) time, for groups of s rows with p members.
    """

    landmarks: Tensor
    others: Tensor
    lower: Tensor
    explained: Tensor
    factor: GroupedFactor
    gram: Callable[[Tensor, Tensor], Tensor]
    below: ClassVar[bool] = False

    def solve(self, v: Tensor) -> Tensor:
        """P^-1 v for v (n, t), float64."""
        top, rest = self._whitened(v)
        return self._joined(*self._unwhitened(top, rest), v)

    def whiten(self, v: Tensor, transposed: bool = False) -> Tensor:
        """R v, or R' v, for v (n, t), float64: P^-1 = R' R, so that R is a root's inverse."""
        if not transposed:
            return self._joined(*self._whitened(v), v)
        return self._joined(*self._unwhitened(*self._parts(v)), v)

    def matmul(self, v: Tensor) -> Tensor:
        """P v for v (n, t), float64, by solves with G."""
        top, rest = self._parts(v)
        # R'^-1, then R^-1.
        under = self.factor.solve(rest, transposed=True)
        top = self.lower.T @ top + self.gram(self.explained, rest)
        back = self.factor.solve(under) + self.explained @ top
        return self._joined(self.lower @ top, back, v)

    def log_determinant(self) -> float:
        """The logarithm of det P."""
        return 2.0 * (float(self.lower.diagonal().log().sum()) - self.factor.log_pivots)

    def _parts(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """Of landmarks (r, t) and of the others (n - r, t) in their order, each by rows."""
        return v[self.landmarks].double(), v[self.others].double()

    def _whitened(self, v: Tensor) -> tuple[Tensor, Tensor]:
        top, rest = self._parts(v)
        top = torch.linalg.solve_triangular(self.lower, top, upper=False)
        return top, self.factor.multiply(torch.addmm(rest, self.explained, top, alpha=-1.0))

    def _unwhitened(self, top: Tensor, rest: Tensor) -> tuple[Tensor, Tensor]:
        rest = self.factor.multiply(rest, transposed=True)
        left = top - self.gram(self.explained, rest)
        return torch.linalg.solve_triangular(self.lower.T, left, upper=True), rest

    def _joined(self, top: Tensor, rest: Tensor, like: Tensor) -> Tensor:
        """Rows of landmarks and others in their places; columns contiguous, as solvers want them."""
        whole = top.new_empty(like.shape[1], like.shape[0]).T
        whole[self.landmarks], whole[self.others] = top, rest
        return whole


@torch.no_grad()
def conditioned_on(
    operator: BoundKernel, pattern: Pattern, entries_in: Format = DOUBLE
) -> LandmarksAndNeighbours:
    """Condition on landmarks, then every group on its members; the factor is held in a format.

    A group that is not positive definite in double, as where rows repeat and the noise is tiny, goes without
    its members, or its rows have the landmarks alone.

    Raises:
        InputError: A is not positive definite in double.
    """
    x, engine, landmarks, others = operator.x1, operator.backend, pattern.landmarks, pattern.others
    lower, explained = _landmark_part(operator, landmarks, others)
    of = GroupedRows(x[others], operator.variances()[others], explained, pattern.groups)
    factor = engine.grouped_factor(operator.kernel, of, entries_in=entries_in, threads=operator.threads)
    if factor.indefinite:
        raise InputError(INDEFINITE)
    return LandmarksAndNeighbours(landmarks, others, lower, explained, factor, operator.gram)


def _landmark_part(operator: BoundKernel, landmarks: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    """C (r, r) and W' (n - r, r)."""
    double = operator.with_precision("double")
    lower, failed = torch.linalg.cholesky_ex(double.rows(landmarks, landmarks))
    if int(failed):
        raise InputError(INDEFINITE)
    explained = lower.new_empty(len(others), len(landmarks))
    for start in range(0, len(others), CHUNK):  # so that it is in memory once
        some = slice(start, start + CHUNK)
        rows = double.rows(landmarks, others[some])
        explained[some] = torch.linalg.solve_triangular(lower, rows, upper=False).T
    return lower, explained
