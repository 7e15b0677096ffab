"""A sparse lower triangular matrix with a few entries a row: what a backend provides, and how torch does."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor


class SparseFactor(Protocol):
    """G (n, n), lower triangular, which multiplies and solves for vectors (n, t), float64, row-major."""

    def multiply(self, v: Tensor, transposed: bool = False) -> Tensor:
        """G v, or G' v; O(entries t)."""

    def solve(self, v: Tensor, transposed: bool = False) -> Tensor:
        """G^-1 v, or G'^-1 v; O(entries t)."""


@dataclass(frozen=True)
class ReferenceSparseFactor:
    """In torch, on any device; solves go over levels of rows that do not need each other.

    Attributes:
        columns: (n, k) of the entries beside the diagonal, each before its row; -1 for none.
        entries: (n, k + 1), the diagonal's last.
    """

    columns: Tensor
    entries: Tensor

    def multiply(self, v: Tensor, transposed: bool = False) -> Tensor:
        """One column of entries after the other."""
        own = torch.arange(len(self.columns), device=v.device)
        at = torch.cat([self.columns, own[:, None]], dim=1)
        entries = torch.where(at >= 0, self.entries, 0.0)
        out = torch.zeros_like(v)
        for k in range(at.shape[1]):
            index, entry = at[:, k].clamp_min(0), entries[:, k, None]
            if transposed:
                out.index_add_(0, index, entry * v)
            else:
                out += entry * v[index]
        return out

    def solve(self, v: Tensor, transposed: bool = False) -> Tensor:
        """Forwards by what earlier levels have found; backwards by what later ones have taken off."""
        out = v.clone()
        for rows in reversed(self._levels) if transposed else self._levels:
            at, entries = self.columns[rows], self.entries[rows]
            beside = torch.where(at >= 0, entries[:, :-1], 0.0)[:, :, None]
            at, pivots = at.clamp_min(0), entries[:, -1:]
            if transposed:
                out[rows] = found = out[rows] / pivots
                out.index_add_(0, at.flatten(), -(beside * found[:, None]).flatten(0, 1))
            else:
                out[rows] = (out[rows] - (beside * out[at]).sum(dim=1)) / pivots
        return out

    @cached_property
    def _levels(self) -> list[Tensor]:
        """Rows by the longest way to them: each needs rows of earlier levels alone. O(entries) in all."""
        present = self.columns >= 0
        waiting = present.sum(dim=1)  # for so many others, each row
        level = (waiting == 0).nonzero()[:, 0]
        needed, order = self.columns[present].sort()
        by = present.nonzero()[:, 0][order]  # who needs them
        count = needed.bincount(minlength=len(waiting))
        first = count.cumsum(0) - count
        levels = []
        while len(level):
            levels.append(level)
            each = count[level]
            within = torch.arange(int(each.sum()), device=level.device)
            start = (first[level] - each.cumsum(0) + each).repeat_interleave(each)
            met = by[start + within]
            waiting.index_add_(0, met, torch.full_like(met, -1))
            level = met[waiting[met] == 0].unique()  # type: ignore[no-untyped-call]
        return levels
