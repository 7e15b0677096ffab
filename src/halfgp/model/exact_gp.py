"""`ExactGP`: an exact Gaussian process, from rows to predictions, in the units of the user."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from halfgp.choices import choose_method, usable_memory
from halfgp.cluster import make_cluster_plan
from halfgp.data import ArrayLike, as_levels, as_points
from halfgp.distributed.agreement import environment, require_agreement, together
from halfgp.distributed.heartbeat import Heartbeat
from halfgp.distributed.ranks import Ranks, ranks_here
from halfgp.distributed.traffic import Traffic
from halfgp.errors import FileError, InputError, NotFittedError
from halfgp.hyperparameters import Hyperparameters
from halfgp.kernels import Kernel
from halfgp.model.answers import FloatArray, LeaveOneOut, LogLikelihood, Prediction, PredictionInterval
from halfgp.model.callbacks import Audience, FitCallback
from halfgp.model.fit_report import FitReport
from halfgp.model.fitted import Fitted
from halfgp.model.groups import AnyFitted, FittedGroups, Group, groups_of, joined
from halfgp.model.observations import Observations, Pattern
from halfgp.model.stages import compared, conditioning_of, training_of
from halfgp.model.start import starting_point
from halfgp.model.trend import Trend, trend_of
from halfgp.planner import Plan, Preview, joined_plan, make_plan
from halfgp.prediction import ExactPosterior, Posterior, condition
from halfgp.priors import as_priors, check_names
from halfgp.problem import Problem
from halfgp.settings import MOST_SEED, Settings
from halfgp.standardise import Standardisation
from halfgp.threads import torch_threads
from halfgp.training import Checkpoint, Step, Trained, preview, train


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
        X: ArrayLike,
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
        with Heartbeat(ranks):
            with together(ranks):
                settings = self.settings.check()
            require_agreement(ranks, {**environment(), **compared(settings)})
            with together(ranks):
                rows = Observations.of(X, y, noise, settings.device)
            require_agreement(ranks, rows.fingerprints() if ranks is not None else {})
            rows.check_known()
            audience, q = Audience(callbacks), rows.targets.shape[1]
            patterns = rows.patterns(range(q))
            with together(ranks):  # machines may have more memory or less
                self._require_memory(patterns, rows.points.shape[1], ranks)
            groups, checkpoints = [], []
            for index, pattern in enumerate(patterns):
                began, some = time.perf_counter(), rows.taken(pattern)
                trend = trend_of(settings.mean, some.points, some.targets, pattern.targets, q)
                some = some.without(trend)
                scales, path = some.scales(settings), _checkpoint_path(settings, index)
                problem, some = some.problem(*scales, settings), some.forgotten()
                if pattern is patterns[-1]:  # from here on rows are here once, as standardised
                    rows = rows.forgotten()
                fitted, checkpoint = self._fit(problem, some, trend, scales, audience, ranks, path, began)
                groups.append(Group(*pattern, fitted))
                checkpoints.append(checkpoint)
        self._fitted = joined(groups, rows.dropped)
        self._checkpoints = [checkpoint for checkpoint in checkpoints if checkpoint is not None]
        for checkpoint in self._checkpoints:
            checkpoint.finish()
        self.traffic = None if ranks is None else ranks.traffic.ended()
        return self

    def _require_memory(self, patterns: Sequence[Pattern], features: int, ranks: Ranks | None) -> None:
        """Refuse what does not fit, before any work."""
        if ranks is None:
            self._planned(patterns, features).require()
            return
        for targets, which in patterns:
            whole = make_plan(len(which), features, len(targets), self.settings)
            plan = make_cluster_plan(whole, ranks=ranks.count)
            plan.require()

    def _fit(
        self,
        problem: Problem,
        about: Observations,
        trend: Trend | None,
        scales: tuple[Standardisation, Standardisation],
        audience: Audience,
        ranks: Ranks | None,
        path: Path | None,
        began: float,
    ) -> tuple[Fitted, Checkpoint | None]:
        """Learn from rows without their trend and condition on them, over ranks where there are some.

        Args:
            problem: the rows, standardised.
            about: what else is known of them.
            trend: what they are without.
            scales: what standardised them.
            audience: who hears of it.
            ranks: that share the work.
            path: of a checkpoint.
            began: when it was.

        Returns:
            What was found, and the checkpoint of what is done.
        """
        settings, (x_scale, y_scale) = self.settings, scales
        if choose_method(settings.method, problem.rows) != "cholesky":  # which every rank does by itself
            problem = replace(problem, ranks=ranks)
        start, priors = starting_point(settings, problem, x_scale), as_priors(settings.priors)
        if not isinstance(settings.priors, str):  # a named set may have more than a kernel does
            check_names(priors, start.named_parameters())
        checkpoint = self._checkpoint_of(path, problem, start, ranks)
        with torch_threads(settings.threads):
            trained = train(
                start,
                problem,
                training_of(settings),
                priors,
                checkpoint=checkpoint,
                observe=audience.see_step,
            )
            posterior = self._conditioned(problem, trained, checkpoint, audience)
        y_scale = replace(y_scale, scale=y_scale.scale * posterior.units)
        report = FitReport.of(
            posterior,
            trained.history,
            method=trained.method,
            dropped=about.dropped,
            scale=posterior.scale,
            began=began,
            interrupted=trained.interrupted,
        )
        fitted = Fitted(posterior.whole(), x_scale, y_scale, about.single, trained.history, report, trend)
        return fitted, None if trained.interrupted else checkpoint

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
        fitted, audience = self.fitted, Audience(callbacks)
        if (noise is None) != (fitted.each[0].posterior.problem.fixed_noise is None):
            raise InputError(
                "`noise` must be given to `update` exactly if it was given to `fit`:"
                " rows have variances of their own or share one."
            )
        rows = Observations.of(fitted.points(X), y, noise)
        if rows.targets.shape[1] != fitted.targets:
            raise InputError(
                f"`y` must have {fitted.targets} targets, as in `fit`; got {rows.targets.shape[1]}."
            )
        groups = []
        for group in groups_of(fitted):
            for pattern in rows.patterns(group.targets):
                if pattern.targets == group.targets and not len(pattern.rows):
                    groups.append(group)  # nothing is new
                    continue
                which = torch.cat([group.rows, fitted.rows + pattern.rows])
                found = self._extended(group, rows, pattern, audience)
                groups.append(Group(pattern.targets, which, found))
        self._fitted = joined(groups, rows.dropped)
        return self

    def _extended(self, group: Group, rows: Observations, pattern: Pattern, audience: Audience) -> Fitted:
        """A group's targets of that pattern, conditioned on the rows that have them, too."""
        began, fitted = time.perf_counter(), group.fitted
        inner = [group.targets.index(target) for target in pattern.targets]
        trend = None if fitted.trend is None else fitted.trend.of_targets(inner)
        y_scale, some = fitted.y_scale.of_columns(inner), rows.taken(pattern).without(trend)
        added = some.problem(fitted.x_scale, y_scale, self.settings)
        problem = fitted.posterior.problem.of_targets(inner).extended(added)
        # What a fit takes without its training.
        solve = self.settings.with_params(method="cg", training__subset=0, training__steps=0)
        make_plan(problem.rows, problem.x.shape[1], problem.y.shape[1], solve).require()
        method = choose_method(self.settings.method, problem.rows)
        start = fitted.posterior.start(problem.rows)
        if start is not None and len(inner) < fitted.targets:
            start = start[:, inner]
        with torch_threads(self.settings.threads):
            posterior = condition(
                problem,
                fitted.posterior.hyperparameters.of_targets(inner),
                conditioning_of(self.settings, method, problem.rows),
                start,
                audience.see_iteration,
            )
        report = FitReport.of(
            posterior,
            fitted.history,
            method=method,
            dropped=some.dropped,
            scale=fitted.report.scale,
            began=began,
        )
        return Fitted(posterior, fitted.x_scale, y_scale, fitted.single, fitted.history, report, trend)

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
        settings = self.settings.check()
        points = as_points(X, "X")
        if y is None:
            return make_plan(len(points), points.shape[1], targets, settings)
        rows = Observations.of(points, y, None, settings.device)
        rows.check_known()
        patterns = rows.patterns(range(rows.targets.shape[1]))
        return self._planned(patterns, points.shape[1], [self._preview(rows, some) for some in patterns])

    def _preview(self, rows: Observations, pattern: Pattern) -> Preview | None:
        """What a few of the rows tell that have some targets; None where all of them are soon looked at."""
        settings = self.settings
        if choose_method(settings.method, len(pattern.rows)) == "cholesky":
            return None
        some = rows.taken(pattern)
        some = some.without(
            trend_of(settings.mean, some.points, some.targets, pattern.targets, rows.targets.shape[1])
        )
        x_scale, y_scale = some.scales(settings)
        problem = some.problem(x_scale, y_scale, settings)
        start = starting_point(settings, problem, x_scale)
        with torch_threads(settings.threads):
            return preview(start, problem, as_priors(settings.priors), settings.random_state)

    def _planned(
        self,
        patterns: Sequence[Pattern],
        features: int,
        previews: Sequence[Preview | None] | None = None,
    ) -> Plan:
        """Of fits of targets that the same rows have, one after the other."""
        each = zip(patterns, previews or [None] * len(patterns), strict=True)
        return joined_plan(
            [make_plan(len(rows), features, len(some), self.settings, seen) for (some, rows), seen in each]
        )

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

    def _conditioned(
        self, problem: Problem, trained: Trained, checkpoint: Checkpoint | None, audience: Audience
    ) -> ExactPosterior:
        """The posterior where training ended."""
        settings = self.settings
        by_subset = trained.method == "cg" and 0 < settings.training.subset < problem.rows
        # Training on all rows tells the scale of one target, and not that of each of several.
        several = problem.y.shape[1] > 1
        calibrate = settings.variances.calibrate and (
            (by_subset and settings.training.subset_iterations > 0) or several
        )
        calibrate = calibrate and not trained.hyperparameters.any_fixed  # that would move them after all
        machine = problem.least(usable_memory())  # ranks build parts of one preconditioner
        conditioning = conditioning_of(settings, trained.method, problem.rows, calibrate, machine)
        hyperparameters, solves = trained.hyperparameters, None
        if checkpoint is not None and not trained.interrupted:  # who resumes that, resumes its training
            solves = checkpoint.solves(hyperparameters, conditioning.recipe)
        return condition(
            problem, hyperparameters, conditioning, trained.weights, audience.see_iteration, solves
        )

    def _checkpoint_of(
        self, path: Path | None, problem: Problem, start: Hyperparameters, ranks: Ranks | None
    ) -> Checkpoint | None:
        if path is None:
            return None
        if (ranks is None or ranks.is_first) and not path.parent.is_dir():
            raise FileError(
                f"`checkpoint` needs the directory `{path.parent}`, which is not there. Create it."
            )
        return Checkpoint.of(path, problem, start, training_of(self.settings), self.settings.priors, ranks)


def _checkpoint_path(settings: Settings, group: int) -> Path | None:
    """Where that of a group of targets is: the first has the name that is given."""
    if settings.checkpoint is None:
        return None
    path = Path(settings.checkpoint)
    return path.with_name(f"{path.name}.{group}") if group else path
