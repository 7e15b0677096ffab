"""Partial Cholesky factors from rows of K, a block of pivots at a time; the rule that picks them is given."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from halfgp.precision import SINGLE
from halfgp.preconditioners.base import (
    MEMORY,
    LowRankPlusNoise,
    RowSource,
    automatic_rank,
    kernel_part,
    kernel_rows,
    low_rank_plus_noise,
)


class PivotRule(ABC):
    """Which rows come next."""

    @abstractmethod
    def propose(self, diagonal: Tensor) -> Tensor:
        """Distinct candidates, given the remaining variance (n,)."""

    @abstractmethod
    def accepts(self, remaining: Tensor, drawn: Tensor, largest: float, i: int) -> bool:
        """Whether candidate i is taken: its variance now, when it was proposed, and the largest anywhere."""

    @abstractmethod
    def order(self, remaining: Tensor, rejected: set[int]) -> int | None:
        """The candidate to be considered next, or None."""


def build_partial_cholesky(
    operator: RowSource, rank: int | None, own_noise: float | None, rule: PivotRule
) -> LowRankPlusNoise:
    """Factor in single, by blocks, until the rank, the noise or round-off is reached; then take it apart.

    Args:
        operator: square, with rows and noise.
        rank: None is automatic, and then ends once what remains of the trace is below the noise.
        own_noise: what of the diagonal is noise, if the operator does not say.
        rule: picks pivots.
    """
    source, noise, diagonal = kernel_part(operator, own_noise)
    n = len(diagonal)
    wanted = automatic_rank(n, MEMORY) if rank is None else min(rank, n)
    goal = float(noise.min()) if rank is None else 0.0
    factor = torch.empty(wanted, n, dtype=torch.float32, device=diagonal.device)
    # Variance below this is round-off: K has no more rank in single.
    floor = SINGLE.eps * math.sqrt(max(n, 1)) * float(diagonal.max()) if n else 0.0
    k = evaluated = 0
    while k < wanted and float(diagonal.max()) > floor and float(diagonal.sum()) > goal:
        candidates = rule.propose(diagonal)
        rows = kernel_rows(source, noise, candidates).float()  # single is what K's rows are computed in
        evaluated += len(candidates)
        rows -= factor[:k, candidates].T @ factor[:k]
        kept, triangle = _select(rows[:, candidates].double(), rule, float(diagonal.max()), wanted - k, floor)
        if not kept:
            # The diagonal promised what the rows do not hold: round-off.
            diagonal[candidates] = 0.0
            continue
        block = torch.linalg.solve_triangular(triangle.float(), rows[kept], upper=False)
        factor[k : k + len(kept)] = block
        diagonal.sub_(block.square().sum(dim=0)).clamp_min_(0.0)
        diagonal[candidates[kept]] = 0.0
        k += len(kept)
    return low_rank_plus_noise(factor[:k].T, noise, source.gram, float(diagonal.sum()), evaluated)


def _select(
    block: Tensor, rule: PivotRule, largest: float, limit: int, floor: float
) -> tuple[list[int], Tensor]:
    """Which candidates become pivots, and the Cholesky factor (k, k) of their covariance.

    Args:
        block: (b, b) remaining covariance of the candidates.
        rule: picks.
        largest: remaining variance of any row.
        limit: the most to take.
        floor: variance that is round-off.
    """
    drawn = block.diagonal().clone()
    remaining = drawn.clone()
    columns = torch.zeros_like(block)
    kept: list[int] = []
    seen: set[int] = set()
    while len(kept) < limit and (i := rule.order(remaining, seen)) is not None:
        seen.add(i)
        if float(remaining[i]) <= floor or not rule.accepts(remaining, drawn, largest, i):
            continue
        k = len(kept)
        columns[k] = (block[i] - columns[:k].T @ columns[:k, i]) / remaining[i].sqrt()
        remaining = remaining - columns[k].square()
        kept.append(i)
    return kept, columns[: len(kept), kept].T.tril()
