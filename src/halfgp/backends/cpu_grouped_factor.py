"""The factor of groups of rows, by the CPU engine."""

from __future__ import annotations

import torch

from halfgp import _cpu
from halfgp.backends.cpu_conditionals import described_in
from halfgp.backends.cpu_factor import CpuFactor
from halfgp.backends.grouped_factor import GroupedRows
from halfgp.kernels import Kernel


class CpuGroupedFactor(CpuFactor):
    """A block for each group, so that either product goes by several threads, to the same bits."""

    def __init__(
        self, kernel: Kernel, of: GroupedRows, dtype: torch.dtype, instruction_set: str, threads: int
    ) -> None:
        program = kernel.detached().program()
        features = [leaf.coordinates(of.x) for leaf in program.leaves]
        kind = _cpu.GroupedFactor32 if dtype == torch.float32 else _cpu.GroupedFactor64
        self._factor: _cpu.GroupedFactor64 = kind(
            instruction_set,
            described_in("double", program, features),
            features,
            of.diagonal.contiguous(),
            of.explained.contiguous(),
            of.groups.starts.contiguous(),
            of.groups.member_starts.contiguous(),
            of.groups.members.contiguous(),
            threads,
        )
        self._threads = threads

    @property
    def log_pivots(self) -> float:
        """Of all rows of its groups."""
        return self._factor.log_pivots

    @property
    def indefinite(self) -> int:
        """Rows that landmarks explain to nothing."""
        return self._factor.indefinite
