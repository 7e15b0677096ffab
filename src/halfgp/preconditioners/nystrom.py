"""Nyström's approximation from rows drawn uniformly."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from halfgp.precision import DOUBLE, SINGLE
from halfgp.preconditioners.base import (
    MEMORY,
    LowRankPlusNoise,
    automatic_rank,
    check_rank,
    kernel_part,
    kernel_rows,
    low_rank_plus_noise,
)


@dataclass(frozen=True)
class Nystrom:
    """K_nS (K_SS)^-1 K_Sn over a uniform sample S of the points: one batch of rows, no sequential pivots.

    Attributes:
        rank: size of the sample; None takes √(2.5 n), or less where memory forbids it.
        seed: of the sample.
        noise: as in `PivotedCholesky`.

    Building evaluates `rank` rows at once, in O(n rank²) time and O(n rank) memory, in double.
    """

    rank: int | None = None
    seed: int = 0
    noise: float | None = None

    def __post_init__(self) -> None:
        check_rank(self.rank)

    def build(self, operator: object) -> LowRankPlusNoise:
        """The preconditioner of a square operator with noise."""
        source, noise, diagonal = kernel_part(operator, self.noise)
        n = source.size
        rank = automatic_rank(n, MEMORY) if self.rank is None else min(self.rank, n)
        sample = torch.randperm(n, generator=torch.Generator().manual_seed(self.seed))[:rank]
        sample = sample.to(diagonal.device)
        rows = kernel_rows(source, noise, sample).double()
        factor = _inverse_root(source.at(rows.T, sample).T) @ rows
        remaining = source.total((diagonal - factor.square().sum(dim=0)).clamp_min(0.0).sum())
        return low_rank_plus_noise(factor.T, noise, source, float(remaining), rank)


def _inverse_root(block: Tensor) -> Tensor:
    """R with R' R the pseudo-inverse of a block (k, k): repeated points make it singular."""
    values, vectors = torch.linalg.eigh(block)
    if not len(values):
        return block
    keep = values > (SINGLE.eps + DOUBLE.eps) * math.sqrt(len(values)) * values.abs().max()
    root: Tensor = (vectors[:, keep] / values[keep].sqrt()).T
    return root
