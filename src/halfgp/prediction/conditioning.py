"""From hyperparameters to a posterior: the solve, by one route after another until it is exact enough."""

from __future__ import annotations

import logging
import math
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import torch
from torch import Tensor

from halfgp.choices import factor_bytes, routes, usable_memory
from halfgp.data import peaks
from halfgp.errors import InputError, UnsolvedError, UnsolvedWarning
from halfgp.hyperparameters import Hyperparameters
from halfgp.precision import DOUBLE
from halfgp.preconditioners import PreconditionerConfig, is_below
from halfgp.prediction.accuracy import (
    ERROR_TOL,
    IN_DOUBLE,
    NORMAL,
    QUANTILE,
    ROUNDING_ROWS,
    ROUNDING_SHARE,
    SHARE,
    VARIANCE_SHARE,
    Accuracy,
    rounding_in_double,
    rounding_of,
)
from halfgp.prediction.calibration import scales_of
from halfgp.prediction.equations import Equations
from halfgp.prediction.lazy import lazy
from halfgp.prediction.posterior import ExactPosterior
from halfgp.prediction.residuals import SAMPLE, LeftOut, Residuals
from halfgp.prediction.variances import Variances
from halfgp.problem import Problem
from halfgp.solvers import SolveCheckpoint, SolveResult, cg
from halfgp.solvers.base import EARLIER

ROWS = 512  # that are looked at, each left out: their scale is then known to ten percent
VARIANCE_ROWS = 128  # that tell whether single can hold the variances
MARGIN = 0.8  # of the first tolerance, where its deviations are those that neighbours tell
FOR_WEIGHTS = 0.8  # of the error that is allowed; the rest is for the residual itself
LEAST_EXPECTED = 0.01  # of a scale that nothing but neighbours asks for
LEAST_TOLD = 1e-3  # of a deviation: no solve by products is taken for better
LEFT_OUT_WORK = 2 * 10**11  # entries of a factor that rows are left out with, twice each
ROUNDS = 5  # of going on, each to a tolerance that the last one asked for
PROGRESS = 0.7  # of the last round's share: one that leaves more has gained nothing
SolveObserver: TypeAlias = Callable[[int, Tensor, Tensor], object]
logger = logging.getLogger("halfgp")


@dataclass(frozen=True)
class Conditioning:
    """How a model is conditioned on its rows.

    Attributes:
        method: "cholesky" for a factor in double, "cg" for a solve.
        tol: true relative residual of the solve for the targets; it goes on until its error is small beside
            the predictive deviations, too.
        max_iterations: of it.
        recipe: of its preconditioner.
        variance: "cholesky" (a factor), "local", or "auto": the factor where rows and memory allow.
        neighbours: of local variances; None is automatic.
        seed: of estimates.
        unsolved: "raise" or "warn", where no route is exact enough.
        calibrate: whether the variances of each target are multiplied by what its leave-one-out residuals
            ask for.
    """

    method: str
    tol: float
    max_iterations: int
    recipe: PreconditionerConfig | None
    variance: str
    neighbours: int | None
    seed: int
    unsolved: str = "raise"
    calibrate: bool = False


def condition(
    problem: Problem,
    hyperparameters: Hyperparameters,
    conditioning: Conditioning,
    start: Tensor | None = None,
    observe: SolveObserver | None = None,
    checkpoint: SolveCheckpoint | None = None,
) -> ExactPosterior:
    """Solve for the weights, from `start` (m, q), of the rows held here, where there is one.

    Args:
        problem: rows.
        hyperparameters: where.
        conditioning: how.
        start: of the solve.
        observe: called as observe(iteration, residuals, wanted) in every iteration, with those of the targets
            (q,) and those that they are solved to.
        checkpoint: of the solves, whose routes and rounds follow from the arguments: they are found by order.

    Raises:
        UnsolvedError: no route led to predictions whose numerical error is small beside their deviations, and
            nobody insisted.
        InputError: K + noise is not positive definite even in double.
    """
    machine = problem.least(usable_memory())
    ways = routes(conditioning.method, conditioning.variance, problem.rows, problem.memory_limit, machine)
    best: ExactPosterior | None = None
    spent: Counter[str] = Counter()
    for route in ways:
        # A dense factor is nothing to share: every rank makes one of all rows, and solves with it in no time,
        # which no file of shares of them is to hold.
        rows = problem if route == "products" else problem.alone
        kept = checkpoint if rows.ranks is problem.ranks else None
        equations = Equations(rows, hyperparameters, route, conditioning.recipe)
        if route != ways[-1] and not equations.is_told_from_rounding:
            logger.info("by %s: the noise is below the rounding of its format", route)
            continue
        try:
            way = _Route(equations, conditioning, observe, kept, spent)
            found = way.follow(start, last=route == ways[-1])
        except InputError as error:  # not positive definite in the format of the factor
            if route == ways[-1] and best is None:
                raise
            logger.info("by %s: %s", route, error)
            continue
        if found.accuracy.solved:
            return found
        logger.info("by %s: errors up to %.2g deviations", route, found.accuracy.share)
        found.equations.forget()  # two factors at once would be more than was planned
        if best is None or found.accuracy.share < best.accuracy.share or math.isnan(best.accuracy.share):
            best, start = found, found.weights * (found.scale * found.units)  # as they were solved for
            start = start if found.problem is problem else start[problem.held]
    assert best is not None
    best = replace(best, solve=_with_passes(best.solve, spent))
    message = _explained(best, ways)
    if conditioning.unsolved == "raise":
        raise UnsolvedError(
            f'{message} Or fit with `solve__unsolved="warn"`: deviations then include that error.'
        )
    warnings.warn(message, UnsolvedWarning, stacklevel=2)
    return best


class _Route:
    """One way to the weights."""

    def __init__(
        self,
        equations: Equations,
        conditioning: Conditioning,
        observe: SolveObserver | None,
        checkpoint: SolveCheckpoint | None,
        spent: Counter[str],
    ) -> None:
        self._equations, self._conditioning, self._observe = equations, conditioning, observe
        self._checkpoint = checkpoint
        self._spent = spent  # passes by precision, of all rounds of all routes
        self._variances = Variances(equations, conditioning.neighbours)
        self._products = equations.precision  # of means; in double from the second round on
        self._rows = equations.problem.some_rows(ROWS, conditioning.seed)
        self._left_out = self._variances.left_out(self._rows)
        self._sampled = self._left_out.variances

    def follow(self, start: Tensor | None, last: bool) -> ExactPosterior:
        """Solve, look, and go on until the error is small beside the deviations as calibrated.

        Args:
            start: of the solve, or None.
            last: whether there is no other route: then deviations are not calibrated below what numerical
                errors allow.
        """
        factor, b = self._equations.factor, self._equations.right_hand_side
        first = start if factor is None else factor.solve(b)
        error_tol, before = self._first_tolerance(), math.inf
        for _ in range(ROUNDS):
            posterior = self._solved(b, first, error_tol)
            scales = self._scales(posterior)
            judged = posterior.accuracy.rescaled(scales)
            # On only where the solve is what lacks, and the last round gained.
            if not SHARE < judged.share < PROGRESS * before or not posterior.solve.converged:
                break
            # For all targets alike: one that stood still would tell nothing of what it lacks.
            error_tol = error_tol * (0.5 * SHARE / judged.share)
            first, before, self._products = posterior.weights, judged.share, "double"
        if not judged.solved and last and posterior.accuracy.solved:
            shares = scales.new_tensor(posterior.accuracy.shares)
            least = (shares / SHARE).square() * (1.0 + 8.0 * DOUBLE.eps)
            scales = torch.maximum(scales, least)
        return posterior.rescaled(scales)

    def _scales(self, posterior: ExactPosterior) -> Tensor:
        """What calibration asks for (q,), by the residuals that intervals come from."""
        if not self._conditioning.calibrate:
            return posterior.weights.new_ones(posterior.weights.shape[1])
        return scales_of(posterior.hyperparameters, posterior.residuals.ordered.square())

    def _first_tolerance(self) -> Tensor:
        """The error to solve each target to (q,), before it is known what calibration will ask for.

        CG that begins again has lost its space, so that a solve that stops too early costs as much as two,
        while one that goes a little further costs a few iterations. Neighbours tell the scale roughly.
        """
        y = self._equations.problem.y
        wanted = y.new_full((y.shape[1],), FOR_WEIGHTS * ERROR_TOL)
        if not self._conditioning.calibrate or self._left_out.near is None:
            return wanted
        squares = self._left_out.near.square() / self._sampled[:, None]
        expected = scales_of(self._equations.hyperparameters, squares)
        return MARGIN * wanted * expected.clamp(LEAST_EXPECTED, 1.0).sqrt()

    def _solved(self, b: Tensor, start: Tensor | None, error_tol: Tensor) -> ExactPosterior:
        """Weights, from one solve, and how exact they are."""
        equations, q = self._equations, b.shape[1]
        solve = self._solve(b, start, error_tol)
        self._spent.update(solve.passes_by_precision)
        weights = torch.as_tensor(solve.solution).clone()
        weights, residual, correction = self._refined(solve, weights)
        accuracy = self._accuracy(solve, weights, residual, correction)
        left_out = self._left_out.joined(self._others).of(self._variances.share)
        solve = replace(solve, solution=weights, earlier=None, residual=None)  # not kept twice
        return ExactPosterior(
            equations,
            weights=weights,
            correction=correction,
            accuracy=accuracy,
            variances=self._variances,
            known_residuals=self._known_residuals(left_out, solve, residual, correction),
            solve=_with_passes(solve, self._spent),
            scale=1.0,
            units=weights.new_ones(q),
            tol=self._conditioning.tol,
            max_iterations=self._conditioning.max_iterations,
            seed=self._conditioning.seed,
        )

    def _known_residuals(
        self, rows: LeftOut, solve: SolveResult, residual: Tensor, correction: Tensor
    ) -> Residuals:
        """Of rows that are left out, with what their means are off by, and no less than is usual."""
        solution = torch.as_tensor(solve.solution)
        at_rows = [self._equations.operator.at(v, rows.rows) for v in (solution, residual, correction)]
        errors = at_rows[1] - rows.residuals(at_rows[2])  # see `_accuracy`
        if self._equations.factor is None:
            # Beyond a deviation it is the deviations that tell.
            usual = torch.as_tensor(solve.errors).clamp_max(1.0) * rows.variances.sqrt()[:, None]
            errors = torch.hypot(errors, usual)
        return Residuals.of(at_rows[0], rows, errors)

    @lazy
    def _others(self) -> LeftOut:
        """Rows that quantiles need beside those that are looked at; with a large factor as many as it can."""
        seen, n = len(self._rows), self._equations.problem.rows
        wanted = SAMPLE if self._equations.factor is None else min(SAMPLE, LEFT_OUT_WORK // n**2)
        others = self._equations.problem.some_rows(max(wanted - seen, 0), self._conditioning.seed, after=seen)
        return self._variances.left_out(others)

    def _solve(self, b: Tensor, start: Tensor | None, error_tol: Tensor) -> SolveResult:
        """For targets (m, q)."""
        observe, wanted = self._observe, self._residuals(b, error_tol)
        return cg(
            self._equations.operator,
            b,
            preconditioner=self._equations.preconditioner,
            x0=start,
            tol=wanted.tolist(),
            error_tol=error_tol.tolist(),
            max_iterations=self._conditioning.max_iterations,
            callback=None if observe is None else lambda i, residuals: observe(i, residuals, wanted),
            checkpoint=self._checkpoint,
            warn=False,  # another route may do
        )

    def _residuals(self, b: Tensor, error_tol: Tensor) -> Tensor:
        """Relative residuals (q,) at which what rows are off by is as small beside their deviations.

        In 99 % of the rows: where deviations differ much, those of the smallest ask for more than the mean.
        """
        normal = torch.special.ndtri(
            0.5 + (torch.arange(64, dtype=torch.float64, device=b.device) + 0.5) / 128
        )
        shares = normal[:, None] / self._deviations
        deviation = NORMAL / float(shares.quantile(QUANTILE))
        sizes = (
            (self._equations.operator.dot(b, b) / self._equations.problem.rows)
            .sqrt()
            .clamp_min(torch.finfo(torch.float64).tiny)
        )
        return (error_tol * deviation / sizes).clamp_max(self._conditioning.tol)

    def _refined(self, solve: SolveResult, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Weights, their residual, and an estimate of what they lack, (m, q) each."""
        residual, factor = torch.as_tensor(solve.residual), self._equations.factor
        if factor is not None:
            # One step of refinement costs a product, and tells what the next one would do.
            weights = weights + factor.solve(residual)
            residual = self._equations.residual(weights)
            self._spent["double"] += 1
            return weights, residual, factor.solve(residual)
        # What the last factor of `EARLIER` in the error changed, less that factor.
        correction = (weights - torch.as_tensor(solve.earlier)) / EARLIER
        at_once = self._equations.operator.largest(peaks(correction)) == 0
        if bool(at_once.any()):  # a solve that was done where it began has no earlier iterate
            correction[:, at_once] = self._equations.preconditioner.solve(residual[:, at_once])
        # That of a solve with few steps may be far away: of what is lacking the residual is known.
        shown, known = self._residual_of(correction), self._at_rows(residual).square().mean(dim=0).sqrt()
        return weights, residual, correction * torch.where(shown > EARLIER * known, known / shown, 1.0)

    def _residual_of(self, lacking: Tensor) -> Tensor:
        """The root mean square (q,) of what weights that lack so much (m, q) leave of the sampled rows."""
        product = self._equations.product(self._equations.problem.at(self._rows), lacking, "single")
        nugget = self._variances.noise(self._rows)[:, None]
        return (product + nugget * self._at_rows(lacking)).square().mean(dim=0).sqrt()

    def _at_rows(self, v: Tensor) -> Tensor:
        """The sampled rows (r, q) of vectors (m, q), wherever they are held."""
        return self._equations.operator.at(v, self._rows)

    @property
    def _deviations(self) -> Tensor:
        """Of predictions (m,) at the rows: of new targets, or, with noise of rows' own, of the function."""
        if self._equations.problem.fixed_noise is None:
            return self._sampled.sqrt()
        latent = self._sampled - self._variances.noise(self._rows[: len(self._sampled)])
        return latent.clamp_min(DOUBLE.eps * self._sampled).sqrt()

    def _accuracy(
        self, solve: SolveResult, weights: Tensor, residual: Tensor, correction: Tensor
    ) -> Accuracy:
        """Measured on rows that are left out.

        Weights that lack e leave a residual r = (K + noise) e, and the mean of a row that is left out lacks
        what the other rows predict of r there: r - v e, where v is its variance.
        """
        equations, variances = self._equations, self._sampled
        deviations, bounded = self._deviations[:, None], True
        if equations.factor is not None:
            errors = (self._at_rows(residual) - self._at_rows(correction) * variances[:, None]).abs()
            floor = errors.square().mean(dim=0).sqrt()
            shares = (errors / deviations).quantile(QUANTILE, dim=0)
        else:
            # Of v e CG tells the root mean square, in deviations; or a bound does.
            errors, told, bounded = self._at_rows(residual).abs(), torch.as_tensor(solve.errors), False
            if is_below(equations.preconditioner):
                solved = equations.preconditioner.solve(residual)
                lacking = (equations.operator.dot(residual, solved) / equations.problem.rows).sqrt()
                bounded = bool((lacking <= told).all())
                told = torch.minimum(told, lacking)
            typical = told.clamp_min(LEAST_TOLD) * float(self._deviations.median())
            floor = errors.square().mean(dim=0).sqrt() + typical
            shares = (errors / deviations).quantile(QUANTILE, dim=0) + NORMAL * told
        precision, rounding, sizes = self._rounding(weights)
        if len(sizes):
            rounded = rounding * sizes / deviations[: len(sizes)]
            shares = torch.maximum(shares, rounded.quantile(QUANTILE, dim=0))
        return Accuracy(
            tuple(shares.tolist()),
            tuple(floor.tolist()),
            precision,
            rounding,
            variance_share=self._variance_share,
            trusted=solve.converged or bounded,
        )

    def _rounding(self, weights: Tensor) -> tuple[str, float, Tensor]:
        """The precision of products with the weights, how they round, and products of sizes (m, q)."""
        equations = self._equations
        x = equations.problem.at(self._rows[:ROUNDING_ROWS])
        both = torch.cat([weights, weights.abs()], dim=1)
        product, sizes = equations.product(x, both, "double").chunk(2, dim=1)
        deviation = float(self._deviations.median())
        if self._products != "double":
            found = rounding_of(equations.product(x, weights, "single"), product, sizes, deviation)
            if found[0] == "single":
                return *found, sizes
        rounding = IN_DOUBLE
        if rounding * float(sizes.median()) > ROUNDING_SHARE * deviation:
            # A bound that no sum comes near: how another program rounds the same sums tells.
            again = equations.product(x, weights, "double", backend="reference")
            rounding = min(rounding, rounding_in_double(again, product, sizes))
        return "double", rounding, sizes

    @cached_property
    def _variance_share(self) -> float:
        """Of the function's variances, what a factor in single may have rounded away in most rows."""
        if self._equations.route != "single factor":
            return 0.0
        rows = self._rows[:VARIANCE_ROWS]
        at_rows, errors = self._variances.at(self._equations.problem.at(rows), errors=True)
        assert errors is not None
        # At rows that are left out it is larger than at those that are known.
        latent = torch.maximum(self._sampled[: len(rows)] - self._variances.noise(rows), at_rows)
        return float((errors / latent.clamp_min(torch.finfo(torch.float64).tiny)).quantile(0.9))


def _with_passes(solve: SolveResult, spent: Counter[str]) -> SolveResult:
    """A solve that counts the passes of all that led to it."""
    return replace(solve, passes=spent.total(), passes_by_precision=dict(spent))


def _explained(found: ExactPosterior, ways: tuple[str, ...]) -> str:
    """What is left undone, why, and what to do."""
    noise, solve = found.operator.least_nugget, found.solve
    residual = float(torch.as_tensor(solve.residual_norms).max())
    needed = f"{factor_bytes(found.problem.rows, 8) / 1e9:.1f} GB"
    room = "" if "double factor" in ways else f" A dense factor in double would need {needed}."
    if found.accuracy.variance_share > VARIANCE_SHARE:
        return (
            f"With a noise of {noise:.2g}, rounding in single is more than the variances of the function of"
            f" {found.problem.rows:,} rows.{room} Raise `noise_floor` or `memory_limit`, or take fewer rows."
        )
    return (
        f"The solve for {found.problem.rows:,} rows left an estimated error of {found.accuracy.share:.2g}"
        f" predictive deviations (99 % of rows are below; {SHARE:g} is allowed), with a noise of {noise:.2g}."
        f" By {found.equations.route} it ended ({solve.status}) after {solve.iterations} iterations, at a"
        f" relative residual of {residual:.2g}.{room} Raise `noise_floor`, `memory_limit` or"
        " `solve__max_iterations`, or take fewer rows."
    )
