"""The sparse triangular factor of the CPU engine."""

from __future__ import annotations

import torch
from torch import Tensor

from halfgp import _cpu
from halfgp.backends.sparse_factor import SomeRows


class CpuSparseFactor:
    """Held by rows and by columns, so that either product goes by several threads, to the same bits."""

    def __init__(self, columns: Tensor, entries: Tensor, threads: int, some: SomeRows | None = None) -> None:
        rows = None if some is None else some.rows.contiguous()
        self._shape = len(columns), len(columns) if some is None else some.of
        kind = _cpu.SparseFactor32 if entries.dtype == torch.float32 else _cpu.SparseFactor64
        self._factor = kind(columns.contiguous(), entries.contiguous(), rows, self._shape[1])
        self._threads = threads

    def multiply(self, v: Tensor, transposed: bool = False) -> Tensor:
        """G v, or G' v."""
        v = v.contiguous()
        out = v.new_empty(self._shape[1 if transposed else 0], v.shape[1])
        self._factor.multiply(v, out, transposed, self._threads)
        return out

    def solve(self, v: Tensor, transposed: bool = False) -> Tensor:
        """G^-1 v, or G'^-1 v, by one thread."""
        solved = v.contiguous().clone()
        self._factor.solve(solved, transposed)
        return solved
