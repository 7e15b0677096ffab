"""Which of several hyperparameters predict best from all rows? A few rows, each left out, tell."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from halfgp.backends import get_backend
from halfgp.backends.conditionals import Neighbourhoods
from halfgp.choices import LOCAL_BYTES
from halfgp.hyperparameters import Hyperparameters
from halfgp.nearest import NearestSearch, along_a_curve, metric
from halfgp.precision import Precision
from halfgp.problem import Problem

ROWS = 1024  # that are looked at: of 512 a few with large residuals decided
LANDMARKS = 384  # that all of them are given, spread over all rows: what is far
NEIGHBOURS = 96  # that each is given: what is near


@dataclass(frozen=True, eq=False)
class Judgement:
    """How rows are predicted from the others.

    Attributes:
        log_densities: (m,) of the targets of each row, in their mean, with variances multiplied by `excess`.
        excess: the mean of squared residuals over their variances.
        error: the root of the mean of squared residuals.
    """

    log_densities: Tensor
    excess: float
    error: float

    @property
    def log_density(self) -> float:
        """In the mean over the rows."""
        return float(self.log_densities.mean())

    def surpasses(self, other: Judgement) -> bool:
        """Whether the density is higher than another's of the same rows by more than chance would make it.

        By one standard error of the mean difference: who errs then has lost little.
        """
        if not math.isfinite(other.log_density):
            return math.isfinite(self.log_density)
        gains = self.log_densities - other.log_densities
        return float(gains.mean()) > float(gains.std(correction=0)) / math.sqrt(len(gains))

    def __str__(self) -> str:
        return f"density {self.log_density:.4f}, error {self.error:.3g}, variances times {self.excess:.3g}"


def judge(hyperparameters: Hyperparameters, problem: Problem, seed: int) -> Judgement:
    """Predict some rows from landmarks and neighbours, and score that.

    A likelihood of neighbourhoods knows what near rows say, that of a subset what far ones do; a model is
    conditioned on both, and so are the rows here: on landmarks exactly, then on their neighbours, by the
    Schur complement. O(rows k (k² + l k + l²)) time for k neighbours and l landmarks.
    """
    order = torch.randperm(problem.rows, generator=torch.Generator().manual_seed(seed)).to(problem.device)
    count = min(LANDMARKS, problem.rows // 4)
    landmarks, rows = order[:count], order[count : count + ROWS]
    of = _Conditioned(hyperparameters, problem, landmarks)
    residuals, deviations = problem.in_runs(along_a_curve(of.metric[rows]), lambda some: of.rows(rows[some]))
    squares = residuals.square()
    error = float((squares * deviations.square()[:, None]).mean().sqrt())
    excess = float(squares.mean())
    if not math.isfinite(excess):  # noise too small for double: nothing is to be learned there
        return Judgement(torch.full((len(rows),), -math.inf), math.inf, math.inf)
    # Densities with the scale that these rows ask for, which is what calibration comes to.
    scale = max(excess, torch.finfo(torch.float64).tiny)
    spread = squares.mean(dim=1) / scale + math.log(2.0 * math.pi * scale)
    return Judgement(-0.5 * spread - deviations.log(), excess, error)


def _factor(matrix: Tensor) -> Tensor:
    """Lower Cholesky factors, of numbers that are none where a matrix is not positive definite."""
    lower, failed = torch.linalg.cholesky_ex(matrix)
    return torch.where((failed == 0)[..., None, None], lower, torch.nan)


class _Conditioned:
    """The process, given landmarks.

    Attributes:
        metric: coordinates (n, e) of all rows, in which distances are the kernel's.
    """

    def __init__(self, hyperparameters: Hyperparameters, problem: Problem, landmarks: Tensor) -> None:
        self._hyperparameters, self._problem, self._landmarks = hyperparameters, problem, landmarks
        self._centred = hyperparameters.centred(problem.y)
        with torch.no_grad():
            noise = hyperparameters.diagonal_noise(problem.fixed_noise)
            self._diagonal = hyperparameters.kernel.diagonal(problem.x) + noise
        self.metric = metric(hyperparameters.kernel, problem.points)
        self._backend = get_backend(problem.backend, problem.device)
        inner = self._covariances(landmarks)
        inner.diagonal().copy_(self._diagonal[landmarks])
        self._lower = _factor(inner)
        self._white = torch.linalg.solve_triangular(self._lower, self._centred[landmarks], upper=False)

    def _covariances(self, rows: Tensor) -> Tensor:
        """Between landmarks and rows (l, m), without noise."""
        landmarks = self._problem.at(self._landmarks)
        cross = self._problem.cross(self._hyperparameters, landmarks, "double", rows=rows)
        return torch.as_tensor(cross.to_dense())

    @torch.no_grad()
    def rows(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Residuals over deviations (m, q), and deviations (m,), of rows given landmarks and neighbours.

        So many at a time, in their order: of each, its neighbours and what landmarks explain of them.
        """
        near = self._neighbours(rows)
        size = max(1, LOCAL_BYTES // (16 * (near.shape[1] + 1) * (len(self._landmarks) + 1)))
        residuals, deviations = self._centred[rows], self._diagonal[rows]  # of their shapes
        for start in range(0, len(rows), size):
            some = slice(start, start + size)
            residuals[some], deviations[some] = self._some_rows(rows[some], near[some])
        return residuals, deviations

    def _some_rows(self, rows: Tensor, near: Tensor) -> tuple[Tensor, Tensor]:
        """The same of rows (m,) with neighbours (m, k), all at once."""
        group = torch.cat([near, rows[:, None]], dim=1)
        used, at = torch.unique(group, return_inverse=True)
        explained = torch.linalg.solve_triangular(self._lower, self._covariances(used), upper=False).T
        of = Neighbourhoods(
            self._problem.at(used),
            at[:, -1],
            at[:, :-1],
            self._diagonal[used],
            self._centred[used] - explained @ self._white,
            explained,
        )
        found = self._backend.conditionals(
            self._hyperparameters.kernel,
            of,
            precision=Precision.resolve("double"),
            threads=self._problem.threads,
        )
        return found.residuals, found.deviations

    def _neighbours(self, rows: Tensor) -> Tensor:
        """Of some rows, which are no landmarks, the nearest (m, k) that are none either."""
        other = torch.ones(self._problem.rows, dtype=torch.bool, device=rows.device)
        other[self._landmarks] = False
        numbers = other.nonzero()[:, 0]
        places = torch.cumsum(other, dim=0) - 1  # of the others, among themselves
        search = NearestSearch.among_others(self.metric[numbers], places[rows])
        k = min(NEIGHBOURS, len(numbers) - 1)
        return numbers[self._backend.nearest(search, k, threads=self._problem.threads)]
