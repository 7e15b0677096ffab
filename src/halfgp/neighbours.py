"""Predictions from landmarks and the nearest rows alone: variances and leave-one-out residuals."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from halfgp.backends import get_backend
from halfgp.backends.conditionals import Conditionals, Neighbourhoods
from halfgp.errors import InputError
from halfgp.hyperparameters import Hyperparameters
from halfgp.nearest import NearestSearch, metric
from halfgp.planner import LOCAL_BYTES, LOCAL_LANDMARKS
from halfgp.precision import Precision
from halfgp.preconditioners.base import automatic_rank
from halfgp.preconditioners.partial_cholesky import partial_cholesky
from halfgp.preconditioners.pivoted_cholesky import LARGEST_BLOCK, Greedy
from halfgp.problem import Problem

PER_FEATURE, MOST = 16, 128  # neighbours where nobody says how many
LANDMARK_BYTES = 2**29  # while landmarks are picked


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
    """The posterior of f at a point, given landmarks and the k rows that are nearest to it.

    Landmarks, which pivoted Cholesky picks, say what is smooth and far, whatever the kernel; the nearest rows
    in the metric of its lengthscales what is near.

    More rows can only lower a conditional variance, so that this one is never too small. To shrink all of
    them by what they are too large on average, as models of before did, made those too small that were right.

    Attributes:
        problem: rows.
        hyperparameters: where.
        neighbours: k.
        landmarks: (r,) rows.
        coordinates: (n, f) of the rows in that metric.
        diagonal: (n,) variances of the rows' targets.
        lower: (r, r) Cholesky factor of K + noise on the landmarks.
        shrinkage: what the other rows take away, in models of before.

    O(k² (k + r + f) + r²) time a point and the search; memory in chunks.
    """

    problem: Problem
    hyperparameters: Hyperparameters
    neighbours: int
    landmarks: Tensor
    coordinates: Tensor
    diagonal: Tensor
    lower: Tensor
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
        """Pick landmarks, and factor K + noise on them.

        Raises:
            InputError: K + noise is not positive definite on them in double.
        """
        wanted = min(MOST, PER_FEATURE * problem.x.shape[1]) if neighbours is None else neighbours
        rank = min(LOCAL_LANDMARKS, automatic_rank(problem.rows, LANDMARK_BYTES))
        operator: Any = problem.operator(hyperparameters, "auto")
        landmarks = partial_cholesky(operator, rank, None, Greedy(LARGEST_BLOCK)).pivots
        inner = torch.as_tensor(operator.with_precision("double").rows(landmarks))[:, landmarks]
        lower, failed = torch.linalg.cholesky_ex(inner)
        if int(failed):
            raise InputError("K + noise is not positive definite in double. Raise `noise_floor`.")
        coordinates = metric(hyperparameters.kernel, problem.x)
        diagonal = hyperparameters.kernel.diagonal(problem.x) + hyperparameters.diagonal_noise(
            problem.fixed_noise
        )
        return cls(
            problem,
            hyperparameters,
            min(wanted, problem.rows),
            landmarks,
            coordinates,
            diagonal,
            lower,
            shrinkage,
        )

    def __call__(self, x: Tensor, leave_out: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Variances (m,) at points (m, d), and how far they may be off (m,); both float64.

        The error is the larger of what the shrinkage took away and what the farther half of the rows did.

        Args:
            x: points.
            leave_out: (m,) a row that each point must not see: itself, in leave-one-out.
        """
        variance, half = self._latent(x, leave_out), self._latent(x, leave_out, self.neighbours // 2)
        shrunk = self.shrinkage(variance, self._prior(x))
        gap = (half - variance).clamp_min(0.0)  # below zero it is round-off
        if self.neighbours < 2 or self.problem.rows < 2:
            gap = variance
        return shrunk, torch.maximum(gap * self.shrinkage.scale, variance - shrunk)

    def leave_one_out(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Residuals (m, q) of the targets of rows (m,), each given the others, and variances (m,)."""
        x = self.problem.x[rows]
        parts = [self._conditionals(x[some], rows[some]) for some in self._chunks(len(rows))]
        deviations = torch.cat([part.deviations for part in parts])
        residuals = torch.cat([part.residuals for part in parts]) * deviations[:, None]
        prior, noise = self._prior(x), self.diagonal[rows] - self._prior(x)
        latent = (deviations.square() - noise).clamp_min(0.0)
        return residuals, self.shrinkage(latent, prior) + noise

    @torch.no_grad()
    def _prior(self, x: Tensor) -> Tensor:
        """Variances (m,) that nothing has been taken from."""
        return self.hyperparameters.kernel.diagonal(x, white=False)

    def _chunks(self, points: int) -> Iterator[slice]:
        """Points at a time: of each, its neighbours and what landmarks explain of them."""
        columns = len(self.landmarks) + self.problem.x.shape[1]
        size = max(1, LOCAL_BYTES // (16 * (self.neighbours + 1) * columns))
        return (slice(start, start + size) for start in range(0, points, size))

    def _latent(self, x: Tensor, leave_out: Tensor | None, k: int | None = None) -> Tensor:
        """Variances (m,) of f at points (m, d), given landmarks and the nearest rows."""
        found = torch.empty(len(x), dtype=torch.float64)
        for some in self._chunks(len(x)):
            out = None if leave_out is None else leave_out[some]
            part = self._conditionals(x[some], out, k)
            found[some] = part.deviations.square() - self._noise(x[some], out)
        return found.clamp_min_(0.0)  # round-off below zero is that of the subtraction

    def _noise(self, x: Tensor, own: Tensor | None) -> Tensor:
        """What variances (m,) have beside those of f, so that no small matrix is singular."""
        if own is not None:
            return self.diagonal[own] - self._prior(x)
        return (self.diagonal - self._prior(self.problem.x)).min().expand(len(x))

    def _conditionals(self, x: Tensor, own: Tensor | None, k: int | None = None) -> Conditionals:
        """Points (m, d), with noise, given landmarks and the nearest rows.

        A row that is a landmark has the other landmarks among its neighbours instead: it must not see itself.

        Args:
            x: points.
            own: (m,) the row that each is, which it must not see, and whose target it has; None for points
                that are no rows, and have no targets.
            k: of the nearest rows; None for all that there are to be.
        """
        members = self._nearest(x, own, self.neighbours if k is None else k)
        if own is None:
            return self._given(x, None, members, explained=True)
        special = torch.isin(own, self.landmarks)
        found = self._given(x[~special], own[~special], members[~special], explained=True)
        if not bool(special.any()):
            return found
        others = self.landmarks.expand(int(special.sum()), -1)
        others = torch.where(others == own[special, None], -1, others)
        both = torch.cat([members[special], others], dim=1)
        alone = self._given(x[special], own[special], both, explained=False)
        residuals = found.residuals.new_empty(len(x), found.residuals.shape[1])
        deviations = found.deviations.new_empty(len(x))
        for which, part in ((~special, found), (special, alone)):
            residuals[which], deviations[which] = part.residuals, part.deviations
        return Conditionals(residuals, deviations, found.factor)

    def _nearest(self, x: Tensor, own: Tensor | None, k: int) -> Tensor:
        """Rows (m, k) that are no landmarks; -1 where there are fewer."""
        problem = self.problem
        other = torch.ones(problem.rows, dtype=torch.bool)
        other[self.landmarks] = False
        numbers = other.nonzero()[:, 0]
        if own is None:
            queries, at = metric(self.hyperparameters.kernel, x), torch.full((len(x),), -1)
        else:
            queries, at = self.coordinates[own], torch.where(other[own], torch.cumsum(other, 0)[own] - 1, -1)
        backend = get_backend(problem.backend, x.device)
        search = NearestSearch(self.coordinates[numbers], queries, at)
        found = backend.nearest(search, min(k, len(numbers)), threads=problem.threads)
        return torch.where(found >= 0, numbers[found.clamp_min(0)] if len(numbers) else found, -1)

    @torch.no_grad()
    def _given(self, x: Tensor, own: Tensor | None, members: Tensor, explained: bool) -> Conditionals:
        """Points (m, d) given members (m, k), and landmarks first where they are to explain."""
        problem, m = self.problem, len(x)
        used, at = torch.unique(members, return_inverse=True)
        absent = int((used < 0).sum())  # -1 comes first
        used, at = used[absent:], torch.where(members >= 0, at - absent, -1)
        targets = self.hyperparameters.centred(problem.y)
        wanted = targets[own] if own is not None else targets.new_zeros(m, targets.shape[1])
        points, values = torch.cat([problem.x[used], x]), torch.cat([targets[used], wanted])
        known = None
        if explained and len(self.landmarks):
            cross = problem.cross(self.hyperparameters, points, "double", rows=self.landmarks).to_dense()
            known = torch.linalg.solve_triangular(self.lower, torch.as_tensor(cross).T, upper=False).T
            known = known.contiguous()
            white = torch.linalg.solve_triangular(self.lower, targets[self.landmarks], upper=False)
            values = values - known @ white
        of = Neighbourhoods(
            points,
            torch.arange(len(used), len(points)),
            at,
            torch.cat([self.diagonal[used], self._prior(x) + self._noise(x, own)]),
            values,
            known,
        )
        kernel, double = self.hyperparameters.kernel, Precision.resolve("double")
        backend = get_backend(problem.backend, x.device)
        found = backend.conditionals(kernel, of, precision=double, threads=problem.threads)
        if bool(found.deviations.isnan().any()):
            raise InputError("K + noise is not positive definite in double. Raise `noise_floor`.")
        return found
