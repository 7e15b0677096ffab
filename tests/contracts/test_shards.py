"""Solvers, preconditioners and likelihoods over two shares of the rows give the answer of one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from contracts.shards import over_problems, over_shards
from contracts.textbook import at, points, targets
from solvers.systems import columns, kernel_operator, with_spectrum
from torch import Tensor

from halfgp import (
    Matern,
    Nystrom,
    PivotedCholesky,
    RandomlyPivotedCholesky,
    lanczos,
    log_determinant,
    minres,
)
from halfgp import cg as solve
from halfgp.hyperparameters import Coordinates
from halfgp.likelihood import GradientEstimator
from halfgp.likelihood.traces import TRACES
from halfgp.model.stages import conditioning_of, training_of
from halfgp.operators import Operator, as_operator
from halfgp.precision import DOUBLE, HALF, SINGLE
from halfgp.prediction import ExactPosterior, LatentPrediction, condition
from halfgp.prediction.posterior import COVARIANCE_SHARE
from halfgp.priors import PAPER
from halfgp.problem import Problem
from halfgp.settings import Settings
from halfgp.solvers import SolveResult
from halfgp.solvers.inner_products import Direct, Log
from halfgp.threads import torch_threads
from halfgp.training import Trained, train

N = 120
RECIPES = [PivotedCholesky(20), PivotedCholesky(), RandomlyPivotedCholesky(20), Nystrom(20)]
# The halves, a share that is almost everything, three of them, and one that holds nothing.
each_cut = pytest.mark.parametrize("cuts", [[60], [3], [30, 70], [0]], ids=str)
each_recipe = pytest.mark.parametrize("recipe", RECIPES, ids=repr)


def whole(**options: object) -> Operator:
    return as_operator(kernel_operator(N, **options))


def agree(found: Tensor, wanted: Tensor, tolerance: float = 1e-9) -> None:
    """To what rounding in another order makes of the iterations."""
    assert float((found - wanted).abs().max()) <= tolerance * float(wanted.abs().max())


def agree_as_solved(
    parts: list[SolveResult], one: SolveResult, b: Tensor, least: float, dim: int = 0
) -> None:
    """To what their true residuals r allow: |A^-1 r| <= |r| / least, the least size of an eigenvalue."""
    found = torch.cat([torch.as_tensor(part.solution) for part in parts], dim=dim)
    residuals = torch.as_tensor(one.residual_norms) + torch.as_tensor(parts[0].residual_norms)
    allowed = residuals * b.norm(dim=0) / least
    assert bool(((found - torch.as_tensor(one.solution)).norm(dim=dim) <= allowed).all())


def single_rounding(operator: Operator) -> float:
    """What rounding rows in single does to solves with what is made of them: eps times the condition."""
    largest = float(torch.linalg.matrix_norm(dense(operator), 2))
    return SINGLE.eps * largest / operator.least_nugget


def dense(operator: Operator) -> Tensor:
    return operator.with_precision("double").rows(torch.arange(operator.size))


@each_cut
@pytest.mark.parametrize(
    ("recipe", "precision"),
    [(None, "double"), (PivotedCholesky(20), "auto")],
    ids=["plain", "preconditioned"],
)
def test_cg(cuts: list[int], recipe: object, precision: str) -> None:
    operator, b = whole(), columns(N, 3)
    options = {"preconditioner": recipe, "tol": 1e-8, "precision": precision}
    one = solve(operator, b, **options)
    parts = over_shards(operator, cuts, lambda shard: solve(shard, b[shard.held], **options))
    agree_as_solved(parts, one, b, operator.least_nugget)
    for part in parts:
        assert part.status == one.status
        assert part.iterations == parts[0].iterations
        assert abs(part.iterations - one.iterations) <= 1
        assert torch.equal(part.residual_norms, parts[0].residual_norms)
    assert bool((parts[0].residual_norms <= 1e-8).all())


@pytest.mark.parametrize("recipe", [None, PivotedCholesky(20)], ids=repr)
def test_cg_to_an_error_and_from_a_start(recipe: object) -> None:
    operator, b = whole(noise=torch.linspace(0.05, 0.2, N)), columns(N, 2)
    options = {"preconditioner": recipe, "tol": 0.1, "error_tol": 1e-4}
    start = 0.01 * columns(N, 2, seed=5)
    one = solve(operator, b, x0=start, **options)
    parts = over_shards(operator, [70], lambda s: solve(s, b[s.held], x0=start[s.held], **options))
    assert all(part.converged for part in parts)
    assert bool((parts[1].errors <= options["error_tol"]).all())
    assert torch.equal(parts[0].errors, parts[1].errors)
    lacking = torch.cat([part.solution for part in parts]) - one.solution
    energy = (lacking * (dense(operator) @ lacking)).sum(dim=0).sqrt()  # errors are in this norm, over √n
    assert bool((energy <= math.sqrt(N) * (one.errors + parts[0].errors)).all())


@pytest.mark.parametrize("method", ["auto", "paper"])
def test_cg_in_half(method: str) -> None:
    """Sixteen bits round what differs in its last bit differently, and all steps that follow."""
    operator, b = whole(noise=1.0), columns(N, 2)
    options = {"method": method, "precision": "half", "tol": 0.05}
    one = solve(operator, b, **options)
    parts = over_shards(operator, [60], lambda s: solve(s, b[s.held], **options))
    agree_as_solved(parts, one, b, operator.least_nugget)
    assert all(part.converged for part in parts)


@each_cut
def test_lanczos(cuts: list[int]) -> None:
    operator, start = whole(), columns(N, 2)
    one = lanczos(operator, start, steps=8, precision="double")
    parts = over_shards(
        operator, cuts, lambda s: lanczos(s, start[s.held], steps=8, precision="double", keep_basis=True)
    )
    agree(parts[0].diagonal, one.diagonal)
    agree(parts[0].off_diagonal, one.off_diagonal)
    agree(parts[0].norms, one.norms)
    basis = torch.cat([part.basis for part in parts], dim=2)[0]
    agree(basis @ basis.T, torch.eye(8, dtype=torch.float64))


@each_cut
def test_minres(cuts: list[int]) -> None:
    operator = as_operator(with_spectrum(torch.cat([torch.linspace(-2, -1, 30), torch.linspace(1, 3, 90)])))
    b = columns(N, 2)
    options = {"shifts": [0.0, 0.5], "tol": 1e-8}
    one = minres(operator, b, **options)
    parts = over_shards(operator, cuts, lambda s: minres(s, b[s.held], **options))
    agree_as_solved(parts, one, b, least=0.5, dim=1)  # of -1 + 0.5
    assert all(part.converged for part in parts)


@each_cut
@each_recipe
def test_preconditioners(cuts: list[int], recipe: PivotedCholesky) -> None:
    operator = whole(noise=torch.linspace(0.05, 0.2, N))
    v = columns(N, 3)
    one = recipe.build(operator)
    solved = over_shards(operator, cuts, lambda s: recipe.build(s).solve(v[s.held]))
    whitened = over_shards(operator, cuts, lambda s: recipe.build(s).whiten(v[s.held]))
    tolerance = single_rounding(operator)
    agree(torch.cat(solved), one.solve(v), tolerance)
    lengths = torch.cat(whitened).square().sum(dim=0)
    agree(lengths, (v * one.solve(v)).sum(dim=0), tolerance)
    numbers = over_shards(operator, cuts, lambda s: _numbers(recipe.build(s)))
    for found in numbers:
        assert found == pytest.approx(_numbers(one), rel=tolerance)


def _numbers(built: object) -> list[float]:
    return [built.log_determinant(), built.remaining_trace, built.rows_evaluated, built.rank]  # type: ignore[attr-defined]


@each_cut
@pytest.mark.parametrize("recipe", [None, PivotedCholesky(20)], ids=repr)
def test_log_determinant(cuts: list[int], recipe: object) -> None:
    operator = whole()
    one = log_determinant(operator, preconditioner=recipe, precision="double")
    for found in over_shards(
        operator, cuts, lambda s: log_determinant(s, preconditioner=recipe, precision="double")
    ):
        # Each eigenvalue is as far off as a solve: a preconditioner's by single, all others by double.
        tolerance = single_rounding(operator) * (20 if recipe else N * DOUBLE.eps / SINGLE.eps)
        assert found.value == pytest.approx(one.value, abs=tolerance)
        assert found.standard_error == pytest.approx(one.standard_error, abs=tolerance)


@dataclass
class Fit:
    """What comes of one, on all rows or on a share of them."""

    trained: Trained
    posterior: ExactPosterior
    told: LatentPrediction
    covariance: Tensor
    likelihood: float
    left_out: Tensor


def problem(precision: str = "double") -> Problem:
    x = points(N, 2)
    # No memory for a dense factor, so that the route is that of products.
    return Problem(x, targets(x), precision=precision, backend="reference", memory_limit=1)


@pytest.mark.parametrize("kind", TRACES)
def test_a_step_of_a_fit(kind: str) -> None:
    """Right-hand sides, their solves and the gradient: what a stochastic fit repeats."""
    tol, noise, lengthscales, outputscale = 1e-11, 0.1, [0.8, 1.2], 1.5
    start = at(outputscale * Matern(1.5, lengthscales), noise=noise, mean=[0.2])

    def step(rows: Problem) -> tuple[dict[str, Tensor], Tensor]:
        drawn = GradientEstimator.draw(start, rows, kind=kind, probes=4, priors={}, seed=0)
        matrix = rows.system(start, "double")
        equations = drawn.at(start, matrix)
        sides = equations.right_hand_sides
        solved = solve(matrix, sides, tol=tol, preconditioner=PivotedCholesky(20))
        return equations.gradient(torch.as_tensor(solved.solution)), sides

    one, sides = step(problem())
    # Solutions are at most |b| / noise, and off by tol of it. No entry of dK is above that of K over the
    # least parameter, and so no norm of it above n times that.
    norm = N * outputscale / min(noise, *lengthscales)
    allowed = 4 * tol * float((sides.norm(dim=0) / noise).square().sum()) * norm / N
    for found, _ in over_problems(problem(), [80], step):
        assert set(found) == set(one)
        for name in one:
            assert float((found[name] - one[name]).abs().max()) <= allowed


def test_a_whole_fit() -> None:
    """Steps on all rows, their loss, the last solve, how exact it is, and all that a posterior answers."""
    tol, steps, rate, noise = 1e-9, 4, 0.1, 0.3
    start = at(1.0 * Matern(1.5, [0.8, 1.2]), noise=noise, mean=[0.0])
    settings = Settings(method="cg").with_params(
        training__subset=0,
        training__steps=steps,
        training__tol=tol,
        training__probes=4,
        training__learning_rate=rate,
        solve__tol=tol,
        solve__preconditioner="pivoted_cholesky",
        variances__method="local",
    )
    x = points(20, 2, seed=5)

    def fit(rows: Problem) -> Fit:
        trained = train(start, rows, training_of(settings), PAPER)
        conditioning = conditioning_of(settings, "cg", rows.rows, calibrate=True)
        posterior = condition(rows, trained.hyperparameters, conditioning, trained.weights)
        return Fit(
            trained,
            posterior,
            posterior.predict(x, variance=True, errors=True),
            posterior.covariance(x),
            posterior.log_marginal_likelihood()[0],
            posterior.leave_one_out()[0],
        )

    with torch_threads(1):  # which is of the process, and not of a share
        one, shares = fit(problem()), over_problems(problem(), [80], fit)
    # Solves are off by the tolerance times the condition, as are gradients; a step by the rate times that.
    solved = tol * (N + noise) / noise
    moved = steps * rate * solved
    vector = Coordinates(start).vector
    for share in shares:
        assert [step.stage for step in share.trained.history] == ["cg"] * steps
        assert share.posterior.outcome.route == "products"
        assert share.posterior.accuracy == shares[0].posterior.accuracy
        assert share.posterior.accuracy.solved
        agree(vector(share.trained.hyperparameters), vector(one.trained.hyperparameters), moved)
        assert share.trained.history[0].loss == pytest.approx(one.trained.history[0].loss, rel=solved)
        told = share.told.mean_error + one.told.mean_error  # type: ignore[operator]
        assert bool(((share.told.mean - one.told.mean).abs() <= told).all())
        agree(share.told.variance, one.told.variance, len(vector(start)) * moved)  # type: ignore[arg-type]
        apart = (share.covariance - one.covariance).diagonal().abs()
        assert bool((apart <= 2 * COVARIANCE_SHARE * one.told.variance).all())
        assert share.likelihood == pytest.approx(one.likelihood, rel=solved)
    assert [len(share.posterior.weights) for share in shares] == [80, N - 80]
    agree(torch.cat([share.left_out for share in shares]), one.left_out, solved)


@pytest.mark.parametrize("fmt", [HALF, SINGLE, DOUBLE], ids=lambda f: f.name)
@pytest.mark.parametrize("kind", [Direct, Log])
def test_inner_products(kind: type[Direct] | type[Log], fmt: object) -> None:
    operator = as_operator(torch.eye(4, dtype=torch.float64))
    u = torch.tensor([[1.0, 2.0], [0.5, -1.0], [3.0, 0.0], [-2.0, 4.0]], dtype=torch.float64)
    inner = kind(operator, fmt)  # type: ignore[arg-type]
    wanted = inner.value(inner(u, u))
    for found in over_shards(operator, [2], lambda s: _value(kind(s, fmt), u[s.held])):  # type: ignore[arg-type]
        agree(found, wanted, 4 * fmt.eps)  # type: ignore[attr-defined]


def test_logarithmic_sums_are_shifted_by_what_is_largest_in_all_rows() -> None:
    """By its own largest each share would come to another sum: 2e6 and 2 where 1e6 is right."""
    operator = as_operator(torch.eye(2, dtype=torch.float64))
    u = torch.tensor([[1e3], [1e-3]], dtype=torch.float64)
    for found in over_shards(operator, [1], lambda s: _value(Log(s, DOUBLE), u[s.held])):
        assert float(found) == pytest.approx(1e6, rel=1e-12)


def _value(inner: Direct | Log, u: Tensor) -> Tensor:
    return inner.value(inner(u, u))


def test_rows_are_found_wherever_they_are_held() -> None:
    operator = whole()
    v, i = columns(N, 2), torch.tensor([90, 3, 59, 60, 3])
    for found, gathered in over_shards(operator, [60], lambda s: (s.at(v[s.held], i), s.gathered(v[s.held]))):
        assert torch.equal(found, v[i])
        assert torch.equal(gathered, v)
