"""Targets that not all of the rows have: those of the same rows were fitted together, and answer as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from halfgp.data import ArrayLike, as_real
from halfgp.errors import InputError
from halfgp.model.answers import (
    FloatArray,
    LeaveOneOut,
    LogLikelihood,
    NumericalError,
    Prediction,
    PredictionInterval,
)
from halfgp.model.fit_report import FitReport
from halfgp.model.fitted import Fitted
from halfgp.scores import LEVELS, Scores, score
from halfgp.training import Step


@dataclass(frozen=True, eq=False)
class Group:
    """Targets that the same rows have, and what a fit of them found.

    Attributes:
        targets: which of all columns, ascending.
        rows: (m,) which of all rows that have any target, ascending.
        fitted: as if there were no other targets.
    """

    targets: tuple[int, ...]
    rows: Tensor
    fitted: Fitted


@dataclass(frozen=True, eq=False)
class FittedGroups:
    """What `Fitted` is where targets have rows of their own: every answer is that of each group, joined.

    Targets are independent processes, so that nothing is lost by that. Each group has its own kernel, noise
    and scales.

    Attributes:
        groups: every target is in one.
        dropped: how many rows had no target at all.
    """

    groups: tuple[Group, ...]
    dropped: int

    @property
    def each(self) -> tuple[Fitted, ...]:
        """What was fitted, group by group."""
        return tuple(group.fitted for group in self.groups)

    @property
    def features(self) -> int:
        """The number d of columns of points."""
        return self.each[0].features

    @property
    def targets(self) -> int:
        """The number q of targets."""
        return sum(len(group.targets) for group in self.groups)

    @property
    def rows(self) -> int:
        """The number n of rows that have any target."""
        return 1 + max(int(group.rows[-1]) for group in self.groups)

    @property
    def history(self) -> list[Step]:
        """Every step of training, group after group."""
        return [step for fitted in self.each for step in fitted.history]

    @property
    def report(self) -> FitReport:
        """How all fits went."""
        reports = [fitted.report for fitted in self.each]
        return FitReport.joined(reports, rows=self.rows, dropped=self.dropped)

    def predict(
        self,
        X: ArrayLike,
        *,
        std: bool = False,
        cov: bool = False,
        error: bool = False,
        noisy: bool = True,
        known_noise: float | ArrayLike | None = None,
    ) -> Prediction:
        """As `Fitted.predict`."""
        found = [
            fitted.predict(X, std=std, cov=cov, error=error, noisy=noisy, known_noise=known_noise)
            for fitted in self.each
        ]
        errors = [one.error for one in found if one.error is not None]
        return Prediction(
            self._joined([one.mean for one in found], axis=1),
            self._joined([one.std for one in found if one.std is not None], axis=1) if std else None,
            self._joined([one.cov for one in found if one.cov is not None], axis=0) if cov else None,
            NumericalError(
                self._joined([one.mean for one in errors], axis=1),
                self._joined([one.std for one in errors if one.std is not None], axis=1) if std else None,
            )
            if error
            else None,
        )

    def gradients(self, X: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """As `Fitted.gradients`."""
        means, deviations = zip(*(fitted.gradients(X) for fitted in self.each), strict=True)
        return self._joined(means, axis=2), self._joined(deviations, axis=2)

    def interval(self, about: Prediction, coverage: float | ArrayLike) -> PredictionInterval:
        """As `Fitted.interval`."""
        assert about.std is not None
        found = [
            group.fitted.interval(
                Prediction(about.mean[:, group.targets], about.std[:, group.targets]), coverage
            )
            for group in self.groups
        ]
        lower, upper = (self._joined(ends, axis=-1) for ends in zip(*found, strict=True))
        return PredictionInterval(lower, upper)

    def scores(self, y: ArrayLike, predicted: Prediction) -> Scores:
        """As `Fitted.scores`."""
        intervals = {level: self.interval(predicted, level) for level in LEVELS}
        return score(y, predicted.mean, predicted.std, intervals)

    def sample(self, X: ArrayLike, samples: int, *, noisy: bool, seed: int, joint: bool) -> FloatArray:
        """As `Fitted.sample`; groups draw apart, for with one seed they would not be independent."""
        seeds = torch.randint(2**62, (len(self.groups),), generator=torch.Generator().manual_seed(seed))
        draws = [
            fitted.sample(X, samples, noisy=noisy, seed=own, joint=joint)
            for fitted, own in zip(self.each, seeds.tolist(), strict=True)
        ]
        return self._joined(draws, axis=1)

    def log_marginal_likelihood(self) -> LogLikelihood:
        """Of all training targets; errors add up, for groups that have most rows alike err alike."""
        found = [fitted.log_marginal_likelihood() for fitted in self.each]
        return LogLikelihood(*(sum(part) for part in zip(*found, strict=True)))

    @property
    def theta(self) -> FloatArray:
        """(p,) as `Fitted.theta`, of one group after the other."""
        return np.concatenate([fitted.theta for fitted in self.each])

    def log_marginal_likelihood_at(self, theta: ArrayLike, method: str) -> tuple[LogLikelihood, FloatArray]:
        """As `Fitted.log_marginal_likelihood_at`."""
        vector, sizes = as_real(theta, "theta").reshape(-1), [len(fitted.theta) for fitted in self.each]
        ends = np.cumsum([0, *sizes]).tolist()
        if len(vector) != sum(sizes):
            raise InputError(f"`theta` must have {sum(sizes)} numbers; got {len(vector)}.")
        found = [
            fitted.log_marginal_likelihood_at(vector[start:end], method)
            for fitted, start, end in zip(self.each, ends, ends[1:], strict=False)
        ]
        values, gradients = zip(*found, strict=True)
        return LogLikelihood(*(sum(part) for part in zip(*values, strict=True))), np.concatenate(gradients)

    def leave_one_out(self) -> LeaveOneOut:
        """As `Fitted.leave_one_out`, (n, q) for all rows; NaN where a row has no such target."""
        whole = LeaveOneOut(*(np.full((self.rows, self.targets), np.nan) for _ in LeaveOneOut._fields))
        for group in self.groups:
            place = np.ix_(group.rows.cpu().numpy(), np.array(group.targets))
            for part, own in zip(whole, group.fitted.leave_one_out(), strict=True):
                part[place] = own
        return whole

    @property
    def relevance(self) -> FloatArray | None:
        """(d,) as `Fitted.relevance`: of each feature the largest, for it matters if it does to a target."""
        found = [relevance for fitted in self.each if (relevance := fitted.relevance) is not None]
        return np.max(found, axis=0) if len(found) == len(self.groups) else None

    def points(self, X: ArrayLike) -> Tensor:
        """As `Fitted.points`."""
        return self.each[0].points(X)

    def _joined(self, parts: Sequence[FloatArray], axis: int) -> FloatArray:
        """Arrays of each group, in the order of the targets along an axis."""
        order = np.argsort([target for group in self.groups for target in group.targets])
        return np.take(np.concatenate(parts, axis=axis), order, axis=axis)


AnyFitted: TypeAlias = Fitted | FittedGroups


def groups_of(fitted: AnyFitted) -> tuple[Group, ...]:
    """All groups; targets that all rows have are one."""
    if isinstance(fitted, FittedGroups):
        return fitted.groups
    rows = torch.arange(fitted.posterior.problem.rows, device=fitted.x_scale.mean.device)
    return (Group(tuple(range(fitted.targets)), rows, fitted),)


def joined(groups: Sequence[Group], dropped: int) -> AnyFitted:
    """What they found together; one group by itself is that."""
    return groups[0].fitted if len(groups) == 1 else FittedGroups(tuple(groups), dropped)
