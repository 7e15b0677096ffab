"""`GPRegressor`: an exact Gaussian process with the interface of scikit-learn."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
import sklearn.gaussian_process.kernels  # type: ignore[import-untyped]
from sklearn.base import BaseEstimator, RegressorMixin  # type: ignore[import-untyped]
from sklearn.utils import check_random_state  # type: ignore[import-untyped]
from sklearn.utils.validation import check_array, check_is_fitted, validate_data  # type: ignore[import-untyped]

from halfgp.archive import load_model, save_model
from halfgp.data import ArrayLike, check_exact
from halfgp.errors import FileError, InputError
from halfgp.kernels import Kernel
from halfgp.model import (
    ExactGP,
    FitCallback,
    FloatArray,
    LeaveOneOut,
    LogLikelihood,
    PredictionInterval,
)
from halfgp.options import Options, declarations, documented, flag, option, signature_of
from halfgp.planner import Plan
from halfgp.progress import shown_progress
from halfgp.scores import Scores
from halfgp.settings import GROUPS, Settings, SolveOptions, TrainingOptions
from halfgp.sklearn_kernels import from_sklearn_kernel
from halfgp.training import Step

NOTED = ("n_features_in_", "feature_names_in_")  # by scikit-learn, when it looks at points
POINTS = {"dtype": [np.float64, np.float32], "order": "C"}  # no wider than they came
# `ExactGP` leaves out rows without any target, with a warning. Infinity is refused.
TARGETS = {"dtype": np.float64, "ensure_2d": False, "ensure_all_finite": "allow-nan"}


@documented
@dataclass(frozen=True, eq=False, repr=False)
class EstimatorOptions(Settings):
    """What `GPRegressor` takes: what a model does, and how it is shown."""

    progress: bool = option(False, flag, "Show a progress bar.")


SIGNATURE = signature_of(EstimatorOptions)


class GPRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Exact Gaussian process regression in low precision.

    The parameters are those of `halfgp.settings.Settings`, which describes them all and has their defaults,
    and `progress`, whether to show a bar; nothing is checked before `fit`. Options of training, of solves
    and of variances come in groups: `GPRegressor(solve=SolveOptions(tol=1e-4))`, or
    `set_params(solve__tol=1e-4)`. `random_state` may also be a `RandomState`, or None.

    Attributes:
        model_: the fitted `ExactGP`.
        kernel_: as found, on standardised features and targets; where targets have rows of their own, a tuple
            with one for each of `model_.fitted.groups`.
        noise_: learned variance of standardised targets; None where every row has its own, and a tuple as
            `kernel_`.
        history_: one `Step` for each evaluation of the likelihood.
        report_: how the fit went.
        theta_: (p,) logarithms of hyperparameters, as `log_marginal_likelihood` takes them.
        relevance_: (d,) inverse lengthscales, largest 1; None for kernels without one per feature.
        n_features_in_: d.
        feature_names_in_: (d,) where `X` was a data frame.
    """

    def __init__(self, *kernel: Any, **options: Any) -> None:
        given = SIGNATURE.bind(self, *kernel, **options)
        given.apply_defaults()
        for name, value in list(given.arguments.items())[1:]:
            setattr(self, name, value)

    __init__.__signature__ = SIGNATURE  # type: ignore[attr-defined]

    @classmethod
    def paper(cls, kernel: str | Kernel = "rbf", precision: str = "half", **overrides: Any) -> GPRegressor:
        """As in "Low-Precision Arithmetic for Fast Gaussian Processes" (Maddox et al., 2022).

        Args:
            kernel: theirs are "rbf" and "matern32" or so.
            precision: of training solves.
            overrides: any other parameter, in groups as `group__name`.
        """
        softplus_of_zero = math.log(2)  # where GPyTorch starts lengthscales and the output scale
        options: dict[str, Any] = {
            "method": "cg",
            "training": TrainingOptions(
                subset=0,
                steps=50,
                optimiser="adam",
                learning_rate=0.1,
                softplus=True,
                probes=10,
                gradient="hutchinson",
                tol=1.0,
                min_iterations=10,
                max_iterations=50,
            ),
            "solve": SolveOptions(tol=0.01, unsolved="warn", preconditioner="pivoted_cholesky", rank=15),
            "noise": 2.0,
            "noise_floor": 1e-4,
            "lengthscale": softplus_of_zero,
            "outputscale": softplus_of_zero,
            "mean": "zero",
            "priors": "paper",
        }
        within = {name: value for name, value in overrides.items() if "__" in name}
        whole = {name: value for name, value in overrides.items() if "__" not in name}
        regressor = cls(kernel=kernel, precision=precision, **options | whole)
        return regressor.set_params(**within)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name; those of groups also as `group__name`."""
        found: dict[str, Any] = super().get_params(deep=False)
        for name in GROUPS if deep else ():
            found |= {f"{name}__{inner}": value for inner, value in self._group(name).get_params().items()}
        return found

    def set_params(self, **params: Any) -> GPRegressor:
        """Set parameters by name, or, within a group, as `group__name`; the group is then another one."""
        super().set_params(**{name: value for name, value in params.items() if "__" not in name})
        for name, value in params.items():
            group, inside, inner = name.partition("__")
            if inside:
                if group not in GROUPS:
                    raise InputError(f"There is no parameter `{name}`; groups are {', '.join(GROUPS)}.")
                setattr(self, group, self._group(group).with_params(**{inner: _plain(value)}))
        return self

    def _group(self, name: str) -> Options:
        """Options that go together, as given or by default."""
        given = getattr(self, name)
        return given if isinstance(given, Options) else GROUPS[name]()

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        noise: ArrayLike | None = None,
        *,
        callbacks: Sequence[FitCallback] = (),
    ) -> GPRegressor:
        """Learn hyperparameters and condition on the rows.

        Args:
            X: (n, d), finite.
            y: (n,) or (n, q) targets. Those that are known in the same rows share one kernel; of others each
                is learned from the rows that have it, as if it were fitted alone. Rows with nothing but NaN
                are left out, with a warning.
            noise: (n,) known variances of the rows, in the units of y squared, instead of a learned one.
            callbacks: each is called as callback(event), with a `Step` after every evaluation of the
                likelihood and a `SolveIteration` after every iteration of the last solve.
        """
        with self._as_it_was_unless_done():
            points, targets = self._validated(X, y, reset=True)
            model = self._unfitted(points.shape[1])
            flag("progress", self.progress)
            with shown_progress(model.settings, self.progress) as shown:
                model.fit(points, targets, noise, callbacks=(*callbacks, *shown))
        return self._take(model)

    def predict(
        self,
        X: ArrayLike,
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
        """
        found = self._fitted().predict(
            self._points(X),
            return_std=return_std,
            return_cov=return_cov,
            return_error=return_error,
            include_noise=include_noise,
        )
        asked = [part for part in found if part is not None]
        return asked[0] if len(asked) == 1 else tuple(asked)

    def predict_gradient(self, X: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """How the mean and the deviation of a new target change with the features at points (m, d).

        Returns:
            Two arrays (m, d), or (m, d, q), in the units of the target over those of the features.

        O(n (d + m)) products, and a solve for every point without a dense factor.
        """
        return self._fitted().predict_gradient(self._points(X))

    def predict_interval(
        self, X: ArrayLike, coverage: float | ArrayLike = 0.9, noise: float | ArrayLike | None = None
    ) -> PredictionInterval:
        """Where new targets will be, with the probability that is asked for, whatever residuals look like.

        Args:
            X: (m, d).
            coverage: between 0 and 1, or k of them.
            noise: known variances of the new targets, (m,) or one for all, in the units of y squared, where
                the rows had some in `fit`; without it they count as none.

        Returns:
            `lower` and `upper`, (m,) or (m, q); with k levels (k, m) or (k, m, q). They are the mean plus the
            deviation of a new target times quantiles of leave-one-out residuals.
        """
        return self._fitted().predict_interval(self._points(X), coverage, noise=noise)

    def sample_y(
        self, X: ArrayLike, n_samples: int = 1, random_state: int | np.random.RandomState | None = 0
    ) -> FloatArray:
        """Draws (m, n_samples), or (m, q, n_samples), of the function at points (m, d), without noise.

        Jointly, where there is a dense factor and up to some thousand points; otherwise, as `model_.sample`
        does it, functions by Matheron's rule, which other points find again.
        """
        model = self._fitted()
        return model.sample(self._points(X), _plain(n_samples), seed=_seed(random_state), joint=True)

    def update(self, X: ArrayLike, y: ArrayLike, noise: ArrayLike | None = None) -> GPRegressor:
        """Condition on more rows, with the hyperparameters and scales as they are.

        Args:
            X: (m, d) new points.
            y: (m,) or (m, q) their targets; each is conditioned on the rows that have it.
            noise: (m,) their variances, exactly if `fit` was given some.
        """
        model = self._fitted()
        points, targets = self._validated(X, y, reset=False)
        return self._take(model.update(points, targets, noise))

    def plan(self, X: ArrayLike, y: ArrayLike | None = None) -> Plan:
        """Memory, passes and minutes that `fit` on points (n, d) would take, before any work.

        Args:
            X: (n, d).
            y: (n,) or (n, q) targets; None counts as one, which all rows have.
        """
        points = check_array(X, **POINTS)
        targets = None if y is None else check_array(y, **TARGETS)
        return self._unfitted(points.shape[1]).plan(points, y=targets)

    def log_marginal_likelihood(
        self, theta: ArrayLike | None = None, eval_gradient: bool = False
    ) -> LogLikelihood | float | tuple[float, FloatArray]:
        """Of the training targets, in their own units.

        Args:
            theta: (p,) logarithms of other hyperparameters, as `theta_` has those that were found, in the
                order of `model_.hyperparameters.named_parameters()` without fixed ones; a mean is as it is.
            eval_gradient: add the gradient (p,) in them.

        Returns:
            Without arguments a value and its standard error, zero but for rounding where it is exact.
            Otherwise the value, and the gradient if that is asked for.
        """
        model = self._fitted()
        if theta is None and not eval_gradient:
            return model.log_marginal_likelihood()
        found, gradient = model.log_marginal_likelihood_at(model.theta if theta is None else theta)
        return (found.value, gradient) if eval_gradient else found.value

    def leave_one_out(self) -> LeaveOneOut:
        """Predictions of every training row from all the others, without fitting again.

        NaN where a row has no such target.
        """
        return self._fitted().leave_one_out()

    def scores(self, X: ArrayLike, y: ArrayLike) -> Scores:
        """RMSE, NLL, CRPS and coverage of the predictions for targets (m,) or (m, q) at points (m, d)."""
        model = self._fitted()
        return model.fitted.scores(np.asarray(y), model.predict(self._points(X), return_std=True))

    def save(self, path: str | PathLike[str]) -> None:
        """Write it to one file, which `halfgp.load` reads; without pickle."""
        names = getattr(self, "feature_names_in_", None)
        save_model(self._fitted(), path, {"feature_names": None if names is None else list(names)})

    def plot_history(self, axes: Any = None) -> Any:
        """Draw loss, hyperparameters and solves by step; needs matplotlib.

        Args:
            axes: three matplotlib axes to draw into; new ones if None.

        Returns:
            The axes.
        """
        return _plot(self._fitted().history, axes)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _unfitted(self, features: int) -> ExactGP:
        """A model with these parameters, its seed drawn; a kernel of scikit-learn is ours by then."""
        options = {d.name: _plain(getattr(self, d.name)) for d in declarations(Settings)}
        if isinstance(self.kernel, sklearn.gaussian_process.kernels.Kernel):
            options["kernel"] = from_sklearn_kernel(self.kernel, features)
        return ExactGP(**options | {"random_state": _seed(self.random_state)})

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    @contextmanager
    def _as_it_was_unless_done(self) -> Iterator[None]:
        """A fit that fails leaves no trace of its points, which scikit-learn notes before it."""
        noted = {name: value for name, value in self.__dict__.items() if name in NOTED}
        try:
            yield
        except BaseException:
            others = {name: value for name, value in self.__dict__.items() if name not in NOTED}
            self.__dict__ = others | noted
            raise

    def _fitted(self) -> ExactGP:
        check_is_fitted(self)
        model: ExactGP = self.model_
        return model

    def _take(self, model: ExactGP) -> GPRegressor:
        """Show what a fitted model found."""
        found = [fitted.posterior.hyperparameters for fitted in model.fitted.each]
        kernels = tuple(one.kernel for one in found)
        noises = tuple(None if one.noise is None else float(one.noise.value) for one in found)
        self.model_ = model
        self.kernel_ = kernels[0] if len(found) == 1 else kernels
        self.noise_ = noises[0] if len(found) == 1 else noises
        self.history_ = model.history
        self.report_ = model.report
        self.relevance_ = model.relevance
        self.theta_ = model.theta
        return self

    def _validated(self, X: ArrayLike, y: ArrayLike, reset: bool) -> tuple[FloatArray, FloatArray]:
        """Points (n, d) and targets (n,) or (n, q), by the rules of scikit-learn."""
        _check_integers(X)
        points, targets = validate_data(self, X, y, reset=reset, validate_separately=(POINTS, TARGETS))
        return points, targets

    def _points(self, X: ArrayLike) -> FloatArray:
        _check_integers(X)
        points: FloatArray = validate_data(self, X, reset=False, **POINTS)
        return points


def load(path: str | PathLike[str]) -> GPRegressor:
    """The regressor of a file that `GPRegressor.save` wrote; nothing in the file is executed.

    Raises:
        FileError: whatever is wrong with the file, and what to do.
    """
    model, extra = load_model(path)
    d = model.fitted.features
    options = model.settings.as_dict()
    given = {
        name: None if name in GROUPS and value == GROUPS[name]() else value for name, value in options.items()
    }
    regressor = GPRegressor(**given)._take(model)
    regressor.n_features_in_ = d
    names = extra.get("feature_names")
    if names is not None:
        if not isinstance(names, list) or len(names) != d or not all(isinstance(name, str) for name in names):
            raise FileError(f"`feature_names` of `{path}` must be {d} strings or null; got {names!r:.80}.")
        regressor.feature_names_in_ = np.array(names, dtype=object)
    return regressor


def _check_integers(X: Any) -> None:
    """Refuse those of an array or a frame that scikit-learn would round to float64 without a word."""
    parts = [X[name] for name in X.columns] if hasattr(X, "columns") else [X] if hasattr(X, "dtype") else []
    for part in map(np.asarray, parts):
        check_exact(part, "X")


def _plain(value: Any) -> Any:
    """A number of Python from one of NumPy, of which searches over parameters make their grids."""
    return value.item() if isinstance(value, np.generic) else value


def _seed(random_state: object) -> int:
    """An integer as it is; anything else that scikit-learn takes draws one."""
    plain = _plain(random_state)
    if isinstance(plain, int) and not isinstance(plain, bool) and 0 <= plain < 2**63:
        return plain
    try:
        return int(check_random_state(random_state).randint(2**31 - 1))
    except ValueError as error:
        raise InputError(
            f"`random_state` must be an integer from 0 on, a `RandomState` or None; got {random_state!r}."
        ) from error


def _even(rows: Sequence[FloatArray]) -> FloatArray:
    """Rows of different lengths, as groups of targets have them, filled up with NaN."""
    whole = np.full((len(rows), max(map(len, rows))), np.nan)
    for filled, row in zip(whole, rows, strict=True):
        filled[: len(row)] = row
    return whole


def _plot(history: Sequence[Step], axes: Any) -> Any:
    """Three panels over the steps of all stages, one after the other."""
    import matplotlib.pyplot as plt  # here, for not everyone who fits also draws

    if axes is None:
        axes = plt.subplots(1, 3, figsize=(12, 3.2), layout="constrained")[1]
    losses, values, solves = axes
    at = range(len(history))
    for stage in dict.fromkeys(step.stage for step in history):
        here = [k for k in at if history[k].stage == stage]
        loss = np.array([history[k].loss for k in here])
        error = np.array([history[k].loss_error for k in here])
        (line,) = losses.plot(here, loss, label=stage)
        losses.fill_between(here, loss - error, loss + error, color=line.get_color(), alpha=0.2, lw=0)
    if history:  # a line search may overshoot by far: the picture goes up to where the fit began
        low, start = min(step.loss for step in history), history[0].loss
        margin = 0.05 * (start - low) or 1.0
        if math.isfinite(low) and math.isfinite(start):
            losses.set_ylim(low - margin, start + margin)
    losses.set(xlabel="step", ylabel="loss per row")
    for name in history[0].hyperparameters if history else ():
        curves = _even([np.atleast_1d(step.hyperparameters.get(name, np.nan)) for step in history])
        (first, *_) = values.plot(at, curves, lw=1, label=[name] + ["_"] * (curves.shape[1] - 1))
        for line in values.get_lines()[-curves.shape[1] :]:
            line.set_color(first.get_color())
    values.set(xlabel="step", ylabel="value", yscale="symlog")
    solves.plot(at, [step.passes for step in history], label="passes")
    solves.set(xlabel="step", ylabel="passes over K")
    residuals = solves.twinx()
    # A factor has no residual, and zero has no place on this scale.
    residuals.semilogy(at, [step.residual or math.nan for step in history], "k.", label="residual")
    residuals.set_ylabel("relative residual (dots)")
    for panel in (losses, values):
        if panel.get_legend_handles_labels()[0]:
            panel.legend(fontsize="small")
    return axes
