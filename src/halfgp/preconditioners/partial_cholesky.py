"""Partial Cholesky factors from rows of K, a block of pivots at a time; the rule that picks them is given."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np
import torch
from numpy.typing import NDArray
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

Doubles = NDArray[np.float64]


class PivotRule(ABC):
    """Which rows come next."""

    @abstractmethod
    def propose(self, diagonal: Tensor) -> Tensor:
        """Distinct candidates, given the remaining variance (n,)."""

    @abstractmethod
    def accepts(self, remaining: Doubles, drawn: Doubles, largest: float, i: int) -> bool:
        """Whether candidate i is taken: its variance now, when it was proposed, and the largest anywhere."""

    @abstractmethod
    def order(self, remaining: Doubles, seen: set[int]) -> int | None:
        """The candidate to be considered next, none of those seen, or None."""


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
    largest = float(diagonal.max()) if n else 0.0
    # Variance below this is round-off: K has no more rank in single.
    floor = SINGLE.eps * math.sqrt(max(n, 1)) * largest
    # Covariance below this is nothing beside that, but products of such are denormal, ten times as slow.
    nothing = SINGLE.eps**2 * largest
    k = evaluated = 0
    while k < wanted and (largest := float(diagonal.max())) > floor and float(diagonal.sum()) > goal:
        candidates = rule.propose(diagonal)
        rows = kernel_rows(source, noise, candidates).float()  # single is what K's rows are computed in
        evaluated += len(candidates)
        rows = torch.hardshrink(rows.addmm_(factor[:k, candidates].T, factor[:k], alpha=-1.0), nothing)
        kept, triangle = _select(rows[:, candidates].double(), rule, largest, wanted - k, floor)
        if not kept:
            # The diagonal promised what the rows do not hold: round-off.
            diagonal[candidates] = 0.0
            continue
        # From the right of the transposed, which is how LAPACK sees rows: nothing is turned over.
        solved = torch.linalg.solve_triangular(triangle.float().T, rows[kept].T, upper=True, left=False).T
        block = factor[k : k + len(kept)].copy_(solved)
        diagonal.sub_(block.square().sum(dim=0)).clamp_min_(0.0)
        diagonal[candidates[kept]] = 0.0
        k += len(kept)
    return low_rank_plus_noise(factor[:k].T, noise, source.gram, float(diagonal.sum()), evaluated)


def _select(
    block: Tensor, rule: PivotRule, largest: float, limit: int, floor: float
) -> tuple[list[int], Tensor]:
    """Which candidates become pivots, and the Cholesky factor (k, k) of their covariance.

    In NumPy, whose calls cost a fraction of torch's: there are many and the arrays are tiny.

    Args:
        block: (b, b) remaining covariance of the candidates, float64.
        rule: picks.
        largest: remaining variance of any row.
        limit: the most to take.
        floor: variance that is round-off.
    """
    covariance: Doubles = block.cpu().numpy()
    drawn = covariance.diagonal().copy()
    remaining = drawn.copy()
    columns = np.zeros_like(covariance)
    kept: list[int] = []
    seen: set[int] = set()
    while len(kept) < limit and (i := rule.order(remaining, seen)) is not None:
        seen.add(i)
        if remaining[i] <= floor or not rule.accepts(remaining, drawn, largest, i):
            continue
        k = len(kept)
        columns[k] = (covariance[i] - columns[:k, i] @ columns[:k]) / math.sqrt(remaining[i])
        remaining -= columns[k] ** 2
        kept.append(i)
    return kept, torch.from_numpy(np.tril(columns[: len(kept), kept].T)).to(block.device)
