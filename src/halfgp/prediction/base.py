"""What every posterior answers: the protocol that a model, its file, its report and the commands rest on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from halfgp.hyperparameters import Hyperparameters
from halfgp.prediction.residuals import Residuals
from halfgp.problem import Problem


class LatentPrediction(NamedTuple):
    """Of the latent function at m points, in standardised units.

    Attributes:
        mean: (m, q).
        variance: (m,) of the latent function, shared by all targets, or None.
        mean_error: (m, q) estimated numerical error, or None.
        variance_error: (m,) estimated numerical error, or None.
    """

    mean: Tensor
    variance: Tensor | None
    mean_error: Tensor | None
    variance_error: Tensor | None

    @classmethod
    def joined(cls, parts: Sequence[LatentPrediction]) -> LatentPrediction:
        """One after the other."""
        whole = [None if column[0] is None else torch.cat(column) for column in zip(*parts, strict=True)]
        assert whole[0] is not None
        return cls(whole[0], *whole[1:])


@dataclass(frozen=True)
class Outcome:
    """How a posterior came about, for people to read.

    Attributes:
        route: to its weights, in a few words.
        variance: the way to variances: "cholesky" or "local".
        passes: over K that it took.
        residual: relative, of its solve; the largest of any target.
        error: of means, in predictive deviations: 99 % of rows are below, by an estimate.
        solved: whether that is small enough.
    """

    route: str
    variance: str
    passes: int
    residual: float
    error: float
    solved: bool


class Posterior(Protocol):
    """A process conditioned on rows, all in standardised units."""

    @property
    def problem(self) -> Problem:
        """The rows."""

    @property
    def hyperparameters(self) -> Hyperparameters:
        """The kernel, noise and mean that it was conditioned with."""

    @property
    def outcome(self) -> Outcome:
        """How it came about."""

    @property
    def skipped(self) -> float:
        """Of the covariances of all pairs of rows, the share that products pass by because they are zero."""

    def predict(self, x: Tensor, *, variance: bool = False, errors: bool = False) -> LatentPrediction:
        """Means at points (m, d), and what else is asked for."""

    def covariance(self, x: Tensor) -> Tensor:
        """The covariance (m, m) of the latent function at points (m, d): a matrix of the caller's own."""

    def sample(
        self, x: Tensor, samples: int, seed: int, noise: float | Tensor = 0.0, joint: bool = False
    ) -> Tensor:
        """Draws (m, samples, q) of the function at points (m, d), with noise of so much variance added."""

    def log_marginal_likelihood(self) -> tuple[float, float]:
        """The value and its standard error, of the standardised targets."""

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Means (n, q) and variances (n,) of each row's target, given all the others; noise included."""

    @property
    def residuals(self) -> Residuals:
        """What targets of rows were off by, each given all the others: intervals are made of them."""

    def start(self, rows: int) -> Tensor | None:
        """Where a solve with rows added to these, so many in all, begins: (rows, q), or None."""
