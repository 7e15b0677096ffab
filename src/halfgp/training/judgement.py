"""Which of several points predicts best from all rows? A few rows, each left out, tell."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from halfgp.hyperparameters import Hyperparameters
from halfgp.nearest import metric, nearest_to
from halfgp.problem import Problem

ROWS = 512  # that are looked at
LANDMARKS = 384  # that all of them are given, spread over all rows: what is far
NEIGHBOURS = 96  # that each is given: what is near
BYTES = 2**27  # of small matrices at a time


@dataclass(frozen=True)
class Judgement:
    """How rows are predicted from the others.

    Attributes:
        log_density: of the targets, in the mean, with variances multiplied by `excess`.
        excess: the mean of squared residuals over their variances.
        error: the root of the mean of squared residuals.
    """

    log_density: float
    excess: float
    error: float


def judge(point: Hyperparameters, problem: Problem, seed: int) -> Judgement:
    """Predict some rows from landmarks and neighbours, and score that.

    A likelihood of neighbourhoods knows what near rows say, that of a subset what far ones do; a model is
    conditioned on both, and so are the rows here: on landmarks exactly, then on their neighbours, by the
    Schur complement. O(rows k (k² + l k + l²)) time for k neighbours and l landmarks.
    """
    order = torch.randperm(problem.rows, generator=torch.Generator().manual_seed(seed))
    rows, landmarks = order[:ROWS], order[ROWS : ROWS + min(LANDMARKS, problem.rows // 4)]
    of = _Conditioned(point, problem, landmarks)
    size = max(1, BYTES // (8 * NEIGHBOURS * (2 * NEIGHBOURS + len(landmarks))))
    parts = [of.rows(rows[start : start + size]) for start in range(0, len(rows), size)]
    squares = torch.cat([residuals.square() for residuals, _ in parts])
    deviations = torch.cat([deviations for _, deviations in parts])
    error = float((squares * deviations.square()[:, None]).mean().sqrt())
    excess = float(squares.mean())
    if not math.isfinite(excess):  # noise too small for double: nothing is to be learned from that point
        return Judgement(-math.inf, math.inf, math.inf)
    # The density with the scale that these rows ask for, which is what calibration comes to.
    spread = 1.0 + math.log(2.0 * math.pi * max(excess, torch.finfo(torch.float64).tiny))
    return Judgement(-0.5 * spread - float(deviations.log().mean()), excess, error)


def _factor(matrix: Tensor) -> Tensor:
    """Lower Cholesky factors, of numbers that are none where a matrix is not positive definite."""
    lower, failed = torch.linalg.cholesky_ex(matrix)
    return torch.where((failed == 0)[..., None, None], lower, torch.nan)


class _Conditioned:
    """The process, given landmarks."""

    def __init__(self, point: Hyperparameters, problem: Problem, landmarks: Tensor) -> None:
        self._point, self._problem, self._landmarks = point, problem, landmarks
        self._centred = point.centred(problem.y)
        with torch.no_grad():
            noise = point.diagonal_noise(problem.fixed_noise)
            self._diagonal = point.kernel.diagonal(problem.x) + noise
        self._metric = metric(point.kernel, problem.x)
        inner = self._covariances(landmarks)
        inner.diagonal().copy_(self._diagonal[landmarks])
        self._lower = _factor(inner)
        self._white = torch.linalg.solve_triangular(self._lower, self._centred[landmarks], upper=False)

    def _covariances(self, rows: Tensor) -> Tensor:
        """Between landmarks and rows (l, m), without noise."""
        x, landmarks = self._problem.x, self._landmarks
        cross = self._problem.cross(self._point, x[landmarks], "double", rows=rows)
        return torch.as_tensor(cross.to_dense())

    @torch.no_grad()
    def rows(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Residuals over deviations (m, q), and deviations (m,), of rows given landmarks and neighbours."""
        k = min(NEIGHBOURS, self._problem.rows - len(self._landmarks) - 1)
        members = nearest_to(self._metric, rows, k, without=self._landmarks)
        group = torch.cat([members, rows[:, None]], dim=1)
        m, size = group.shape
        flat = group.reshape(-1)
        explained = torch.linalg.solve_triangular(self._lower, self._covariances(flat), upper=False)
        targets = (self._centred[flat] - explained.T @ self._white).reshape(m, size, -1)
        explained = explained.T.reshape(m, size, -1)
        matrix = self._small(group) - explained @ explained.mT
        lower = _factor(matrix)
        white = torch.linalg.solve_triangular(lower, targets, upper=False)
        return white[:, -1], lower[:, -1, -1]

    def _small(self, group: Tensor) -> Tensor:
        """K + noise (m, k, k) of groups (m, k) of rows."""
        program = self._point.kernel.program()
        values = []
        for leaf in program.leaves:
            z = leaf.scaled(self._problem.x[group.reshape(-1)]).reshape(*group.shape, -1)
            values.append(leaf.between(z, z))
        matrix = program.evaluate(values, (*group.shape, group.shape[1])).clone()
        matrix.diagonal(dim1=1, dim2=2).copy_(self._diagonal[group])
        return matrix
