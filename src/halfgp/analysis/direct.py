"""The direct route that fails: Woodbury solves in half precision with growing rank, the paper's Fig. 3."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from halfgp.operators.adapters import as_operator
from halfgp.operators.base import Operator, column_major
from halfgp.precision import DOUBLE, HALF, SINGLE, Format
from halfgp.solvers.recurrence import rounded


@dataclass(frozen=True)
class DirectRoute:
    """Residuals of direct solves by rank.

    Attributes:
        ranks: of the pivoted Cholesky factor, as far as the format could take it.
        residuals: true relative residuals |b - A x| / |b|; inf where the solve overflowed.
        format: the name of the format.
    """

    ranks: tuple[int, ...]
    residuals: tuple[float, ...]
    format: str


def direct_route(operator: Any, b: Tensor, ranks: Sequence[int], fmt: Format = HALF) -> DirectRoute:
    """Solve (K + σ² I) x = b by Eq. 6 of the paper with L of each rank, everything rounded to a format.

    σ^-2 w - σ^-4 L (I + σ^-2 L' L)^-1 L' w, the inner system factorised in single at least, as the paper
    does for want of a half LAPACK; all else, the factor included, is rounded to `fmt`. Even exact arithmetic
    would leave the residual of the missing rank; here round-off is added that grows with the rank.

    Args:
        operator: a `KernelOperator` with constant noise.
        b: (n,), float64.
        ranks: increasing.
        fmt: the format.
    """
    system = as_operator(operator)
    wide = system.with_precision("double")
    noise = float(system.nugget.max())
    factor = _pivoted_cholesky(wide, noise, max(ranks), fmt)
    norm = float(b.norm())
    residuals = []
    for rank in ranks:
        x = _woodbury(factor[:rank], noise, b.double(), fmt)
        finite = bool(x.isfinite().all())
        r = b.double() - wide.matmul(column_major(x[:, None].double()))[:, 0] if finite else x
        residuals.append(float(r.norm()) / norm if finite else math.inf)
    return DirectRoute(tuple(min(rank, len(factor)) for rank in ranks), tuple(residuals), fmt.name)


def _pivoted_cholesky(system: Operator, noise: float, rank: int, fmt: Format) -> Tensor:
    """Rows of the factor (k, n) with every operation rounded; shorter where variance ran out."""
    diagonal = rounded(system.diagonal().double() - noise, fmt)
    factor = torch.zeros(rank, system.size, dtype=torch.float64)
    for k in range(rank):
        pivot = int(diagonal.argmax())
        height = float(diagonal[pivot])
        if not height > 0.0:
            return factor[:k]
        row = system.rows(torch.tensor([pivot]))[0].double()
        row[pivot] -= noise
        row = rounded(row, fmt)
        for j in range(k):  # one rounding a term, as a loop in the format would have
            row = rounded(row - rounded(factor[j] * factor[j, pivot], fmt), fmt)
        row = rounded(row / math.sqrt(height), fmt)
        factor[k] = row
        diagonal = rounded(diagonal - rounded(row.square(), fmt), fmt)
        diagonal[pivot] = 0.0
    return factor


def _woodbury(factor: Tensor, noise: float, b: Tensor, fmt: Format) -> Tensor:
    """Eq. 6 with every product rounded to the format; sums and the inner solve are in single at least."""
    wide = DOUBLE.dtype if fmt == DOUBLE else SINGLE.dtype  # of sums: nobody has a LAPACK in 16 bits
    inverse = float(rounded(torch.tensor(1.0 / noise, dtype=torch.float64), fmt))
    w = rounded(b, fmt)
    inner = rounded(inverse * rounded((factor.to(wide) @ factor.to(wide).T).double(), fmt), fmt)
    inner = inner + torch.eye(len(factor), dtype=torch.float64)
    if not bool(inner.isfinite().all()):
        return torch.full_like(b, torch.inf)
    right = rounded((factor.to(wide) @ w.to(wide)).double(), fmt)
    solved = rounded(torch.linalg.solve(inner.to(wide), right.to(wide)).double(), fmt)
    second = rounded(rounded((factor.T.to(wide) @ solved.to(wide)).double(), fmt) * inverse, fmt)
    return rounded(rounded(w - second, fmt) * inverse, fmt)
