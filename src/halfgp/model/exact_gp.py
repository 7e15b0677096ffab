"""`ExactGP`: an exact Gaussian process, from rows to predictions, in the units of the user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from halfgp.compact import CompactPoints
from halfgp.data import ArrayLike, as_levels
from halfgp.distributed.ranks import ranks_here
from halfgp.distributed.traffic import Traffic
from halfgp.errors import InputError, NotFittedError
from halfgp.hyperparameters import Hyperparameters
from halfgp.kernels import Kernel
from halfgp.model.answers import FloatArray, LeaveOneOut, LogLikelihood, Prediction, PredictionInterval
from halfgp.model.callbacks import Audience, FitCallback
from halfgp.model.extending import extend
from halfgp.model.fit_report import FitReport
from halfgp.model.fitted import Fitted
from halfgp.model.fitting import fit_rows
from halfgp.model.groups import AnyFitted, FittedGroups
from halfgp.model.planning import plan_rows
from halfgp.planner import Plan
from halfgp.prediction import Posterior
from halfgp.settings import MOST_SEED, Settings
from halfgp.standardise import Standardisation
from halfgp.training import Checkpoint, Step


class ExactGP:
    """A Gaussian process conditioned exactly on its rows.

    Args:
        kernel: a name or a kernel; see `Settings`, where every other option stands too.
        options: fields of `Settings`; one within a group may also be said as in `solve__tol=1e-4`.

    What a fit finds is in `fitted`, and its parts have names here: `posterior`, `hyperparameters`, `history`,
    `report`, `x_scale`, `y_scale` and `relevance`. Before `fit` each raises a `NotFittedError`. Of targets
    that not all rows have, `fitted.groups` has those together that the same rows have, each group with a
    posterior, scales and hyperparameters of its own.

    Attributes:
        settings: as given.
        traffic: what this rank sent to others in the last fit, and waited for; None where it was alone.
    """

    def __init__(self, kernel: str | Kernel = Settings.kernel, **options: Any) -> None:
        self.settings = Settings(kernel).with_params(**options)
        self.traffic: Traffic | None = None
        self._fitted: AnyFitted | None = None
        self._checkpoints: list[Checkpoint] = []  # of a fit that is done, until the model is saved

    @classmethod
    def restored(cls, settings: Settings, fitted: AnyFitted) -> ExactGP:
        """A model that was fitted before."""
        model = cls(**settings.as_dict())
        model._fitted = fitted
        return model

    def fit(
        self,
        X: ArrayLike | CompactPoints,
        y: ArrayLike,
        noise: ArrayLike | None = None,
        *,
        callbacks: Sequence[FitCallback] = (),
    ) -> ExactGP:
        """Learn hyperparameters and condition on the rows.

        Args:
            X: (n, d), finite.
            y: (n,) or (n, q) targets. Those that are known in the same rows share one kernel; of others each
                is learned from the rows that have it, as if it were fitted alone. Rows with nothing but NaN
                are dropped, with a warning.
            noise: (n,) known variances of the rows, in the units of y squared, instead of a learned one.
            callbacks: each is called as callback(event), with a `Step` after every evaluation of the
                likelihood and a `SolveIteration` after every iteration of the last solve.

        In a process group of torch.distributed, in which every rank is given the same rows, they share the
        work, and each has the model afterwards; a rank that is lost ends all of them. See
        `halfgp.distributed`.

        Ctrl-C ends the training with what was found so far, unless there are several ranks; targets of other
        rows, whose training has not begun, are trained then. With a `checkpoint`, a fit that was interrupted
        or killed goes on where it was, in training or in the last solve, and ends with the same bits. Its
        files stay until the model is saved. A fit that fails changes nothing here.
        """
        ranks = ranks_here()
        found, checkpoints = fit_rows(self.settings, X, y, noise, Audience(callbacks), ranks)
        self._fitted, self._checkpoints = found, checkpoints
        for checkpoint in checkpoints:
            checkpoint.finish()
        self.traffic = None if ranks is None else ranks.traffic.ended()
        return self

    def predict(
        self,
        X: ArrayLike,
        *,
        return_std: bool = False,
        return_cov: bool = False,
        return_error: bool = False,
        include_noise: bool = True,
    ) -> Prediction:
        """The predictive mean (m,) or (m, q), and beside it what is asked for.

        Args:
            X: (m, d).
            return_std: add the standard deviation, of the shape of the mean.
            return_cov: add the covariance (m, m), or (q, m, m), instead; O(m²) memory.
            return_error: add a `NumericalError`, estimates of what rounding and unfinished solves did.
            include_noise: whether deviations are those of a new target, or of the function without its noise.
                That of a new target is not known where rows have variances of their own, and counts as none.

        Memory beside the results does not grow with m, but for the covariance.
        """
        return self.fitted.predict(X, std=return_std, cov=return_cov, error=return_error, noisy=include_noise)

    def predict_gradient(self, X: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """As `GPRegressor.predict_gradient`."""
        return self.fitted.gradients(X)

    def predict_interval(
        self,
        X: ArrayLike,
        coverage: float | ArrayLike = 0.9,
        *,
        noise: float | ArrayLike | None = None,
    ) -> PredictionInterval:
        """Where new targets will be, with the probability that is asked for, whatever residuals look like.

        The mean plus the deviation of a new target times quantiles of leave-one-out residuals, which the fit
        has found: of skewed ones the mean is not in the middle. Where a level asks for more than so many rows
        can tell, no end is nearer than that of a normal distribution, or than the outermost residual.

        Args:
            X: (m, d).
            coverage: between 0 and 1, or k of them.
            noise: known variances of the new targets, (m,) or one for all, in the units of y squared, where
                the rows had some in `fit`; without it they count as none.

        Returns:
            `lower` and `upper`, (m,) or (m, q); with k levels (k, m) or (k, m, q).
        """
        as_levels(coverage, "coverage")  # before any work
        return self.fitted.interval(self.fitted.predict(X, std=True, known_noise=noise), coverage)

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
        return self.fitted.sample(X, samples, noisy=include_noise, seed=seed, joint=joint)

    def update(
        self,
        X: ArrayLike,
        y: ArrayLike,
        noise: ArrayLike | None = None,
        *,
        callbacks: Sequence[FitCallback] = (),
    ) -> ExactGP:
        """Condition on more rows, with hyperparameters and scales as they are, from the last solution.

        Args:
            X: (m, d).
            y: (m,) or (m, q); each target is conditioned on the rows that have it, and rows with nothing but
                NaN are dropped, with a warning.
            noise: (m,) variances of the rows, exactly if `fit` was given some.
            callbacks: each hears of the solve, as in `fit`.
        """
        self._fitted = extend(self.settings, self.fitted, X, y, noise, Audience(callbacks))
        return self

    def log_marginal_likelihood(self) -> LogLikelihood:
        """Of the training targets, at the hyperparameters found."""
        return self.fitted.log_marginal_likelihood()

    def log_marginal_likelihood_at(self, theta: ArrayLike) -> tuple[LogLikelihood, FloatArray]:
        """Of the training targets at other hyperparameters, and its gradient (p,) in them.

        Args:
            theta: (p,) logarithms of all that is not fixed, in the order of
                `hyperparameters.named_parameters()`; a mean as it is. `theta` is where training ended.

        Exact up to `CHOLESKY_ROWS` rows; beyond by probes, with a standard error.
        """
        return self.fitted.log_marginal_likelihood_at(theta, self.settings.method)

    @property
    def theta(self) -> FloatArray:
        """(p,) as `log_marginal_likelihood_at` takes it."""
        return self.fitted.theta

    def leave_one_out(self) -> LeaveOneOut:
        """Predictions of every training row from the others, without fitting again."""
        return self.fitted.leave_one_out()

    def plan(self, X: ArrayLike, targets: int = 1, *, y: ArrayLike | None = None) -> Plan:
        """Memory, passes and minutes that `fit` on these points would take, before any work.

        Args:
            X: (n, d).
            targets: so many, which all rows have.
            y: the targets themselves, (n,) or (n, q), of which a second's look tells more.
        """
        return plan_rows(self.settings, X, y, targets)

    @property
    def is_fitted(self) -> bool:
        """Whether there is anything to ask."""
        return self._fitted is not None

    @property
    def fitted(self) -> AnyFitted:
        """Everything that the last fit found."""
        if self._fitted is None:
            raise NotFittedError(f"This {type(self).__name__} is not fitted yet. Call `fit` first.")
        return self._fitted

    @property
    def posterior(self) -> Posterior:
        """What predictions are made of, on standardised rows."""
        return self._only("posterior").posterior

    @property
    def hyperparameters(self) -> Hyperparameters:
        """As found, in standardised units."""
        return self._only("hyperparameters").posterior.hyperparameters

    @property
    def history(self) -> list[Step]:
        """Every step of training."""
        return self.fitted.history

    @property
    def report(self) -> FitReport:
        """How the fit went."""
        return self.fitted.report

    @property
    def x_scale(self) -> Standardisation:
        """What standardises points."""
        return self._only("x_scale").x_scale

    @property
    def y_scale(self) -> Standardisation:
        """What standardises targets."""
        return self._only("y_scale").y_scale

    @property
    def relevance(self) -> FloatArray | None:
        """(d,) inverse lengthscales on standardised features, largest 1; None without one per feature."""
        return self.fitted.relevance

    def _only(self, name: str) -> Fitted:
        """What was found, where there is one of what is asked for."""
        fitted = self.fitted
        if isinstance(fitted, FittedGroups):
            raise InputError(
                f"There is one `{name}` for targets that the same rows have; those of this model are in"
                f" {len(fitted.groups)} groups. Ask each of them: `fitted.groups[0].fitted`."
            )
        return fitted

    def mark_saved(self) -> None:
        """Say that the model is in a file: checkpoints of its fit, kept for that long, are removed."""
        for checkpoint in self._checkpoints:
            checkpoint.remove()
        self._checkpoints = []
