"""The sparse triangular factor of the CPU engine."""

from __future__ import annotations

import torch
from torch import Tensor

from halfgp import _cpu


class CpuSparseFactor:
    """Held by rows and by columns, so that either product goes by several threads, to the same bits."""

    def __init__(self, columns: Tensor, entries: Tensor, threads: int) -> None:
        self._factor = _cpu.SparseFactor(columns.contiguous(), entries.contiguous())
        self._threads = threads

    def multiply(self, v: Tensor, transposed: bool = False) -> Tensor:
        """G v, or G' v."""
        v = v.contiguous()
        out = torch.empty_like(v)
        self._factor.multiply(v, out, transposed, self._threads)
        return out

    def solve(self, v: Tensor, transposed: bool = False) -> Tensor:
        """G^-1 v, or G'^-1 v, by one thread."""
        solved = v.contiguous().clone()
        self._factor.solve(solved, transposed)
        return solved
