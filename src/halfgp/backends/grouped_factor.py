"""The sparse inverse factor of rows conditioned in groups: what a backend provides, and how torch does it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from halfgp.kernels import Kernel

CHUNK_BYTES = 2**26  # of the small matrices at a time


class Groups(NamedTuple):
    """Rows that follow each other, and the earlier ones that all of them are given.

    Attributes:
        starts: (g + 1,) group i is rows starts[i] to starts[i + 1].
        member_starts: (g + 1,) where its members begin.
        members: rows before those of the group, ascending, group after group.
    """

    starts: Tensor
    member_starts: Tensor
    members: Tensor

    def some(self, first: int, last: int) -> Groups:
        """Groups first to last, whose rows keep their numbers."""
        begin, end = int(self.member_starts[first]), int(self.member_starts[last])
        return Groups(
            self.starts[first : last + 1],
            self.member_starts[first : last + 1] - begin,
            self.members[begin:end],
        )


@dataclass(frozen=True)
class GroupedRows:
    """Points in the order of a factor, and the groups in which they are conditioned.

    Attributes:
        x: points (n, D), in whatever format they are held.
        diagonal: (n,) their variances, noise included, float64.
        explained: (n, r), float64: the covariance of two points is less by the product of their rows.
        groups: of all of them, or some.
    """

    x: Tensor
    diagonal: Tensor
    explained: Tensor
    groups: Groups


class GroupedFactor(Protocol):
    """G (n, n), lower triangular: row i of a group is that of the inverse factor of what the group is given.

    Vectors are (n, t), float64. Of some of the groups it has the rows of those; others are zero. Where a
    group is not positive definite in double with its members it goes without them, and its rows without each
    other where it is not by itself.

    """

    @property
    def log_pivots(self) -> float:
        """Σ log G_ii of its groups."""

    @property
    def indefinite(self) -> int:
        """How many rows landmarks explain to nothing: the matrix is not positive definite."""

    def multiply(self, v: Tensor, transposed: bool = False) -> Tensor:
        """G v, or G' v; O(entries t)."""

    def solve(self, v: Tensor, transposed: bool = False) -> Tensor:
        """G^-1 v, or G'^-1 v; of some groups their rows, of v that holds what earlier ones came to.

        Backwards, what is taken from rows of earlier groups is in the result.
        """


class _Batch(NamedTuple):
    """Groups padded to one size; n stands for a row that is not there."""

    rows: Tensor  # (b, s)
    given: Tensor  # (b, p)
    square: Tensor  # (b, s, s)
    beside: Tensor  # (b, s, p)


class ReferenceGroupedFactor:
    """In torch, on any device; solves go group by group."""

    def __init__(self, kernel: Kernel, of: GroupedRows, dtype: torch.dtype) -> None:
        self._size = len(of.x)
        self._batches: list[_Batch] = []
        self.log_pivots, self.indefinite = 0.0, 0
        counts = of.groups.starts.diff()
        given = of.groups.member_starts.diff()
        largest = int((counts + given).max()) if len(counts) else 1
        size = max(1, CHUNK_BYTES // (64 * largest**2))
        for first in range(0, len(counts), size):
            self._add(kernel, of, first, min(first + size, len(counts)), dtype)

    def _add(self, kernel: Kernel, of: GroupedRows, first: int, last: int, dtype: torch.dtype) -> None:
        n, (starts, member_starts, members) = self._size, of.groups.some(first, last)
        rows = _padded(
            torch.arange(int(starts[0]), int(starts[-1]), device=of.x.device), starts - starts[0], n
        )
        given = _padded(members, member_starts, n)
        found = _inverse_rows(kernel, of, given, rows)
        failed = ~found.isfinite().all(dim=2).all(dim=1)
        if bool(failed.any()):
            p = given.shape[1]
            alone = _inverse_rows(kernel, of, given[failed, :0], rows[failed])
            lonely = ~alone.isfinite().all(dim=2).all(dim=1)
            at = rows[failed][lonely]
            there = at < n
            at = torch.where(there, at, 0)
            left = of.diagonal[at] - of.explained[at].square().sum(dim=2)
            left = torch.where(there, left, 1.0)
            self.indefinite += int((~(left > 0)).sum())
            alone[lonely] = torch.diag_embed(left.rsqrt())
            found[failed, :, :p] = 0.0
            found[failed, :, p:] = alone
        found = found.to(dtype).double()  # as it is held
        beside, square = found[:, :, : given.shape[1]], found[:, :, given.shape[1] :]
        self.log_pivots += float(square.diagonal(dim1=1, dim2=2).log().sum())  # 0 of what is not there
        self._batches.append(_Batch(rows, given, square.to(dtype), beside.to(dtype)))

    def multiply(self, v: Tensor, transposed: bool = False) -> Tensor:
        """A batch of groups at a time."""
        out, known = v.new_zeros(self._size + 1, v.shape[1]), _with_zero(v)
        for rows, given, square, beside in self._batches:
            if transposed:
                out.index_add_(0, given.flatten(), (beside.double().mT @ known[rows]).flatten(0, 1))
                out.index_add_(0, rows.flatten(), (square.double().mT @ known[rows]).flatten(0, 1))
            else:
                product = square.double() @ known[rows] + beside.double() @ known[given]
                out[rows.flatten()] = product.flatten(0, 1)
        return out[:-1]

    def solve(self, v: Tensor, transposed: bool = False) -> Tensor:
        """Every group by itself, for it needs those before it, or after it."""
        out = _with_zero(v)
        for rows, given, square, beside in reversed(self._singly) if transposed else self._singly:
            if transposed:
                solved = torch.linalg.solve_triangular(square.double().mT, out[rows], upper=True)
                out[given] -= beside.double().mT @ solved
            else:
                left = out[rows] - beside.double() @ out[given]
                solved = torch.linalg.solve_triangular(square.double(), left, upper=False)
            out[rows] = solved
        return out[:-1]

    @cached_property
    def _singly(self) -> list[_Batch]:
        """The groups as they are, without what was padded."""
        found = []
        for rows, given, square, beside in self._batches:
            sizes = zip(
                (rows < self._size).sum(1).tolist(), (given < self._size).sum(1).tolist(), strict=True
            )
            for i, (s, p) in enumerate(sizes):
                found.append(_Batch(rows[i, :s], given[i, :p], square[i, :s, :s], beside[i, :s, :p]))
        return found


def _padded(values: Tensor, starts: Tensor, filler: int) -> Tensor:
    """Runs of values as rows of a table (g, longest)."""
    counts = starts.diff()
    table = values.new_full((len(counts), int(counts.max()) if len(counts) else 0), filler)
    there = torch.arange(table.shape[1], device=values.device) < counts[:, None]
    table[there] = values
    return table


def _with_zero(v: Tensor) -> Tensor:
    """With a row of zeros, for those that are not there."""
    return torch.cat([v, v.new_zeros(1, v.shape[1])])


def _inverse_rows(kernel: Kernel, of: GroupedRows, given: Tensor, rows: Tensor) -> Tensor:
    """The last rows (b, s, p + s) of the inverse Cholesky factors of members (b, p) and rows (b, s)."""
    group = torch.cat([given, rows], dim=1)
    present = group < len(of.x)
    at = torch.where(present, group, 0)
    b, size = at.shape
    program, values = kernel.detached().program(), []
    for leaf in program.leaves:
        z = leaf.scaled(of.x[at.reshape(-1)].double())
        z = z.reshape(b, size, z.shape[1])
        values.append(leaf.between(z, z))
    matrix = program.evaluate(values, (b, size, size)).detach()
    matrix = torch.where(
        torch.eye(size, dtype=torch.bool, device=at.device), of.diagonal[at][:, :, None], matrix
    )
    matrix = matrix - of.explained[at] @ of.explained[at].mT
    both = present[:, :, None] & present[:, None, :]
    matrix = torch.where(both, matrix, torch.eye(size, dtype=matrix.dtype, device=at.device))
    lower, failed = torch.linalg.cholesky_ex(matrix)
    lower = torch.where((failed == 0)[:, None, None], lower, torch.nan)
    unit = torch.eye(size, dtype=matrix.dtype, device=at.device)[given.shape[1] :]
    found: Tensor = torch.linalg.solve_triangular(lower, unit.expand(b, -1, -1), upper=False, left=False)
    return found
