"""Partial Cholesky factors from rows of K, a block of pivots at a time; the rule that picks them is given."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from halfgp.operators import Operator
from halfgp.precision import SINGLE
from halfgp.preconditioners.base import (
    MEMORY,
    LowRankPlusNoise,
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


@dataclass(frozen=True)
class PartialCholesky:
    """K + D, and the first columns of a pivoted Cholesky factor L of K.

    Attributes:
        source: that rows came from.
        noise: D of the rows held here, () or (m,).
        factor: L' (k, m), float32.
        pivots: (k,) rows.
        remaining: (n,) diagonal of K - L L', of all rows, float64.
        traces: (k,) of K - L L' after every pivot; those of one block are the same.
        evaluated: rows of K that it cost.
    """

    source: Operator
    noise: Tensor
    factor: Tensor
    pivots: Tensor
    remaining: Tensor
    traces: Tensor
    evaluated: int

    def low_rank_plus_noise(self) -> LowRankPlusNoise:
        """L L' + D as a preconditioner."""
        left = float(self.remaining.sum())
        return low_rank_plus_noise(self.factor.T, self.noise, self.source, left, self.evaluated)


def partial_cholesky(
    operator: object,
    rank: int | None,
    own_noise: float | None,
    rule: PivotRule,
    *,
    floor_of_noise: bool = False,
    earlier: PartialCholesky | None = None,
) -> PartialCholesky:
    """Factor in single, by blocks, until the rank, the noise or round-off is reached.

    Args:
        operator: square, with rows and noise.
        rank: None is automatic, and then ends once what remains of the trace is below the noise.
        own_noise: what of the diagonal is noise, if the operator does not say.
        rule: picks pivots.
        floor_of_noise: end there with a rank that is given, too.
        earlier: of lower rank, of the same matrix, to go on from.
    """
    source, noise, here = kernel_part(operator, own_noise)
    diagonal = source.gathered(here)  # of all rows: every share picks the same pivots
    n = len(diagonal)
    wanted = automatic_rank(n, MEMORY) if rank is None else min(rank, n)
    least = source.least_nugget if own_noise is None else own_noise
    goal = least if rank is None or floor_of_noise else 0.0
    factor = torch.empty(wanted, len(here), dtype=torch.float32, device=diagonal.device)
    largest = float(diagonal.max()) if n else 0.0
    # Variance below this is round-off: K has no more rank in single.
    floor = SINGLE.eps * math.sqrt(max(n, 1)) * largest
    # Covariance below this is nothing beside that, but products of such are denormal, ten times as slow.
    nothing = SINGLE.eps**2 * largest
    k = evaluated = 0
    pivots = torch.empty(wanted, dtype=torch.long, device=diagonal.device)
    traces = torch.empty(wanted, dtype=torch.float64)
    if earlier is not None:
        k, evaluated, diagonal = len(earlier.pivots), earlier.evaluated, earlier.remaining.clone()
        factor[:k], pivots[:k], traces[:k] = earlier.factor, earlier.pivots, earlier.traces
    while k < wanted and (largest := float(diagonal.max())) > floor and float(diagonal.sum()) > goal:
        candidates = rule.propose(diagonal)
        rows = kernel_rows(source, noise, candidates).float()  # single is what K's rows are computed in
        evaluated += len(candidates)
        known = source.at(factor[:k].T, candidates)
        rows = torch.hardshrink(rows.addmm_(known, factor[:k], alpha=-1.0), nothing)
        block = source.at(rows.T, candidates).T.double()
        kept, triangle = _select(block, rule, largest, wanted - k, floor)
        if not kept:
            # The diagonal promised what the rows do not hold: round-off.
            diagonal[candidates] = 0.0
            continue
        some = torch.tensor(kept, device=rows.device)
        # From the right of the transposed, which is how LAPACK sees rows: nothing is turned over.
        solved = torch.linalg.solve_triangular(triangle.float().T, rows[some].T, upper=True, left=False).T
        added = factor[k : k + len(kept)].copy_(solved)
        diagonal.sub_(source.gathered(added.square().sum(dim=0))).clamp_min_(0.0)
        diagonal[candidates[some]] = 0.0
        pivots[k : k + len(kept)], traces[k : k + len(kept)] = candidates[some], diagonal.sum()
        k += len(kept)
    return PartialCholesky(source, noise, factor[:k], pivots[:k], diagonal, traces[:k], evaluated)


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
