"""A model conditioned on its rows: one solve, then products for whatever is asked about new points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from halfgp.errors import InputError
from halfgp.hyperparameters import Hyperparameters
from halfgp.kernels.random_features import PriorSamples
from halfgp.neighbours import LocalPosterior
from halfgp.operators import KernelOperator
from halfgp.planner import PROBES, choose_variance
from halfgp.precision import DOUBLE, SINGLE, Precision
from halfgp.preconditioners import LowRankPlusNoise, PivotedCholesky, Preconditioner, PreconditionerConfig
from halfgp.prediction.factor import CholeskyFactor
from halfgp.prediction.truncation import TruncatedMean
from halfgp.problem import Problem, residual_precision
from halfgp.solvers import Callback, SolveResult, cg, log_determinant

SAMPLE_FEATURES = 2048
# What CG has not found of a probe yet only lowers the trace, and so the correction.
PROBE_TOL = 0.05
COLUMNS = 64  # right-hand sides of one solve
CHUNK_BYTES = 2**28
CANCELLATION_ROWS = 256
VARIANCE_ERROR = 12.0  # units of rounding: three times what was found, with noise from 1e-5 to 0.1


@dataclass(frozen=True)
class Conditioning:
    """How a model is conditioned on its rows.

    Attributes:
        method: "cholesky" for a factor in double, "cg" for a solve.
        tol: true relative residual of the solve for the targets.
        max_iterations: of it.
        recipe: of its preconditioner.
        variance: "cholesky" (a factor in single), "local", or "auto": the factor where rows and memory allow.
        neighbours: of local variances; None is automatic.
        seed: of estimates.
    """

    method: str
    tol: float
    max_iterations: int
    recipe: PreconditionerConfig | None
    variance: str
    neighbours: int | None
    seed: int

    def factor_dtype(self, rows: int, memory_limit: int | None) -> torch.dtype | None:
        """The format of the dense factor, or None where there is none."""
        if self.method == "cholesky":
            return torch.float64
        chosen = choose_variance(self.variance, rows, memory_limit)
        return torch.float32 if chosen == "cholesky" else None


class Prediction(NamedTuple):
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
    def joined(cls, parts: Sequence[Prediction]) -> Prediction:
        """One after the other."""
        whole = [None if column[0] is None else torch.cat(column) for column in zip(*parts, strict=True)]
        assert whole[0] is not None
        return cls(whole[0], *whole[1:])


class Posterior:
    """What predictions are made of; a factor and the like are built when they are first needed.

    Attributes:
        problem: rows.
        hyperparameters: where.
        conditioning: how.
        weights: (n, q) (K + noise)^-1 (y - mean).
        correction: (n, q) estimate of what the weights still lack.
        solve: the outcome of the solve, or None for a direct one.
        variance_scale: of local variances.
    """

    def __init__(
        self,
        problem: Problem,
        hyperparameters: Hyperparameters,
        conditioning: Conditioning,
        weights: Tensor,
        correction: Tensor,
        solve: SolveResult | None = None,
        variance_scale: float = 1.0,
    ) -> None:
        self.problem, self.hyperparameters, self.conditioning = problem, hyperparameters, conditioning
        self.weights, self.correction, self.solve = weights, correction, solve
        self.variance_scale = variance_scale

    def __getstate__(self) -> dict[str, Any]:
        """Without what is built when needed: operators hold native memory, a factor n² numbers."""
        lazy = {name for name, value in vars(type(self)).items() if isinstance(value, cached_property)}
        return {name: value for name, value in vars(self).items() if name not in lazy}

    @cached_property
    def factor(self) -> CholeskyFactor | None:
        """Dense, where the conditioning has one."""
        dtype = self.conditioning.factor_dtype(self.problem.rows, self.problem.memory_limit)
        if dtype is None:
            return None
        try:
            point, scale = self.hyperparameters.normalised()
            return CholeskyFactor.build(self.problem.operator(point, self.precision), dtype, scale)
        except InputError:
            if self.conditioning.method == "cholesky" or self.conditioning.variance != "auto":
                raise
            return None  # the noise is too small for a factor in single: nobody asked for one

    @cached_property
    def local(self) -> LocalPosterior:
        """Variances without a factor."""
        return LocalPosterior.build(
            self.problem, self.hyperparameters, self.conditioning.neighbours, self.variance_scale
        )

    @cached_property
    def truncated(self) -> TruncatedMean | None:
        """Means in few dimensions."""
        if self.conditioning.method == "cholesky":
            return None
        precision = Precision.resolve(self.mean_precision)
        return TruncatedMean.build(self.problem, self.hyperparameters, precision)

    @cached_property
    def built(self) -> Preconditioner:
        """The preconditioner of solves: the factor, if there is one."""
        recipe: Any = self.conditioning.recipe or PivotedCholesky()
        built: Preconditioner = self.factor or recipe.build(self.operator)
        return built

    @cached_property
    def operator(self) -> KernelOperator:
        """K + noise."""
        return self.problem.operator(self.hyperparameters, self.precision)

    @property
    def precision(self) -> str:
        """Of solves and covariances: double with a factor in double, otherwise single."""
        return "double" if self.conditioning.method == "cholesky" else "single"

    @cached_property
    def mean_precision(self) -> str:
        """Of products with the weights: single, unless its rounding would show beside the noise.

        Smooth kernels with little noise have large weights of either sign, whose products cancel. How much
        is looked at on some of the rows.
        """
        if self.precision == "double":
            return "double"
        some = self.problem.x[:: max(1, self.problem.rows // CANCELLATION_ROWS)]
        operator = self.problem.cross(self.hyperparameters, some, "single")
        largest = float(torch.as_tensor(operator @ self.weights.abs()).max())
        return (
            "double" if _rounding("single") * largest > float(self.operator.nugget.min().sqrt()) else "single"
        )

    def predict(self, x: Tensor, *, variance: bool = False, errors: bool = False) -> Prediction:
        """Means at points (m, d), and what else is asked for; O(m (d + q)) memory beside chunks."""
        q = self.weights.shape[1]
        w = torch.cat([self.weights, self.correction, self.weights.abs()], dim=1) if errors else self.weights
        product = self._product(x, w)
        mean = product[:, :q]
        if self.hyperparameters.mean is not None:
            mean = mean + self.hyperparameters.mean.value
        mean_error = None
        if errors:
            # What the solve left, and the rounding of entries and weights in the product.
            rounding = _rounding(self.mean_precision) * product[:, 2 * q :].abs()
            mean_error = product[:, q : 2 * q].abs() + rounding
        variances, variance_error = self._variance(x, errors) if variance else (None, None)
        return Prediction(mean, variances, mean_error, variance_error)

    def covariance(self, x: Tensor) -> Tensor:
        """The covariance (m, m) of the latent function at points (m, d), float64, no variance below 0."""
        kernel = self.hyperparameters.kernel
        with torch.no_grad():
            own = kernel(x, x)
            cross = self._cross(x).T
            if self.factor is not None:
                white = self.factor.whiten(cross).double()
                result = own - white.T @ white
            else:
                result = own - cross.double().T @ self._solve_columns(cross.double())
        result = 0.5 * (result + result.T)
        result.diagonal().clamp_min_(0.0)
        return result

    def sample(self, x: Tensor, samples: int, seed: int, noise: float = 0.0) -> Tensor:
        """Draws (m, samples, q) by Matheron's rule: a draw of the prior, corrected by the data.

        The draws are functions: at more points, or the same in another order, they have the same values.

        Args:
            x: points (m, d).
            samples: how many.
            seed: of everything random.
            noise: variance to add to every value, independently; the draws are functions no longer.
        """
        problem, point = self.problem, self.hyperparameters
        q = self.weights.shape[1]
        generator = torch.Generator().manual_seed(seed)
        # A seed of its own: with the same one, frequencies and noise would be the same numbers.
        another = int(torch.randint(2**62, (), generator=generator))
        prior = PriorSamples.draw(point.kernel, x.shape[1], samples * q, SAMPLE_FEATURES, another)
        nugget = self.operator.nugget.sqrt()
        of_rows = torch.randn(problem.rows, samples * q, generator=generator, dtype=torch.float64)
        of_rows = of_rows * (nugget[:, None] if nugget.ndim else nugget)
        lacking = self._solve_columns(prior.samples_at(point.kernel, problem.x) + of_rows)
        draws = (prior.samples_at(point.kernel, x) - self._product(x, lacking)).reshape(len(x), samples, q)
        if noise:
            new = torch.randn(draws.shape, generator=generator, dtype=torch.float64)
            draws = draws + math.sqrt(noise) * new
        return draws + self.predict(x).mean[:, None]

    def log_marginal_likelihood(self) -> tuple[float, float]:
        """The value and its standard error, of the standardised targets."""
        n, q = self.problem.y.shape
        r = self.hyperparameters.centred(self.problem.y)
        if self.factor is not None:
            log_det, error = self.factor.log_determinant(), 0.0
        else:
            built = self.built if isinstance(self.built, LowRankPlusNoise) else None
            found = log_determinant(self.operator, preconditioner=built, seed=self.conditioning.seed)
            log_det, error = found.value, found.standard_error
        value = -0.5 * (float((r * self.weights).sum()) + q * log_det + n * q * math.log(2 * math.pi))
        return value, 0.5 * q * error

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Means (n, q) and variances (n,) of each row's target, given all the others; noise included.

        With d = diag((K + noise)^-1): mean y - w / d, variance 1 / d. Without a factor 1 / d is the local
        variance without the row, plus its noise.
        """
        variance = self.leave_one_out_variance(torch.arange(self.problem.rows))
        return self.problem.y - self.weights * variance[:, None], variance

    def leave_one_out_variance(self, rows: Tensor) -> Tensor:
        """Variances (m,) of the targets of some rows, each given all the others; noise included."""
        if self.factor is not None:
            return 1.0 / self.factor.inverse_diagonal(rows)
        latent, _ = self.local(self.problem.x[rows], leave_out=rows)
        nugget = self.operator.nugget
        return latent + (nugget[rows] if nugget.ndim else nugget)

    def rescaled(self, scale: float) -> Posterior:
        """The same with K + noise multiplied by a number: the same means, and every variance times it."""
        other = Posterior(
            self.problem,
            self.hyperparameters.scaled(scale),
            self.conditioning,
            self.weights / scale,
            self.correction / scale,
            self.solve,
            self.variance_scale,
        )
        if self.factor is not None:
            other.factor = self.factor.scaled(scale)
        return other

    def _product(self, x: Tensor, w: Tensor) -> Tensor:
        """K(x, rows) w (m, t), float64."""
        if self.truncated is not None:
            return self.truncated(x, w)
        operator = self.problem.cross(self.hyperparameters, x, self.mean_precision)
        return torch.as_tensor(operator @ w).double()

    def _cross(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.problem.cross(self.hyperparameters, x, self.precision).to_dense())

    def _variance(self, x: Tensor, errors: bool) -> tuple[Tensor, Tensor | None]:
        """Variances (m,) and their errors, in chunks."""
        if self.factor is None:
            variance, gap = self.local(x)
            return variance, gap if errors else None
        prior = self.hyperparameters.kernel.diagonal(x, white=False).detach()
        size = max(1, CHUNK_BYTES // (3 * self.problem.rows * self.factor.lower.dtype.itemsize))
        explained, amplified = torch.empty_like(prior), torch.zeros_like(prior)
        for start in range(0, len(x), size):
            some = slice(start, start + size)
            white = self.factor.whiten(self._cross(x[some]).T)
            explained[some] = white.double().square().sum(dim=0)
            if errors:
                amplified[some] = self.factor.solve_whitened(white).double().square().sum(dim=0)
        fmt = SINGLE if self.factor.lower.dtype == torch.float32 else DOUBLE
        # A factor is exact for a matrix E away, by some eps in every entry. With w = (K + noise)^-1 k the
        # variance is then off by w'E w, and E is as good as random.
        error = VARIANCE_ERROR * fmt.eps * prior * (1.0 + amplified) if errors else None
        return (prior - explained).clamp_min(0.0), error

    def _solve_columns(self, b: Tensor) -> Tensor:
        """(K + noise)^-1 b for (n, t), as exactly as the weights."""
        if self.conditioning.method == "cholesky":
            return self.built.solve(b)
        solution = torch.empty_like(b)
        for start in range(0, b.shape[1], COLUMNS):
            some = slice(start, start + COLUMNS)
            result = cg(
                self.operator,
                b[:, some].contiguous(),
                preconditioner=self.built,
                tol=self.conditioning.tol,
                max_iterations=self.conditioning.max_iterations,
                residual_precision=residual_precision(self.conditioning.tol),
            )
            solution[:, some] = torch.as_tensor(result.solution)
        return solution


def _rounding(precision: str) -> float:
    """Of an entry times a weight, relative: a few units in the last place."""
    return 4.0 * Precision.resolve(precision).vectors.eps


def condition(
    problem: Problem,
    hyperparameters: Hyperparameters,
    conditioning: Conditioning,
    start: Tensor | None = None,
    observe: Callback | None = None,
) -> Posterior:
    """Solve for the weights, from `start` (n, q) where there is one.

    Args:
        problem: rows.
        hyperparameters: where.
        conditioning: how.
        start: of the solve.
        observe: called as observe(iteration, residuals) in every iteration, with those of the targets (q,).
    """
    r = hyperparameters.centred(problem.y)
    posterior = Posterior(problem, hyperparameters, conditioning, torch.zeros_like(r), torch.zeros_like(r))
    if conditioning.method == "cholesky":
        posterior.weights = posterior.built.solve(r)
    elif posterior.factor is not None:
        posterior.solve = _solve(posterior, r, posterior.factor.solve(r), observe)
        posterior.weights = torch.as_tensor(posterior.solve.solution)
    else:
        _solve_and_calibrate(posterior, r, start, observe)
        return posterior
    residual = r - torch.as_tensor(posterior.operator.with_precision("double") @ posterior.weights)
    posterior.correction = posterior.built.solve(residual)
    return posterior


def _solve(
    posterior: Posterior,
    b: Tensor,
    start: Tensor | None,
    observe: Callback | None,
    probes: Tensor | None = None,
) -> SolveResult:
    """For b (n, q), and after it for probes, which need not come as far."""
    conditioning = posterior.conditioning
    others = torch.empty(len(b), 0, dtype=b.dtype) if probes is None else probes
    return cg(
        posterior.operator,
        torch.cat([b, others], dim=1),
        preconditioner=posterior.built,
        x0=None if start is None else torch.cat([start, torch.zeros_like(others)], dim=1),
        tol=[conditioning.tol] * b.shape[1] + [PROBE_TOL] * others.shape[1],
        max_iterations=conditioning.max_iterations,
        callback=None if observe is None else lambda i, residuals: observe(i, residuals[: b.shape[1]]),
    )


def _solve_and_calibrate(
    posterior: Posterior, r: Tensor, start: Tensor | None, observe: Callback | None
) -> None:
    """Weights, and the scale of local variances, from one solve.

    The scale needs the trace of (K + noise)^-1, which random signs tell. They ride along with the targets: a
    product with a few columns costs hardly more than with one.
    """
    n, q = r.shape
    seed = posterior.conditioning.seed
    signs = torch.randint(0, 2, (n, PROBES), generator=torch.Generator().manual_seed(seed)).double() * 2 - 1
    solve = _solve(posterior, r, start, observe, signs)
    solution, earlier = torch.as_tensor(solve.solution), torch.as_tensor(solve.earlier)
    posterior.solve = solve.columns(q)
    posterior.weights = solution[:, :q].clone()
    # What the last factor of `EARLIER` in the residual changed: more than what is still to come.
    posterior.correction = posterior.weights - earlier[:, :q]
    at_once = (posterior.correction == 0).all(dim=0)
    if bool(at_once.any()):
        # A solve that was done where it began has no earlier iterate. Its preconditioner is then as good as
        # an inverse, and tells what is lacking.
        residual = r - torch.as_tensor(posterior.operator.with_precision("double") @ posterior.weights)
        posterior.correction[:, at_once] = posterior.built.solve(residual[:, at_once])
    trace = float((signs * solution[:, q:]).sum()) / PROBES
    local = posterior.local.calibrated(trace, posterior.operator.nugget, seed)
    posterior.variance_scale = local.scale
    posterior.local = local
