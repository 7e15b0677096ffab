"""Predictions from the nearest rows alone: variances, which are upper bounds, and leave-one-out residuals."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import Tensor

from halfgp.hyperparameters import Hyperparameters
from halfgp.planner import LOCAL_BYTES
from halfgp.problem import Problem

TREE_FEATURES = 4  # up to so many a tree beats looking at every row
PER_FEATURE, MOST = 16, 128  # neighbours where nobody says how many
CALIBRATION_ROWS = 1024
SMALLEST_SCALE = 1e-3
KNOWN = 0.9  # of the rows that a scale was learned on: beyond their variances it says little


@dataclass(frozen=True)
class Shrinkage:
    """What rows beyond the neighbours take from local variances, as far as it is known.

    Attributes:
        scale: in (0, 1], what variances are multiplied by where the nearest rows explain all of the prior's.
            Where they explain nothing, neither do the others, and it is 1.
        known: the variance up to which it was learned. Above it, as beyond the rows, what is taken away falls
            off with the inverse: kernels with a linear part have priors there that no variance comes near.
    """

    scale: float = 1.0
    known: float = math.inf

    def __call__(self, variance: Tensor, prior: Tensor) -> Tensor:
        """Variances (m,), of which the priors are given, without what the other rows take."""
        tiny = torch.finfo(torch.float64).tiny
        left = (variance / prior.clamp_min(tiny)).clamp_max(1.0)
        beyond = (variance / max(self.known, tiny)).clamp_min(1.0)
        return variance - (1.0 - self.scale) * variance * (1.0 - left) / beyond.square()

    def scaled(self, scale: float) -> Shrinkage:
        """Of variances times a number."""
        return replace(self, known=self.known * scale)


NONE = Shrinkage()


@dataclass(frozen=True)
class LocalPosterior:
    """The posterior of f at a point, given only the k rows that take most of its variance, each by itself.

    Row r takes k(x, r)² / (k(r, r) + noise). For stationary kernels those are the nearest rows. With a linear
    part the covariance alone is largest with rows far out, which say little about what varies quickly.

    More rows can only lower a conditional variance, so that this one is never too small; where the
    function is smooth and the noise small, far rows still say much, and it is too large. By how much is
    known on average: the diagonal of (K + noise)^-1 holds the inverse variances of every row given all the
    others, and its trace is cheap to estimate (`calibrated`).

    Attributes:
        problem: rows.
        hyperparameters: where.
        neighbours: k.
        tree: over scaled features where those are few; otherwise every row is looked at.
        sizes: (n,) deviations of the rows' targets, float32, for looking at every row.
        shrinkage: what the other rows take away.

    O(k³ + k² f) time a point and the search; memory in chunks.
    """

    problem: Problem
    hyperparameters: Hyperparameters
    neighbours: int
    tree: cKDTree | None
    sizes: Tensor
    shrinkage: Shrinkage = NONE

    @classmethod
    @torch.no_grad()
    def build(
        cls,
        problem: Problem,
        hyperparameters: Hyperparameters,
        neighbours: int | None,
        shrinkage: Shrinkage = NONE,
    ) -> LocalPosterior:
        """Plant the tree, if there is to be one."""
        leaves = hyperparameters.kernel.program().leaves
        tree = None
        if len(leaves) == 1 and leaves[0].is_stationary:
            z = leaves[0].scaled(problem.x)
            tree = cKDTree(z.numpy()) if z.shape[1] <= TREE_FEATURES else None
        wanted = min(MOST, PER_FEATURE * problem.x.shape[1]) if neighbours is None else neighbours
        noise = hyperparameters.diagonal_noise(problem.fixed_noise)
        sizes = (hyperparameters.kernel.diagonal(problem.x) + noise).sqrt().float()
        sizes.clamp_min_(torch.finfo(torch.float32).tiny)
        return cls(problem, hyperparameters, min(wanted, problem.rows), tree, sizes, shrinkage)

    def calibrated(self, inverse_trace: float, nugget: Tensor, seed: int) -> LocalPosterior:
        """The same, scaled so that leave-one-out precisions agree on average with those of K.

        Args:
            inverse_trace: an estimate of the trace of (K + noise)^-1.
            nugget: noise on the diagonal, () or (n,).
            seed: of the rows that are looked at.
        """
        rows = self.problem.some_rows(CALIBRATION_ROWS, seed)
        plain = replace(self, shrinkage=NONE)
        variance, _ = plain(self.problem.x[rows], leave_out=rows)
        noise = nugget[rows] if nugget.ndim else nugget
        wanted = inverse_trace / self.problem.rows
        prior, known = self._prior(self.problem.x[rows]), float(variance.quantile(KNOWN))

        def precision(scale: float) -> float:
            return float((1.0 / (Shrinkage(scale, known)(variance, prior) + noise)).mean())

        if precision(1.0) >= wanted:
            return plain
        low, high = math.log(SMALLEST_SCALE), 0.0
        for _ in range(40):  # bisection: the mean precision falls with the scale
            middle = 0.5 * (low + high)
            low, high = (middle, high) if precision(math.exp(middle)) > wanted else (low, middle)
        return replace(self, shrinkage=Shrinkage(math.exp(high), known))

    def __call__(self, x: Tensor, leave_out: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Variances (m,) at points (m, d), and how far they may be off (m,); both float64.

        The error is the larger of what the shrinkage took away and what the farther half of the rows did.

        Args:
            x: points.
            leave_out: (m,) a row that each point must not see: itself, in leave-one-out.
        """
        variance, gap = torch.empty(len(x), dtype=torch.float64), torch.empty(len(x), dtype=torch.float64)
        for some in self._chunks(len(x)):
            out = None if leave_out is None else leave_out[some]
            variance[some], gap[some] = self._conditional(x[some], self._nearest(x[some], out))
        shrunk = self.shrinkage(variance, self._prior(x))
        return shrunk, torch.maximum(gap * self.shrinkage.scale, variance - shrunk)

    @torch.no_grad()
    def _prior(self, x: Tensor) -> Tensor:
        """Variances (m,) that nothing has been taken from."""
        return self.hyperparameters.kernel.diagonal(x, white=False)

    def _chunks(self, points: int) -> Iterator[slice]:
        """Points at a time."""
        k = self.neighbours
        size = max(1, LOCAL_BYTES // (8 * (k * k * 4 + self.problem.rows * (self.tree is None))))
        return (slice(start, start + size) for start in range(0, points, size))

    def _nearest(self, x: Tensor, leave_out: Tensor | None) -> Tensor:
        """Rows (m, k), nearest first."""
        k = self.neighbours
        if leave_out is None:
            return self._search(x, k)
        # One more than wanted, for the row itself is among them; it goes to the end, and is cut off.
        more = self._search(x, min(k + 1, self.problem.rows))
        own = more == leave_out[:, None]
        order = torch.argsort(own.to(torch.int8), dim=1, stable=True)
        return more.gather(1, order)[:, : more.shape[1] - 1]

    @torch.no_grad()
    def _search(self, x: Tensor, k: int) -> Tensor:
        if self.tree is not None:
            leaf = self.hyperparameters.kernel.program().leaves[0]
            workers = self.problem.threads or torch.get_num_threads()
            z = leaf.scaled(x).numpy()
            found = self.tree.query(z, k=np.arange(1, k + 1), workers=workers)[1]
            return torch.from_numpy(found)
        cross = self.problem.cross(self.hyperparameters, x, "single").to_dense()
        return torch.topk(torch.as_tensor(cross).abs() / self.sizes, k, dim=1).indices

    def leave_one_out(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Residuals (m, q) of the targets of rows (m,), each given its neighbours, and variances (m,)."""
        centred = self.hyperparameters.centred(self.problem.y)
        residuals, variances = torch.empty_like(centred[rows]), centred.new_empty(len(rows))
        for some in self._chunks(len(rows)):
            x, own = self.problem.x[rows[some]], rows[some]
            near = self._nearest(x, own)
            prior, factor, white = self._conditioned(x, near)
            targets = torch.linalg.solve_triangular(factor, centred[near], upper=False)
            residuals[some] = centred[own] - (white[:, :, None] * targets).sum(dim=1)
            noise = self._nugget(own[:, None])[:, 0]
            latent = (prior - white.square().sum(dim=1)).clamp_min(0.0)
            variances[some] = self.shrinkage(latent, prior) + noise
        return residuals, variances

    def _conditional(self, x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Variances of f at points (m, d) given rows (m, k), and what their second half took away."""
        prior, _, white = self._conditioned(x, rows)
        shares, half = white.square(), rows.shape[1] // 2
        gap = shares[:, half:].sum(dim=1) if rows.shape[1] else prior
        variance = prior - shares.sum(dim=1)
        # Round-off below zero is that of the subtraction.
        return variance.clamp_min(0.0), gap

    @torch.no_grad()
    def _conditioned(self, x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Prior variances (m,) of points (m, d), the factors L (m, k, k) of rows (m, k), and L^-1 c (m, k).

        c are the covariances of a point with its rows; the squares are what each takes from the variance.
        """
        prior = self.hyperparameters.kernel.diagonal(x, white=False)
        inner, cross = self._covariances(x, rows)
        own = self.hyperparameters.kernel.diagonal(self.problem.x[rows.reshape(-1)], white=False)
        inner.diagonal(dim1=1, dim2=2).copy_(own.reshape(rows.shape) + self._nugget(rows))
        factor = torch.linalg.cholesky(inner)
        white = torch.linalg.solve_triangular(factor, cross[:, :, None], upper=False)[:, :, 0]
        return prior, factor, white

    @torch.no_grad()
    def _nugget(self, rows: Tensor) -> Tensor:
        """Noise and White of rows (m, k)."""
        kernel, x = self.hyperparameters.kernel, self.problem.x[rows.reshape(-1)]
        white = (kernel.diagonal(x) - kernel.diagonal(x, white=False)).reshape(rows.shape)
        noise = self.hyperparameters.diagonal_noise(self.problem.fixed_noise)
        return white + (noise[rows] if noise.ndim else noise)

    def _covariances(self, x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Covariances among the rows (m, k, k), and of the point with them (m, k)."""
        program = self.hyperparameters.kernel.program()
        m, k = rows.shape
        inner, cross = [], []
        for leaf in program.leaves:
            z = leaf.scaled(self.problem.x[rows.reshape(-1)])
            z = z.reshape(m, k, z.shape[1])
            own = leaf.scaled(x)[:, None]
            if not leaf.is_stationary:
                inner.append(z @ z.mT)
                cross.append((z @ own.mT)[:, :, 0])
                continue
            z = z - own  # relative to the point: neighbours are close, so nothing cancels
            norms = z.square().sum(dim=2)
            squared = torch.baddbmm(norms[:, None, :], z, z.mT, alpha=-2.0).add_(norms[:, :, None])
            inner.append(leaf.covariance(squared.clamp_min_(0.0)))
            cross.append(leaf.covariance(norms))
        # A kernel without leaves is one number, seen many times.
        return program.evaluate(inner, (m, k, k)).clone(), program.evaluate(cross, (m, k))
