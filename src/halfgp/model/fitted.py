"""Everything that a fit found: a posterior on standardised rows, and its answers in the user's units."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from halfgp.choices import choose_method
from halfgp.data import ArrayLike, as_levels, as_noise, as_points, as_real, check_magnitude
from halfgp.errors import InputError
from halfgp.hyperparameters import Coordinates
from halfgp.likelihood import marginal_likelihood
from halfgp.model.answers import (
    FloatArray,
    LeaveOneOut,
    LogLikelihood,
    NumericalError,
    Prediction,
    PredictionInterval,
)
from halfgp.model.fit_report import FitReport
from halfgp.model.trend import Trend
from halfgp.prediction import ExactPosterior, LatentPrediction, Posterior
from halfgp.scores import LEVELS, Scores, score
from halfgp.standardise import Standardisation
from halfgp.threads import torch_threads
from halfgp.training import Step

PREDICT_ROWS = 2**16  # at a time
DIFFERENCE = 1e-5  # of a feature, in its deviations: half of the digits of double are left


@dataclass(frozen=True, eq=False)
class Fitted:
    """A posterior, and the way between its units and those of the user.

    Attributes:
        posterior: on standardised rows.
        x_scale: of points.
        y_scale: of targets.
        single: whether targets came as (n,).
        history: every step of training.
        report: how the fit went.
        trend: a mean function, which targets are about; None for those that the posterior has.
    """

    posterior: Posterior
    x_scale: Standardisation
    y_scale: Standardisation
    single: bool
    history: list[Step]
    report: FitReport
    trend: Trend | None = None

    @property
    def each(self) -> tuple[Fitted, ...]:
        """What was fitted, group by group of targets that the same rows have: here there is one."""
        return (self,)

    @property
    def features(self) -> int:
        """The number d of columns of points."""
        return len(self.x_scale.mean)

    @property
    def rows(self) -> int:
        """The number n of rows."""
        return self.posterior.problem.rows

    @property
    def targets(self) -> int:
        """The number q of targets."""
        return len(self.y_scale.mean)

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
        """As `ExactGP.predict`, and as `ExactGP.predict_interval` about noise that is known."""
        if std and cov:
            raise InputError("`return_std` and `return_cov` exclude each other; got both. Ask for one.")
        points, scale = self.points(X), self.y_scale.scale
        found = self._latent(points, std, error)
        noise = torch.zeros(len(points), dtype=torch.float64, device=points.device)
        if noisy:
            noise = self.noise(points, known_noise)
        deviations, deviation_error = self._deviations(found, noise)
        covariance = None
        if cov:
            latent = self.posterior.covariance(self.x_scale.apply(points))
            latent.diagonal().add_(noise)
            scaled = latent * scale.square()[:, None, None]
            covariance = (scaled[0] if self.single else scaled).cpu().numpy()
        numerical = None
        if found.mean_error is not None:
            numerical = NumericalError(self._out(found.mean_error * scale), deviation_error)
        mean = self.y_scale.undo(found.mean) + self._trend(points)
        return Prediction(self._out(mean), deviations, covariance, numerical)

    def gradients(self, X: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """As `GPRegressor.predict_gradient`; a mean function takes part by differences."""
        points = self.points(X).double()
        if not isinstance(self.posterior, ExactPosterior):
            raise InputError("Gradients in `X` need an exact posterior; got another one.")
        of_mean, of_variance = self.posterior.gradients(self.x_scale.apply(points))
        latent = self.posterior.predict(self.x_scale.apply(points), variance=True).variance
        assert latent is not None
        chain = torch.where(self.x_scale.constant, 0.0, 1.0 / self.x_scale.scale)
        scale = self.y_scale.scale
        mean = of_mean * chain * scale[:, None] + self._trend_gradient(points)
        deviation = (latent + self.noise(points)).sqrt()
        std = 0.5 * of_variance * chain / deviation[:, None]
        shaped = mean.transpose(1, 2), std[:, :, None] * scale
        return self._out(shaped[0]), self._out(shaped[1])

    def _trend_gradient(self, points: Tensor) -> Tensor:
        """(m, q, d) of the mean function, by central differences."""
        found = points.new_zeros(len(points), self.targets, self.features)
        for k in range(self.features if self.trend is not None else 0):
            step = points.new_zeros(self.features)
            step[k] = DIFFERENCE * self.x_scale.scale[k]
            rise = self._trend(points + step) - self._trend(points - step)
            found[:, :, k] = rise / (2.0 * step[k])
        return found

    def interval(self, about: Prediction, coverage: float | ArrayLike) -> PredictionInterval:
        """Where new targets will be, about predictions with deviations; as `ExactGP.predict_interval`."""
        assert about.std is not None
        levels, one = as_levels(coverage, "coverage")
        found = [self.posterior.residuals.interval(level) for level in levels]
        lower, upper = (self._out(torch.stack(ends)[:, None]) for ends in zip(*found, strict=True))
        lower, upper = about.mean + about.std * lower, about.mean + about.std * upper
        return PredictionInterval(lower[0], upper[0]) if one else PredictionInterval(lower, upper)

    def scores(self, y: ArrayLike, predicted: Prediction) -> Scores:
        """Of predictions with deviations and intervals about them, for values of the shape of the mean."""
        intervals = {level: self.interval(predicted, level) for level in LEVELS}
        return score(y, predicted.mean, predicted.std, intervals)

    def sample(self, X: ArrayLike, samples: int, *, noisy: bool, seed: int, joint: bool) -> FloatArray:
        """As `ExactGP.sample`."""
        points = self.points(X)
        noise = self.noise(points) if noisy else 0.0
        draws = self.posterior.sample(self.x_scale.apply(points), samples, seed, noise, joint)
        scaled = (self.y_scale.undo(draws) + self._trend(points)[:, None]).transpose(1, 2)
        return (scaled[:, 0] if self.single else scaled).cpu().numpy()

    def log_marginal_likelihood(self) -> LogLikelihood:
        """Of the training targets."""
        value, error = self.posterior.log_marginal_likelihood()
        # A density in other units: every target was divided by its scale.
        units = self.posterior.problem.rows * float(self.y_scale.scale.log().sum())
        return LogLikelihood(value - units, error)

    @property
    def theta(self) -> FloatArray:
        """(p,) logarithms of hyperparameters that are not fixed, and means."""
        hyperparameters = self.posterior.hyperparameters.unbounded()
        return Coordinates(hyperparameters).vector(hyperparameters).numpy()

    def log_marginal_likelihood_at(self, theta: ArrayLike, method: str) -> tuple[LogLikelihood, FloatArray]:
        """As `ExactGP.log_marginal_likelihood_at`, by the method of the settings."""
        vector = as_real(theta, "theta").double().reshape(-1)
        here = self.theta
        if len(vector) != len(here):
            raise InputError(f"`theta` must have {len(here)} numbers; got {len(vector)}.")
        check_magnitude(vector, "theta")
        problem, coordinates = self.posterior.problem, Coordinates(self.posterior.hyperparameters.unbounded())
        dense = choose_method(method, problem.rows) == "cholesky"
        found = marginal_likelihood(coordinates.hyperparameters(vector), problem, dense=dense)
        units = problem.rows * float(self.y_scale.scale.log().sum())
        gradient = coordinates.pull_back(vector, found.gradient)
        return LogLikelihood(found.value - units, found.standard_error), gradient.numpy()

    def leave_one_out(self) -> LeaveOneOut:
        """Predictions of every training row from the others."""
        mean, variance = self.posterior.leave_one_out()
        y, scale = self.posterior.problem.y, self.y_scale.scale
        density = -0.5 * ((y - mean).square() / variance[:, None] + (2 * math.pi * variance).log()[:, None])
        rows = self.x_scale.undo(self.posterior.problem.at(self.posterior.problem.held))
        return LeaveOneOut(
            self._out(self.y_scale.undo(mean) + self._trend(rows)),
            self._out(variance.sqrt()[:, None] * scale),
            self._out(density - scale.log()),
        )

    @property
    def relevance(self) -> FloatArray | None:
        """(d,) inverse lengthscales on standardised features, largest 1; None without one per feature.

        A feature that had one value in all rows has none.
        """
        constant = self.x_scale.constant.cpu()
        total = torch.zeros(self.features, dtype=torch.float64)
        for leaf in self.posterior.hyperparameters.kernel.program().leaves:
            columns = list(range(len(total))) if leaf.columns is None else list(leaf.columns)
            if leaf.is_stationary and not leaf.feature_parameters and len(leaf.scales) == len(columns):
                total[columns] = torch.maximum(total[columns], leaf.scales.detach())
        total[constant] = 0.0
        if not bool((total > 0)[~constant].all()):
            return None
        return (total / total.max().clamp_min(torch.finfo(torch.float64).tiny)).numpy()

    def points(self, X: ArrayLike) -> Tensor:
        """Points (m, d) in the user's units, on the device of the rows, with as many columns."""
        points, d = as_points(X, "X").to(self.x_scale.mean.device), self.features
        if points.shape[1] != d:
            raise InputError(f"`X` must have {d} columns, as in `fit`; got {points.shape[1]}.")
        return points

    def noise(self, points: Tensor, known: float | ArrayLike | None = None) -> Tensor:
        """The variance (m,) of new targets at points (m, d), White included, standardised.

        Args:
            points: in the user's units.
            known: where rows had variances of their own those of the new ones, (m,) or one for all, in the
                units of the target squared; None counts as none.
        """
        hyperparameters = self.posterior.hyperparameters
        learned = 0.0 if hyperparameters.noise is None else float(hyperparameters.noise.value)
        found = torch.full((len(points),), learned, dtype=torch.float64, device=points.device)
        with torch.no_grad():
            for start in range(0, len(points), PREDICT_ROWS):
                x = self.x_scale.apply(points[start : start + PREDICT_ROWS])
                found[start : start + PREDICT_ROWS] += hyperparameters.kernel.white(x)
        if known is None:
            return found
        if hyperparameters.noise is not None:
            raise InputError(
                "`noise` must be None for a model that learned its noise: deviations have it. Leave it out."
            )
        return found + as_noise(known, len(points), points.device) / self.y_scale.scale[0] ** 2

    def _trend(self, points: Tensor) -> Tensor:
        """Of the mean function at points (m, d) in the user's units: (m, q)."""
        if self.trend is None:
            return torch.zeros(len(points), self.targets, dtype=torch.float64, device=points.device)
        return self.trend(points.double())

    def _latent(self, points: Tensor, variance: bool, errors: bool) -> LatentPrediction:
        """At points (m, d) in the user's units, by chunks, so that no copy of all of them is made."""
        parts = []
        with torch_threads(self.posterior.problem.threads):
            for start in range(0, max(len(points), 1), PREDICT_ROWS):
                x = self.x_scale.apply(points[start : start + PREDICT_ROWS])
                parts.append(self.posterior.predict(x, variance=variance, errors=errors))
        return parts[0] if len(parts) == 1 else LatentPrediction.joined(parts)

    def _deviations(
        self, found: LatentPrediction, noise: Tensor
    ) -> tuple[FloatArray | None, FloatArray | None]:
        """Of targets, and their numerical errors, where they were asked for."""
        if found.variance is None:
            return None, None
        scale, variance, error = self.y_scale.scale, found.variance + noise, found.variance_error
        std = variance.sqrt()
        shown = self._out(std[:, None] * scale)
        if error is None:
            return shown, None
        lower, upper = (variance - error).clamp_min(0.0).sqrt(), (variance + error).sqrt()
        return shown, self._out(torch.maximum(std - lower, upper - std)[:, None] * scale)

    def _out(self, values: Tensor) -> FloatArray:
        """(..., q) as the targets came."""
        return (values[..., 0] if self.single else values).detach().cpu().numpy()
