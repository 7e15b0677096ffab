"""A triangular factor that the CPU engine holds."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor


class _Engine(Protocol):
    def multiply(self, v: Tensor, out: Tensor, transposed: bool, threads: int) -> None: ...
    def solve(self, v: Tensor, transposed: bool) -> None: ...


class CpuFactor:
    """Products by several threads, to the same bits, and solves by one."""

    _factor: _Engine
    _threads: int

    def multiply(self, v: Tensor, transposed: bool = False) -> Tensor:
        """G v, or G' v."""
        v = v.contiguous()
        out = torch.empty_like(v)
        self._factor.multiply(v, out, transposed, self._threads)
        return out

    def solve(self, v: Tensor, transposed: bool = False) -> Tensor:
        """G^-1 v, or G'^-1 v."""
        solved = v.contiguous().clone()
        self._factor.solve(solved, transposed)
        return solved
