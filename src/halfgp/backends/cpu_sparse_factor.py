"""The sparse triangular factor of the CPU engine."""

from __future__ import annotations

from torch import Tensor

from halfgp import _cpu
from halfgp.backends.cpu_factor import CpuFactor


class CpuSparseFactor(CpuFactor):
    """Held by rows and by columns, so that either product goes by several threads, to the same bits."""

    def __init__(self, columns: Tensor, entries: Tensor, threads: int) -> None:
        self._factor = _cpu.SparseFactor(columns.contiguous(), entries.contiguous())
        self._threads = threads
