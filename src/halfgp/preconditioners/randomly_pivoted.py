"""Randomly pivoted Cholesky in blocks, with the rejection that makes a block as good as single pivots."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from halfgp.preconditioners.base import LowRankPlusNoise, check_rank
from halfgp.preconditioners.partial_cholesky import Doubles, PivotRule, partial_cholesky

LARGEST_BLOCK = 64


@dataclass(frozen=True)
class RandomlyPivotedCholesky:
    """Partial Cholesky of K with pivots drawn in proportion to the remaining variance, in blocks.

    A block of candidates is drawn at once; each is kept with the probability that its variance survived
    the candidates kept before it. So pivots are distributed exactly as if they had been drawn one by one
    (Epperly, Tropp and Webber, "Embrace rejection"), while rows and updates go by matrix products. Robust
    where outliers mislead the greedy rule.

    Attributes:
        rank: how many pivots; None as in `PivotedCholesky`.
        seed: of the draws.
        noise: as in `PivotedCholesky`.

    Building evaluates the rows of all candidates, a little over `rank`, in O(n rank²) time and O(n rank)
    memory in single.
    """

    rank: int | None = None
    seed: int = 0
    noise: float | None = None

    def __post_init__(self) -> None:
        check_rank(self.rank)

    def build(self, operator: object) -> LowRankPlusNoise:
        """The preconditioner of a square operator with noise."""
        block = LARGEST_BLOCK if self.rank is None else max(1, min(LARGEST_BLOCK, self.rank // 4))
        return partial_cholesky(
            operator, self.rank, self.noise, _Random(block, self.seed)
        ).low_rank_plus_noise()


class _Random(PivotRule):
    """In the order drawn, each with the probability that its variance survived."""

    def __init__(self, block: int, seed: int) -> None:
        self._block = block
        self._generator = torch.Generator().manual_seed(seed)

    def propose(self, diagonal: Tensor) -> Tensor:
        """Rows drawn in proportion to their variance, with replacement; a second draw of one is rejected."""
        cumulative = diagonal.cumsum(0)
        points = torch.rand(self._block, generator=self._generator, dtype=torch.float64)
        points = points.to(diagonal.device) * cumulative[-1]
        drawn = torch.searchsorted(cumulative, points).clamp_max(len(diagonal) - 1).tolist()
        return torch.tensor(list(dict.fromkeys(drawn)), device=diagonal.device)

    def accepts(self, remaining: Doubles, drawn: Doubles, largest: float, i: int) -> bool:
        """A draw against the share of its variance that is left."""
        chance = float(torch.rand((), generator=self._generator, dtype=torch.float64))
        return chance * float(drawn[i]) < float(remaining[i])

    def order(self, remaining: Doubles, seen: set[int]) -> int | None:
        """As drawn."""
        return len(seen) if len(seen) < len(remaining) else None
