"""Alternating projection for very many rows: solve one block exactly, the one with the largest residual."""

from __future__ import annotations

import math
import warnings
from typing import Any

import torch
from torch import Tensor

from halfgp.data import ArrayLike, Vectors, as_vectors
from halfgp.errors import ConvergenceWarning, InputError
from halfgp.operators.adapters import as_operator
from halfgp.operators.base import Operator
from halfgp.precision import Precision
from halfgp.solvers.advice import advice
from halfgp.solvers.base import SolveResult, Status, check_tolerance
from halfgp.solvers.best import Best
from halfgp.solvers.ladder import PROGRESS, Ladder

BLOCK = 2048  # rows: larger blocks take fewer passes until their Cholesky factor costs as much as their rows
FACTOR_MEMORY = 2**31  # bytes for factors of blocks that are kept
ROW_MEMORY = 2**28  # bytes for rows of K that are held at once


def alternating_projection(
    A: Any,
    b: ArrayLike,
    *,
    block_size: int | None = None,
    tol: float = 1e-1,
    max_passes: int = 50,
    precision: str | Precision = "single",
    seed: int = 0,
) -> SolveResult:
    """Solve A x = b by exact solves on blocks of rows, the block with the largest residual first.

    Each step takes the rows of one block, m/n of a pass, so that the solution improves long before
    conjugate gradients would have finished its first few passes. It suits loose tolerances at sizes where
    a pass takes minutes; below a residual of some hundredths `cg` takes fewer passes.

    Args:
        A: as for `cg`, with rows: not a callable.
        b: (n,) or (n, t).
        block_size: m; None is 2048.
        tol: largest true relative residual of any column.
        max_passes: in total, a block counting m/n.
        precision: of the rows; factors are in single, or double where single finds a block indefinite.
        seed: of the random partition into blocks.

    Returns:
        A `SolveResult` whose iterations are steps. Memory O(m²) a block, kept while all fit 2 GiB.
    """
    check_tolerance(tol, max_passes)
    if block_size is not None and block_size < 1:
        raise InputError(f"`block_size` must be at least 1, or None; got {block_size}.")
    system = as_operator(A)
    if not system.has_rows:
        raise InputError("`A` must have rows for a block method; a callable has none. Use `cg`.")
    if system.is_shared:
        raise InputError("`A` must hold all of its rows for a block method; got a share of them. Use `cg`.")
    vectors = as_vectors(b, "b", system.rows_held, system.device, float("inf"))
    with torch.no_grad():
        solve = _Projection(Ladder(system, precision), vectors.values, tol, seed, block_size)
        solve.run(max_passes)
        result = solve.result(vectors)
    if not result.converged:
        warnings.warn(advice(result, None), ConvergenceWarning, stacklevel=2)
    return result


class Blocks:
    """A random partition of the rows, factors of its diagonal blocks, and products with its columns."""

    def __init__(self, system: Operator, size: int, seed: int) -> None:
        order = torch.randperm(system.size, generator=torch.Generator().manual_seed(seed))
        self._system = system
        self.members = [part.to(system.device) for part in torch.split(order, size)]
        self._label = torch.empty(system.size, dtype=torch.long, device=system.device)
        for i, part in enumerate(self.members):
            self._label[part] = i
        self._factors: dict[int, Tensor] = {}
        self._keep = 4 * size * system.size <= FACTOR_MEMORY

    def norms(self, r: Tensor) -> Tensor:
        """Squared norms (blocks,) of r (n, t) over each block, summed over columns."""
        sums = torch.zeros(len(self.members), dtype=torch.float64, device=r.device)
        return sums.index_add_(0, self._label, r.square().sum(dim=1))

    def project(self, i: int, r: Tensor) -> tuple[Tensor, Tensor]:
        """The exact solution (m, t) on block i for residual r (n, t), and A times it (n, t)."""
        part = self.members[i]
        factor = self._factors.get(i)
        chunk = max(1, ROW_MEMORY // (8 * self._system.size))
        if factor is None:
            block = torch.cat([self._system.rows(piece)[:, part] for piece in torch.split(part, chunk)])
            factor = _cholesky(block)
            if self._keep:
                self._factors[i] = factor
        step = torch.cholesky_solve(r[part].to(factor.dtype), factor)
        image = torch.zeros(r.shape[1], r.shape[0], dtype=torch.float64, device=r.device).T
        for piece, values in zip(torch.split(part, chunk), torch.split(step, chunk), strict=True):
            rows = self._system.rows(piece)
            image += rows.T @ values.to(rows.dtype)
        return step.double(), image


def _cholesky(block: Tensor) -> Tensor:
    """The lower factor in single, or in double where single finds the block indefinite."""
    for dtype in (torch.float32, torch.float64):
        factor, info = torch.linalg.cholesky_ex(block.to(dtype))
        if int(info) == 0:
            return torch.as_tensor(factor)
    raise InputError("A diagonal block of `A` is not positive definite. Add noise to the diagonal.")


class _Projection:
    """The iteration, true looks at it, and why it ended."""

    def __init__(self, ladder: Ladder, b: Tensor, tol: float, seed: int, block_size: int | None) -> None:
        self.ladder = ladder
        self._best = Best(ladder, b, tol)
        self._blocks = Blocks(ladder.system, min(block_size or BLOCK, max(len(b), 1)), seed)
        self._x = torch.zeros_like(self._best.x)
        self._history: list[Tensor] = []
        self._share = 0.0  # of passes taken by blocks
        self._ending = Status.MAX_ITERATIONS

    def run(self, max_passes: int) -> None:
        """Until all columns are within the tolerance, passes are used up, or a look shows no progress."""
        best = self._best
        r, known = best.r.clone(), best.relative
        while bool(best.failing.any()) and self._share < max_passes:
            before = best.relative.clone()
            while bool((known > best.tol).any()) and self._share < max_passes:
                known = self._step(r)
            r, known = best.look(self._x)
            if self._share < max_passes and bool((best.relative > PROGRESS * before)[best.failing].any()):
                self._ending = Status.STAGNATED
                break
        self.ladder.passes[self.ladder.name] += math.ceil(self._share)

    def _step(self, r: Tensor) -> Tensor:
        """Project the block with the largest residual, updating r; returns relative residuals (t,)."""
        i = int(self._blocks.norms(r).argmax())
        part = self._blocks.members[i]
        step, image = self._blocks.project(i, r)
        self._x[part] += step
        r -= image
        self._share += len(part) / len(r)
        self._history.append(self._best.size(r))
        return self._history[-1]

    def result(self, vectors: Vectors) -> SolveResult:
        """The outcome."""
        return self._best.result(vectors, self._ending, self._history)
