"""A sparse lower triangular matrix with a few entries a row: what a backend provides, and how torch does."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor


class SparseFactor(Protocol):
    """G (n, n), lower triangular, which multiplies and solves for vectors (n, t), float64, row-major."""

    def multiply(self, v: Tensor, transposed: bool = False) -> Tensor:
        """G v, or G' v; O(entries t)."""

    def solve(self, v: Tensor, transposed: bool = False) -> Tensor:
        """G^-1 v, or G'^-1 v; O(entries t), one row after the other."""


@dataclass(frozen=True)
class ReferenceSparseFactor:
    """In torch, but for solves, which are SciPy's.

    Attributes:
        columns: (n, k) of the entries beside the diagonal, each before its row; -1 for none.
        entries: (n, k + 1), the diagonal's last.
    """

    columns: Tensor
    entries: Tensor

    def multiply(self, v: Tensor, transposed: bool = False) -> Tensor:
        """One column of entries after the other."""
        at = torch.cat([self.columns, torch.arange(len(v), device=v.device)[:, None]], dim=1)
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
        """By SciPy."""
        from scipy.sparse.linalg import spsolve_triangular  # here: it takes a third of a second to import

        matrix = self._matrix.T.tocsr() if transposed else self._matrix
        solved = spsolve_triangular(matrix, v.cpu().numpy(), lower=not transposed)
        return torch.from_numpy(np.ascontiguousarray(solved)).to(v)

    @cached_property
    def _matrix(self) -> Any:
        from scipy.sparse import csr_matrix

        columns, entries = self.columns.cpu().numpy(), self.entries.cpu().numpy()
        n, k = columns.shape
        at = np.concatenate([columns, np.arange(n)[:, None]], axis=1)
        rows = np.repeat(np.arange(n), k + 1).reshape(at.shape)
        present = at >= 0
        shape = (n, n)
        return csr_matrix((entries[present], (rows[present], at[present])), shape=shape)
