"""Does what a subset taught hold for all rows? A few, each predicted from its neighbours, tell."""

from __future__ import annotations

import math
from dataclasses import dataclass

from halfgp.hyperparameters import Hyperparameters
from halfgp.neighbours import LocalPosterior
from halfgp.problem import Problem

ROWS = 512  # that are looked at
# Squared residuals over their variances, in the mean: about 1 or below where a subset speaks for all rows,
# 15 where one had its noise explained away (protein).
TOO_SURE = 2.0


@dataclass(frozen=True)
class Judgement:
    """How rows are predicted from their neighbours among all the rows.

    Attributes:
        log_density: of the targets, in the mean.
        excess: the mean of squared residuals over their variances.
    """

    log_density: float
    excess: float

    @property
    def too_sure(self) -> bool:
        """Whether variances are far below what residuals ask for."""
        return not self.excess <= TOO_SURE


def judge(point: Hyperparameters, problem: Problem, seed: int) -> Judgement:
    """Look at some of all rows; O(rows k³) time for k neighbours each."""
    rows = problem.some_rows(ROWS, seed)
    residuals, variances = LocalPosterior.build(problem, point, None).leave_one_out(rows)
    squares = residuals.square() / variances[:, None]
    density = -0.5 * (squares + (2.0 * math.pi * variances).log()[:, None])
    return Judgement(float(density.mean()), float(squares.mean()))
