"""The exact posterior: whatever is asked about new points is products with its weights."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from halfgp.backends.chain_rule import pull_back
from halfgp.data import peaks
from halfgp.errors import UnsolvedWarning
from halfgp.hyperparameters import Hyperparameters
from halfgp.kernels.random_features import PriorSamples
from halfgp.operators import KernelOperator, Operator
from halfgp.precision import DOUBLE
from halfgp.preconditioners import has_root
from halfgp.prediction.accuracy import ERROR_TOL, Accuracy
from halfgp.prediction.base import LatentPrediction, Outcome
from halfgp.prediction.equations import Equations
from halfgp.prediction.factor import CholeskyFactor
from halfgp.prediction.lazy import Lazy, lazy
from halfgp.prediction.residuals import SAMPLE, Residuals
from halfgp.prediction.variances import VARIANCE_ERROR, Variances
from halfgp.problem import Problem
from halfgp.solvers import SolveResult, cg, log_determinant

SAMPLE_FEATURES = 2048
COLUMNS = 64  # right-hand sides of one solve
JOINT_POINTS = 2048  # up to so many are drawn jointly: their covariance is a dense matrix
TRACE_PROBES = 8  # that tell how rounding adds up
LEFT_ERROR = 0.1  # of what the residual leaves of a fit, which is little
COVARIANCE_SHARE = 0.1  # of a variance: what the error of its solve may be


@dataclass(frozen=True, eq=False)
class ExactPosterior(Lazy):
    """What predictions are made of.

    Attributes:
        equations: K + noise on the rows, and what solves it.
        weights: (m, q) of the rows held here, (K + noise)^-1 (y - mean).
        correction: (m, q) estimate of what the weights still lack.
        accuracy: how exact they are.
        variances: of the function.
        known_residuals: of rows that are left out; None in a model of an earlier file, which finds them when
            they are first asked for.
        solve: the outcome of the solve.
        scale: what outputscale and noise were multiplied by after it.
        units: (q,) what targets were divided by after it.
        tol: true relative residual of later solves.
        max_iterations: of those.
        seed: of estimates.
    """

    equations: Equations
    weights: Tensor
    correction: Tensor
    accuracy: Accuracy
    variances: Variances
    known_residuals: Residuals | None
    solve: SolveResult
    scale: float
    units: Tensor
    tol: float
    max_iterations: int
    seed: int

    @property
    def problem(self) -> Problem:
        """Rows."""
        return self.equations.problem

    @property
    def hyperparameters(self) -> Hyperparameters:
        """Where."""
        return self.equations.hyperparameters

    @property
    def operator(self) -> Operator:
        """K + noise, for vectors of the rows held here."""
        return self.equations.operator

    @property
    def factor(self) -> CholeskyFactor | None:
        """Dense, if there is one."""
        return self.equations.factor

    def whole(self) -> ExactPosterior:
        """The same with the weights of all rows here, where they were shared out: it answers alone."""
        if self.problem.ranks is None:
            return self
        equations = replace(self.equations, problem=self.problem.alone)
        weights = self.operator.gathered(self.weights)
        variances = replace(self.variances, equations=equations)
        if "local" in vars(self.variances):  # made of all rows on every rank
            vars(variances)["local"] = replace(self.variances.local, problem=self.problem.alone)
        return replace(
            self,
            equations=equations,
            weights=weights,
            correction=self.operator.gathered(self.correction),
            variances=variances,
            solve=replace(self.solve, solution=weights),
        )

    @property
    def outcome(self) -> Outcome:
        """How it came about."""
        return Outcome(
            route=self.equations.route,
            variance="local" if self.equations.route == "products" else "cholesky",
            passes=self.solve.passes,
            residual=float(torch.as_tensor(self.solve.residual_norms).max()),
            error=self.accuracy.share,
            solved=self.accuracy.solved,
        )

    @property
    def skipped(self) -> float:
        """Of the covariances of all pairs of rows, the share that products pass by because they are zero."""
        return self.operator.skipped

    def predict(self, x: Tensor, *, variance: bool = False, errors: bool = False) -> LatentPrediction:
        """Means at points (m, d), and what else is asked for; O(m (d + q)) memory beside chunks.

        Where the solve is not exact enough, variances include the square of what that may have done.
        """
        q, unsolved = self.weights.shape[1], not self.accuracy.solved
        wanted = errors or (variance and unsolved)
        w = torch.cat([self.weights, self.correction, self.weights.abs()], dim=1) if wanted else self.weights
        product = self.equations.product(x, w, self.accuracy.precision)
        mean = product[:, :q]
        if self.hyperparameters.mean is not None:
            mean = mean + self.hyperparameters.mean.value.to(mean)
        variances, variance_error = self.variances.at(x, wanted) if variance or wanted else (None, None)
        mean_error = None
        if wanted and variances is not None:
            deviations = (variances + self._common_noise).sqrt()
            mean_error = self.accuracy.of_means(product[:, q : 2 * q], product[:, 2 * q :], deviations)
        if unsolved:
            self._warn()
            if variances is not None and variance_error is not None and mean_error is not None:
                variances = variances + variance_error + mean_error.square().amax(dim=1)
        if not errors:
            mean_error = None
        if not variance:
            variances = variance_error = None
        return LatentPrediction(mean, variances, mean_error, variance_error if errors else None)

    @property
    def _common_noise(self) -> float:
        """Of new targets; none where every row has its own, and nobody knows that of others."""
        if self.problem.fixed_noise is not None:
            return 0.0
        return float(self.operator.largest(peaks(self.operator.nugget.reshape(-1, 1))))

    def covariance(self, x: Tensor) -> Tensor:
        """The covariance (m, m) of the latent function at points (m, d), float64, no variance below 0."""
        kernel = self.hyperparameters.kernel
        with torch.no_grad():
            own = kernel(x, x)
            cross = self.equations.covariances(x).T
            if self.factor is not None:
                white = self.factor.whiten(cross).double()
                result = own - white.T @ white
            else:
                # The error of k'(K + noise)^-1 k is at most √(k'(K + noise)^-1 k) that of the solve.
                variance, prior = self.variances.at(x)[0], own.diagonal()
                least = torch.finfo(torch.float32).eps * prior  # of a variance that can be told from none
                room = COVARIANCE_SHARE * torch.maximum(variance, least) / (prior * self.problem.rows).sqrt()
                room = torch.where(prior > 0, room, torch.inf)
                result = own - self.operator.gram(cross, self._solve_columns(cross.double(), room))
        result = 0.5 * (result + result.T)
        result.diagonal().clamp_min_(0.0)
        if not self.accuracy.solved:
            included = self.predict(x, variance=True).variance
            assert included is not None
            result.diagonal().copy_(torch.maximum(result.diagonal(), included))
        return result

    def gradients(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Of means (m, q) and of the variance (m,) of the function at points (m, d), in the points.

        Returns:
            (m, q, d) and (m, d), float64, by products in double. The variance takes a solve for every point.
        """
        kernel, rows = self.hyperparameters.kernel, self.problem.at(self.problem.held)
        between = KernelOperator(kernel, x, rows, precision="double", backend=self.problem.backend)
        ones, each = x.new_ones(len(x), 1), torch.eye(len(x), dtype=x.dtype, device=x.device)
        of_means = [
            torch.as_tensor(between.bilinear_gradient(ones, w[:, None], inputs=True)["x1"])
            for w in self.weights.T
        ]
        cross = self.equations.covariances(x).T.double()
        solved = self._solve_columns(cross, torch.full((len(x),), ERROR_TOL, device=x.device))
        by_rows = torch.as_tensor(between.bilinear_gradient(each, solved, inputs=True)["x1"])
        with torch.enable_grad():
            leaf = x.detach().clone().requires_grad_(True)
            own = kernel.detached().diagonal(leaf, white=False).sum()
        by_own = pull_back([own], [torch.ones_like(own)], [leaf])[0]
        total = [self.operator.total(part) for part in (torch.stack(of_means, dim=1), by_rows)]
        return total[0], by_own - 2.0 * total[1]

    def sample(
        self, x: Tensor, samples: int, seed: int, noise: float | Tensor = 0.0, joint: bool = False
    ) -> Tensor:
        """Draws (m, samples, q) of the function at points (m, d).

        By Matheron's rule, a draw of the prior that is corrected by the data: those are functions, which have
        the same values at the same points whatever other points there are. Their prior is made of random
        features, so that second moments alone are exact.

        Args:
            x: points (m, d).
            samples: how many.
            seed: of everything random.
            noise: variance, or (m,) variances, to add to every value, independently; the draws are functions
                no longer.
            joint: where there is a factor, and up to `JOINT_POINTS` points, draw from the exact distribution
                at these points instead: O(n² m + m³) and no functions.
        """
        generator = torch.Generator().manual_seed(seed)
        if joint and self.factor is not None and len(x) <= JOINT_POINTS:
            draws = self._jointly(x, samples, generator)
        else:
            draws = self._functions(x, samples, generator)
        told = self.predict(x, errors=not self.accuracy.solved)
        if told.mean_error is not None:  # of a solve that is not exact enough
            lacking = torch.randn(draws.shape, generator=generator, dtype=torch.float64).to(x.device)
            draws = draws + told.mean_error[:, None] * lacking
        deviations = torch.as_tensor(noise, dtype=torch.float64, device=x.device).sqrt().reshape(-1, 1, 1)
        if bool(deviations.any()):
            new = torch.randn(draws.shape, generator=generator, dtype=torch.float64).to(x.device)
            draws = draws + deviations * new
        return draws + told.mean[:, None]

    def _jointly(self, x: Tensor, samples: int, generator: torch.Generator) -> Tensor:
        """Deviations from the mean (m, samples, q), by a root of the covariance."""
        q = self.weights.shape[1]
        normal = torch.randn(len(x), samples * q, generator=generator, dtype=torch.float64).to(x)
        return (_root(self.covariance(x)) @ normal).reshape(len(x), samples, q)

    def _functions(self, x: Tensor, samples: int, generator: torch.Generator) -> Tensor:
        """Deviations from the mean (m, samples, q), each column a function."""
        problem, hyperparameters = self.problem, self.hyperparameters
        q = self.weights.shape[1]
        # A seed of its own: with the same one, frequencies and noise would be the same numbers.
        another = int(torch.randint(2**62, (), generator=generator))
        prior = PriorSamples.draw(
            hyperparameters.kernel, x.shape[1], samples * q, SAMPLE_FEATURES, another, x.device
        )
        nugget = self.operator.nugget.sqrt()
        of_rows = torch.randn(problem.rows, samples * q, generator=generator, dtype=torch.float64)
        of_rows = of_rows[problem.held].to(nugget) * (nugget[:, None] if nugget.ndim else nugget)
        values = prior.samples_at(hyperparameters.kernel, problem.at(problem.held)) + of_rows
        lacking = self._solve_columns(values, torch.full((samples * q,), ERROR_TOL, device=x.device))
        draws = prior.samples_at(hyperparameters.kernel, x)
        draws = draws - self.equations.product(x, lacking, self.accuracy.precision)
        return draws.reshape(len(x), samples, q)

    def log_marginal_likelihood(self) -> tuple[float, float]:
        """The value and its standard error, of the standardised targets.

        With weights w that leave a residual r, y'(K + noise)^-1 y is y'w + w'r + r'(K + noise)^-1 r. In
        double the error is that of rounding (`_rounded`).
        """
        (n, q), equations = self.problem.y.shape, self.equations
        residual = equations.residual(self.weights)
        # Without a factor by another solve: a preconditioner says too much or too little.
        solved = (
            equations.preconditioner.solve(residual) if self.factor is not None else self._loosely(residual)
        )
        left = float(self.operator.dot(residual, solved).sum())
        fit = float(self.operator.dot(equations.right_hand_side + residual, self.weights).sum())
        if equations.route == "double factor":
            assert self.factor is not None
            value, log_det = fit + left, self.factor.log_determinant()
            error = self._rounded()
        else:
            root = equations.preconditioner
            known = root if has_root(root) else None
            # In double: rounding moves the least eigenvalues, and all of them the same way.
            found = log_determinant(self.operator, preconditioner=known, seed=self.seed, precision="double")
            value, log_det = fit + left, found.value
            error = found.error + (0.0 if self.factor is not None else LEFT_ERROR * left / q)
        value = -0.5 * (value + q * log_det + n * q * math.log(2 * math.pi))
        return value, 0.5 * q * error

    def _loosely(self, residual: Tensor) -> Tensor:
        """(K + noise)^-1 r for residuals (m, q), which are small: r' of it is known to `LEFT_ERROR`."""
        result = cg(
            self.operator,
            residual,
            preconditioner=self.equations.preconditioner,
            tol=LEFT_ERROR,
            max_iterations=self.max_iterations,
            residual_precision="single",
        )
        return torch.as_tensor(result.solution)

    def _rounded(self) -> float:
        """What rounding in double may have done to the log determinant and the fit of a target together.

        With E for that of K and of the factor they are off by the trace of (K + noise)^-1 E, and by w'E w. E
        is as good as random, so that norms tell; but for the diagonal, which may be rounded the same way in
        all rows, so that the trace does. Both are estimated, O(n²).
        """
        generator = torch.Generator().manual_seed(self.seed)
        signs = torch.randint(0, 2, (self.problem.rows, TRACE_PROBES), generator=generator).double() * 2 - 1
        solved = self.equations.preconditioner.solve(signs)
        trace = float(self.operator.dot(signs, solved).mean())
        norm = math.sqrt(float(self.operator.dot(solved, solved).mean()))
        weights = float(self.operator.dot(self.weights, self.weights).mean())
        prior = self.hyperparameters.kernel.diagonal(self.problem.at(self.problem.held), white=False).detach()
        size = float(self.operator.largest((prior + self.operator.nugget).max()))
        return DOUBLE.eps * size * (trace + VARIANCE_ERROR * (norm + weights))

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Means (m, q) and variances (m,) of the targets of rows held here, each given all others; noise too.

        With d = diag((K + noise)^-1): mean y - w / d, variance 1 / d. Without a factor 1 / d is the local
        variance without the row, plus its noise. Where the solve is not exact enough, variances include what
        that may have done.
        """
        variance, gap = self._left_out()
        mean = self.problem.y[self.problem.held] - self.weights * variance[:, None]
        # A mean is as far off as the variance it is made of.
        variance = variance + (self.weights.abs().amax(dim=1) * gap).square()
        if not self.accuracy.solved:
            self._warn()
            lacking = self.correction * variance[:, None]
            errors = self.accuracy.of_means(lacking, torch.zeros_like(mean), variance.sqrt())
            variance = variance + errors.square().amax(dim=1)
        return mean, variance

    def _left_out(self) -> tuple[Tensor, Tensor]:
        """Variances (m,) of targets that are left out, noise included, and how far local ones may be off."""
        rows = torch.arange(self.problem.rows, device=self.problem.device)[self.problem.held]
        if self.factor is not None:
            found = self.variances.left_out(rows).variances
            return found, torch.zeros_like(found)
        latent, gap = self.variances.local(self.problem.at(rows), leave_out=rows)
        return latent + self.variances.noise(rows), gap

    @lazy
    def residuals(self) -> Residuals:
        """Of a sample of the rows, each left out; O(1) but for models of earlier files."""
        if self.known_residuals is not None:
            return self.known_residuals
        rows = self.problem.some_rows(SAMPLE, self.seed)
        left_out = self.variances.left_out(rows).of(self.variances.share)
        weights, lacking = (self.operator.at(v, rows) for v in (self.weights, self.correction))
        lacking = left_out.residuals(lacking)
        deviations = left_out.variances.sqrt()
        return Residuals.of(
            weights, left_out, self.accuracy.of_means(lacking, torch.zeros_like(lacking), deviations)
        )

    def rescaled(self, scales: Tensor) -> ExactPosterior:
        """The same with every variance of target c times scales[c] (q,), and no mean changed.

        Their mean goes to K + noise. What a target's own scale is beside it is a matter of the units that the
        target is in, and those it is divided by: whatever is asked of targets in their own units has it.
        """
        if bool((scales == 1.0).all()):
            return self
        scale = float(scales.mean())
        units = (scales / scale).sqrt()
        equations = self.equations.scaled(scale, units)
        weights = self.weights / (scale * units)
        return replace(
            self,
            equations=equations,
            weights=weights,
            correction=self.correction / (scale * units),
            accuracy=self.accuracy.rescaled(scales, units),
            variances=self.variances.scaled(equations, scale),
            known_residuals=self.residuals.rescaled(scales),
            solve=replace(self.solve, solution=weights),
            scale=self.scale * scale,
            units=self.units * units,
        )

    def start(self, rows: int) -> Tensor:
        """Where a solve with rows added to these, so many in all, begins (rows, q): at these weights."""
        n, q = self.weights.shape
        return torch.cat([self.weights, self.weights.new_zeros(rows - n, q)])

    def _solve_columns(self, b: Tensor, error_tol: Tensor) -> Tensor:
        """(K + noise)^-1 b for (m, t), with errors of at most so many (t,), as `cg` has them."""
        if self.equations.route == "double factor":
            return self.equations.preconditioner.solve(b)
        solution = torch.empty_like(b)
        for start in range(0, b.shape[1], COLUMNS):
            some = slice(start, start + COLUMNS)
            result = cg(
                self.operator,
                b[:, some].contiguous(),
                preconditioner=self.equations.preconditioner,
                tol=self.tol,
                error_tol=error_tol[some].tolist(),
                max_iterations=self.max_iterations,
            )
            solution[:, some] = torch.as_tensor(result.solution)
        return solution

    def _warn(self) -> None:
        warnings.warn(
            f"These predictions rest on a solve whose error is an estimated {self.accuracy.share:.2g}"
            " deviations, which are widened by it. Fit again with a larger `noise_floor`, or more"
            " `memory_limit`.",
            UnsolvedWarning,
            stacklevel=4,
        )


def _root(covariance: Tensor) -> Tensor:
    """A matrix whose product with its transpose is the covariance (m, m), but for its rounding.

    A posterior covariance may be singular, as that of a point and itself, and rounding takes eigenvalues
    below zero: those are zero.
    """
    lower, failed = torch.linalg.cholesky_ex(covariance)
    root: Tensor = lower
    if int(failed):
        values, vectors = torch.linalg.eigh(covariance)
        root = vectors * values.clamp_min(0.0).sqrt()
    return root
