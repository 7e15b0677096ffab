"""`ExactGP`: an exact Gaussian process, from rows to predictions, in the units of the user."""

from __future__ import annotations

import logging
import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from halfgp.data import ArrayLike, as_noise, as_points, as_targets
from halfgp.errors import FileError, HalfGPError, HalfGPWarning, InputError
from halfgp.hyperparameters import Hyperparameters, kernel_by_name
from halfgp.kernels import Kernel
from halfgp.parameters import Parameter
from halfgp.planner import Plan, choose_method, final_rank, make_plan
from halfgp.prediction import Conditioning, Posterior, Prediction, condition
from halfgp.priors import as_priors, check_names
from halfgp.problem import Problem
from halfgp.settings import MOST_SEED, Settings, as_bytes
from halfgp.standardise import Standardisation
from halfgp.threads import torch_threads
from halfgp.training import Checkpoint, Step, Training, peak_memory, train

logger = logging.getLogger("halfgp")
FloatArray = NDArray[np.float64]
PREDICT_ROWS = 2**16  # at a time
SHOWN_COLUMNS = 10  # in a warning


class NotFittedError(HalfGPError, ValueError, AttributeError):
    """Something was asked of a model before `fit`."""


class DataWarning(HalfGPWarning):
    """Rows or columns were left out."""


class ConstantColumnsWarning(DataWarning):
    """Columns of points have one value in all rows.

    Attributes:
        columns: which, from 0.
        total: how many there are in all.
    """

    def __init__(self, columns: Sequence[int], total: int) -> None:
        self.columns, self.total = tuple(columns), total
        super().__init__(f"{self.naming(range(total))} (from 0).")

    def naming(self, names: Sequence[object]) -> str:
        """The same words with the columns' names (total,), without a full stop."""
        shown = ", ".join(str(names[k]) for k in self.columns[:SHOWN_COLUMNS])
        more = ", ..." if len(self.columns) > SHOWN_COLUMNS else ""
        return (
            f"{len(self.columns)} of the {self.total} columns of `X` have one value in all rows and are left"
            f" out, here and in predictions: {shown}{more}"
        )


class NumericalError(NamedTuple):
    """Estimates of what rounding and unfinished solves may have done to a prediction, in the user's units.

    Attributes:
        mean: of the shape of the mean.
        std: of the shape of the standard deviation, or None where that was not asked for.
    """

    mean: FloatArray
    std: FloatArray | None


class LeaveOneOut(NamedTuple):
    """Predictions of every training target from all the others, in the user's units.

    Attributes:
        mean: (n,) or (n, q).
        std: (n,) or (n, q), noise included.
        log_density: (n,) or (n, q), of the target under that prediction.
    """

    mean: FloatArray
    std: FloatArray
    log_density: FloatArray


class LogLikelihood(NamedTuple):
    """The log marginal likelihood of the targets in the user's units.

    Attributes:
        value: of all rows and targets.
        standard_error: of the estimate; with a factor in double what rounding may have done.
    """

    value: float
    standard_error: float


class Rows(NamedTuple):
    """What a user passed, as tensors: the rows that have targets.

    Attributes:
        points: (n, d).
        targets: (n, q).
        variances: (n,) known noise, or None.
        dropped: how many rows had no target.
        single: whether targets came as (n,).
    """

    points: Tensor
    targets: Tensor
    variances: Tensor | None
    dropped: int
    single: bool


@dataclass(frozen=True)
class FitReport:
    """How a fit went.

    Attributes:
        method: "cholesky" or "cg".
        variance: "cholesky" or "local".
        rows: used.
        dropped: rows without a target.
        steps: evaluations of the likelihood.
        passes: over K, of training and the final solve.
        residual: true relative residual of the final solve.
        route: to its solution: "double factor", "single factor" or "low rank".
        error: that it leaves in means, in predictive deviations: 99 % of rows are below, by an estimate.
        solved: whether that is small enough.
        scale: what leave-one-out residuals on all rows multiplied outputscale and noise by.
        seconds: of the whole fit.
        memory: peak of the process, bytes.
        interrupted: whether Ctrl-C ended the training.
    """

    method: str
    variance: str
    rows: int
    dropped: int
    steps: int
    passes: int
    residual: float
    route: str
    error: float
    solved: bool
    scale: float
    seconds: float
    memory: int
    interrupted: bool


class ExactGP:
    """A Gaussian process conditioned exactly on its rows.

    Args:
        kernel: a name or a kernel; see `Settings`, where every other option stands too.
        options: fields of `Settings`.

    Attributes:
        settings: as given.
        posterior: after `fit`.
        history: every step of training.
        report: how the fit went.
        checkpoint: of a fit that is done, until the model is saved.
    """

    def __init__(self, kernel: str | Kernel = Settings.kernel, **options: Any) -> None:
        try:
            self.settings = Settings(kernel=kernel, **options)
        except TypeError as error:
            raise InputError(f"{str(error).replace('Settings.__init__()', 'ExactGP')}.") from error
        self.posterior: Posterior | None = None
        self.history: list[Step] = []
        self.report: FitReport | None = None
        self.checkpoint: Checkpoint | None = None
        self.x_scale: Standardisation | None = None
        self.y_scale: Standardisation | None = None
        self._squeeze = True

    def fit(self, X: ArrayLike, y: ArrayLike, noise: ArrayLike | None = None) -> ExactGP:
        """Learn hyperparameters and condition on the rows.

        Args:
            X: (n, d), finite.
            y: (n,) or (n, q) targets that share one kernel; rows with NaN are dropped, with a warning.
            noise: (n,) known variances of the rows, in the units of y squared, instead of a learned one.

        Ctrl-C ends the training with what was found so far. With a `checkpoint`, a fit that was interrupted
        or killed goes on where it was, in training or in the last solve, and ends with the same bits. Its
        files stay until the model is saved. A fit that fails changes nothing here.
        """
        began = time.perf_counter()
        settings = self.settings.check()
        rows = self._rows(X, y, noise)
        x_scale = Standardisation.of(rows.points, settings.standardise_X).holding(rows.points)
        y_scale = Standardisation.of(rows.targets, settings.standardise_y)
        _tell_constant(x_scale)
        problem = self._problem(rows, x_scale, y_scale)
        self.plan(problem.x, targets=problem.y.shape[1]).require()
        training, priors = training_of(settings), as_priors(settings.priors)
        start = self._start(problem, x_scale)
        if not isinstance(settings.priors, str):  # a named set may have more than a kernel does
            check_names(priors, start.named_parameters())
        checkpoint = self._checkpoint(problem, start)
        with torch_threads(settings.threads):
            trained = train(start, problem, training, priors, checkpoint=checkpoint, observe=self._observe)
            by_subset = trained.method == "cg" and 0 < settings.subset < problem.rows
            # Training on all rows tells the scale of one target, and not that of each of several.
            several = rows.targets.shape[1] > 1
            calibrate = settings.calibrate and ((by_subset and settings.subset_iterations > 0) or several)
            conditioning = conditioning_of(settings, trained.method, problem.rows, calibrate)
            point, solves = trained.hyperparameters, None
            if checkpoint is not None and not trained.interrupted:  # who resumes that, resumes its training
                solves = checkpoint.solves(point, conditioning.recipe)
            self.posterior = condition(
                problem, point, conditioning, trained.weights, self._observe_solve, solves
            )
        y_scale = replace(y_scale, scale=y_scale.scale * self.posterior.units)
        self.x_scale, self.y_scale, self._squeeze = x_scale, y_scale, rows.single
        self.history = trained.history
        scale = self.posterior.scale
        self.report = self._report(trained.method, trained.interrupted, rows.dropped, began, scale)
        self.checkpoint = None if trained.interrupted else checkpoint
        if self.checkpoint is not None:
            self.checkpoint.finish()
        return self

    def predict(
        self,
        X: ArrayLike,
        *,
        return_std: bool = False,
        return_cov: bool = False,
        return_error: bool = False,
        include_noise: bool = True,
    ) -> Any:
        """The predictive mean (m,) or (m, q), and beside it what is asked for, as a tuple.

        Args:
            X: (m, d).
            return_std: add the standard deviation, of the shape of the mean.
            return_cov: add the covariance (m, m), or (q, m, m), instead; O(m²) memory.
            return_error: add a `NumericalError`, estimates of what rounding and unfinished solves did.
            include_noise: whether deviations are those of a new target, or of the function without its noise.
                That of a new target is not known where rows have variances of their own, and counts as none.

        Memory beside the results does not grow with m, but for the covariance.
        """
        posterior, points = self._fitted(), self._points(X)
        if return_std and return_cov:
            raise InputError("`return_std` and `return_cov` exclude each other; got both. Ask for one.")
        found = self._predict(points, return_std, return_error)
        scale = self._scales[1].scale
        noise = self._noise(points) if include_noise else torch.zeros(len(points), dtype=torch.float64)
        results: list[Any] = [self._out(self._scales[1].undo(found.mean))]
        std_error = None
        if found.variance is not None:
            std = (found.variance + noise).sqrt()
            results.append(self._out(std[:, None] * scale))
            if found.variance_error is not None:
                lower = (found.variance + noise - found.variance_error).clamp_min(0.0).sqrt()
                upper = (found.variance + noise + found.variance_error).sqrt()
                std_error = self._out(torch.maximum(std - lower, upper - std)[:, None] * scale)
        if return_cov:
            covariance = posterior.covariance(self._scales[0].apply(points))
            covariance.diagonal().add_(noise)
            scaled = covariance * scale.square()[:, None, None]
            results.append((scaled[0] if self._squeeze else scaled).numpy())
        if found.mean_error is not None:
            results.append(NumericalError(self._out(found.mean_error * scale), std_error))
        return results[0] if len(results) == 1 else tuple(results)

    def _predict(self, points: Tensor, variance: bool, errors: bool) -> Prediction:
        """At points (m, d) in the user's units, by chunks, so that no copy of all of them is made."""
        posterior, (x_scale, _) = self._fitted(), self._scales
        parts = []
        with torch_threads(self.settings.threads):
            for start in range(0, max(len(points), 1), PREDICT_ROWS):
                x = x_scale.apply(points[start : start + PREDICT_ROWS])
                parts.append(posterior.predict(x, variance=variance, errors=errors))
        return parts[0] if len(parts) == 1 else Prediction.joined(parts)

    def sample(
        self,
        X: ArrayLike,
        samples: int = 1,
        *,
        include_noise: bool = False,
        seed: int = 0,
        joint: bool = False,
    ) -> FloatArray:
        """Draws (m, samples), or (m, q, samples), from the posterior: whole functions, by Matheron's rule.

        Args:
            X: (m, d).
            samples: how many.
            include_noise: add the noise of a new target to every value.
            seed: the same seed gives the same functions, at whatever points.
            joint: draw from the exact distribution at these points instead, where there is a dense factor:
                many draws at up to some thousand points cost little then, and are no functions.
        """
        if isinstance(samples, bool) or not isinstance(samples, int) or samples < 1:
            raise InputError(f"`samples` must be a positive integer; got {samples!r}.")
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= MOST_SEED:
            raise InputError(f"`seed` must be an integer from 0 to {MOST_SEED}; got {seed!r}.")
        posterior, (x_scale, y_scale) = self._fitted(), self._scales
        x = x_scale.apply(self._points(X))
        noise = self._noise(self._points(X)) if include_noise else 0.0
        draws = posterior.sample(x, samples, seed, noise, joint)
        scaled = y_scale.undo(draws).transpose(1, 2)
        return (scaled[:, 0] if self._squeeze else scaled).numpy()

    def update(self, X: ArrayLike, y: ArrayLike, noise: ArrayLike | None = None) -> ExactGP:
        """Condition on more rows, with hyperparameters and scales as they are, from the last solution.

        Args:
            X: (m, d).
            y: (m,) or (m, q); rows with NaN are dropped, with a warning.
            noise: (m,) variances of the rows, exactly if `fit` was given some.
        """
        began = time.perf_counter()
        posterior = self._fitted()
        old = posterior.problem
        if (noise is None) != (old.fixed_noise is None):
            raise InputError(
                "`noise` must be given to `update` exactly if it was given to `fit`:"
                " rows have variances of their own or share one."
            )
        self._points(X)
        rows = self._rows(X, y, noise)
        if rows.targets.shape[1] != old.y.shape[1]:
            raise InputError(
                f"`y` must have {old.y.shape[1]} targets, as in `fit`; got {rows.targets.shape[1]}."
            )
        problem = old.extended(self._problem(rows, *self._scales))
        # What a fit takes without its training.
        solve = replace(self.settings, method="cg", subset=0, steps=0)
        make_plan(problem.rows, problem.x.shape[1], problem.y.shape[1], solve).require()
        method = choose_method(self.settings.method, problem.rows)
        lacking = torch.zeros(problem.rows - old.rows, old.y.shape[1], dtype=torch.float64)
        conditioning = conditioning_of(self.settings, method, problem.rows)
        start = torch.cat([posterior.weights, lacking])
        with torch_threads(self.settings.threads):
            self.posterior = condition(
                problem, posterior.hyperparameters, conditioning, start, self._observe_solve
            )
        scale = 1.0 if self.report is None else self.report.scale
        self.report = self._report(method, False, rows.dropped, began, scale)
        return self

    def log_marginal_likelihood(self) -> LogLikelihood:
        """Of the training targets, at the hyperparameters found."""
        posterior, (_, y_scale) = self._fitted(), self._scales
        value, error = posterior.log_marginal_likelihood()
        # A density in other units: every target was divided by its scale.
        return LogLikelihood(value - posterior.problem.rows * float(y_scale.scale.log().sum()), error)

    def leave_one_out(self) -> LeaveOneOut:
        """Predictions of every training row from the others, without fitting again."""
        posterior, (_, y_scale) = self._fitted(), self._scales
        mean, variance = posterior.leave_one_out()
        y = posterior.problem.y
        density = -0.5 * ((y - mean).square() / variance[:, None] + (2 * math.pi * variance).log()[:, None])
        return LeaveOneOut(
            self._out(y_scale.undo(mean)),
            self._out(variance.sqrt()[:, None] * y_scale.scale),
            self._out(density - y_scale.scale.log()),
        )

    def plan(self, X: ArrayLike, targets: int = 1) -> Plan:
        """Memory, passes and minutes that `fit` on these points would take, before any work."""
        points = as_points(X, "X")
        return make_plan(len(points), points.shape[1], targets, self.settings.check())

    @property
    def hyperparameters(self) -> Hyperparameters:
        """As found, in standardised units."""
        return self._fitted().hyperparameters

    @property
    def relevance(self) -> FloatArray | None:
        """(d,) inverse lengthscales on standardised features, largest 1; None without one per feature.

        A feature that had one value in all rows has none.
        """
        posterior, constant = self._fitted(), self._scales[0].constant
        total = torch.zeros(posterior.problem.x.shape[1], dtype=torch.float64)
        for leaf in posterior.hyperparameters.kernel.program().leaves:
            columns = list(range(len(total))) if leaf.columns is None else list(leaf.columns)
            if leaf.is_stationary and not leaf.feature_parameters and len(leaf.scales) == len(columns):
                total[columns] = torch.maximum(total[columns], leaf.scales.detach())
        total[constant] = 0.0
        if not bool((total > 0)[~constant].all()):
            return None
        return (total / total.max().clamp_min(torch.finfo(torch.float64).tiny)).numpy()

    def _problem(self, rows: Rows, x_scale: Standardisation, y_scale: Standardisation) -> Problem:
        """Standardised rows, with the options of the settings."""
        settings = self.settings
        x, t = x_scale.apply(rows.points), y_scale.apply(rows.targets)
        for name, values in (("X", x), ("y", t)):
            if not bool(values.isfinite().all()):
                raise InputError(f"`{name}` spans more than double precision can hold. Scale it down.")
        fixed = None
        if rows.variances is not None:
            if rows.targets.shape[1] > 1:
                raise InputError(
                    f"`noise` for every row goes with one target; got {rows.targets.shape[1]}."
                    " Fit one model for each."
                )
            fixed = rows.variances / y_scale.scale[0] ** 2
            if not bool((fixed > 0).all()):
                raise InputError(
                    f"`noise` must be positive for every row; got {float(rows.variances.min()):g}."
                )
        return Problem(
            x,
            t,
            fixed,
            precision=settings.precision,
            backend=settings.backend,
            threads=settings.threads,
            memory_limit=as_bytes(settings.memory_limit),
        )

    def _rows(self, X: ArrayLike, y: ArrayLike, noise: ArrayLike | None) -> Rows:
        """The rows that have targets; a warning for the others."""
        points = as_points(X, "X").double().contiguous()
        n = len(points)
        targets, single = as_targets(y, "y", n)
        variances = None if noise is None else as_noise(noise, n, points.device).expand(n)
        whole = targets.isfinite().all(dim=1)
        dropped = n - int(whole.sum())
        if dropped == n:
            raise InputError(f"`y` has no row with a target, of {n}. There is nothing to learn from.")
        if dropped:
            warnings.warn(
                f"{dropped} of {n} rows have no target (NaN in `y`) and are left out.",
                DataWarning,
                stacklevel=3,
            )
            points, targets = points[whole], targets[whole]
            variances = None if variances is None else variances[whole]
        return Rows(points, targets, variances, dropped, single)

    def _start(self, problem: Problem, x_scale: Standardisation) -> Hyperparameters:
        """Where training begins: with a kernel of the columns that vary, where some do."""
        settings, d = self.settings, problem.x.shape[1]
        kernel = settings.kernel
        if isinstance(kernel, str):
            varying = (~x_scale.constant).nonzero()[:, 0].tolist()
            some = varying if 0 < len(varying) < d else None
            count = d if some is None else len(some)
            kernel = kernel_by_name(
                kernel,
                count,
                ard=settings.ard,
                lengthscale=settings.lengthscale or max(1.0, math.sqrt(count)) / 2,
                outputscale=settings.outputscale,
                active_dims=some,
            )
        elif not isinstance(kernel, Kernel):
            raise InputError(f"`kernel` must be a name or a kernel such as `RBF()`; got {kernel!r}.")
        kernel.check_columns(d)
        noise = Parameter(
            torch.tensor(float(settings.noise), dtype=torch.float64), settings.noise_floor, name="noise"
        )
        # Zero where targets are standardised.
        mean = Parameter(problem.y.mean(dim=0), lower=-math.inf, name="mean")
        return Hyperparameters(
            kernel.detached(),
            noise if problem.fixed_noise is None else None,
            mean if settings.mean == "constant" else None,
        )

    def _checkpoint(self, problem: Problem, start: Hyperparameters) -> Checkpoint | None:
        if self.settings.checkpoint is None:
            return None
        path = Path(self.settings.checkpoint)
        if not path.parent.is_dir():
            raise FileError(
                f"`checkpoint` needs the directory `{path.parent}`, which is not there. Create it."
            )
        return Checkpoint.of(path, problem, start, training_of(self.settings), self.settings.priors)

    def _observe(self, step: Step, hyperparameters: Hyperparameters) -> None:
        logger.info("%s step %d: loss %.4f", step.stage, step.index, step.loss)
        for callback in self.settings.callbacks:
            callback(step, hyperparameters)

    def _observe_solve(self, iteration: int, residuals: Tensor) -> None:
        """Tell callbacks that want to hear it: the last solve may take longer than the training."""
        for callback in self.settings.callbacks:
            solving = getattr(callback, "solving", None)
            if solving is not None:
                solving(iteration, float(residuals.max()))

    def _report(
        self, method: str, interrupted: bool, dropped: int, began: float, scale: float = 1.0
    ) -> FitReport:
        posterior = self._fitted()
        solve = posterior.solve
        passes = sum(step.passes for step in self.history) + solve.passes
        return FitReport(
            method=method,
            variance="local" if posterior.factor is None else "cholesky",
            rows=posterior.problem.rows,
            dropped=dropped,
            steps=len(self.history),
            passes=passes,
            scale=scale,
            residual=float(np.max(np.asarray(solve.residual_norms), initial=0.0)),
            route=posterior.equations.route,
            error=posterior.accuracy.share,
            solved=posterior.accuracy.solved,
            seconds=time.perf_counter() - began,
            memory=peak_memory(),
            interrupted=interrupted,
        )

    def _fitted(self) -> Posterior:
        if self.posterior is None:
            raise NotFittedError(f"This {type(self).__name__} is not fitted yet. Call `fit` first.")
        return self.posterior

    def _noise(self, points: Tensor) -> Tensor:
        """The learned variance (m,) of new targets at points (m, d), White included, standardised."""
        kernel, noise = self._fitted().hyperparameters.kernel, self._fitted().hyperparameters.noise
        found = torch.full((len(points),), 0.0 if noise is None else float(noise.value), dtype=torch.float64)
        with torch.no_grad():
            for start in range(0, len(points), PREDICT_ROWS):
                x = self._scales[0].apply(points[start : start + PREDICT_ROWS])
                found[start : start + PREDICT_ROWS] += kernel.white(x)
        return found

    def _points(self, X: ArrayLike) -> Tensor:
        """Points (m, d) in the user's units, with as many columns as there were in `fit`."""
        points, d = as_points(X, "X"), self._fitted().problem.x.shape[1]
        if points.shape[1] != d:
            raise InputError(f"`X` must have {d} columns, as in `fit`; got {points.shape[1]}.")
        return points

    @property
    def _scales(self) -> tuple[Standardisation, Standardisation]:
        """Of X and of y."""
        assert self.x_scale is not None
        assert self.y_scale is not None
        return self.x_scale, self.y_scale

    def _out(self, values: Tensor) -> FloatArray:
        """(m, q) as the targets came."""
        return (values[:, 0] if self._squeeze else values).detach().numpy()


def _tell_constant(x_scale: Standardisation) -> None:
    """A word about columns that are held."""
    which = x_scale.constant.nonzero()[:, 0].tolist()
    if which:
        warnings.warn(ConstantColumnsWarning(which, len(x_scale.constant)), stacklevel=3)


def training_of(settings: Settings) -> Training:
    """What of the settings is about training."""
    return Training(
        method=settings.method,
        subset=settings.subset,
        subset_iterations=settings.subset_iterations,
        optimiser=settings.optimiser,
        steps=settings.steps,
        learning_rate=settings.learning_rate,
        probes=settings.probes,
        gradient=settings.gradient,
        preconditioner=settings.preconditioner,
        rank=settings.rank,
        tol=settings.tol,
        min_iterations=settings.min_iterations,
        max_iterations=settings.max_iterations,
        softplus=settings.softplus,
        seed=settings.random_state,
    )


def conditioning_of(settings: Settings, method: str, rows: int, calibrate: bool = False) -> Conditioning:
    """What of the settings is about the last solve and variances."""
    rank = final_rank(rows, as_bytes(settings.memory_limit))
    return Conditioning(
        method=method,
        tol=settings.test_tol,
        max_iterations=settings.test_max_iterations,
        recipe=training_of(settings).recipe(rank),
        variance=settings.variance,
        neighbours=settings.neighbours,
        seed=settings.random_state,
        unsolved=settings.unsolved,
        calibrate=calibrate,
    )
