"""Solvers, preconditioners and likelihoods over two shares of the rows give the answer of one."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from contracts.shards import Shard, over_shards
from contracts.textbook import at
from solvers.systems import columns, kernel_operator, with_spectrum
from torch import Tensor

from halfgp import (
    KernelOperator,
    Matern,
    Nystrom,
    PivotedCholesky,
    RandomlyPivotedCholesky,
    lanczos,
    log_determinant,
    minres,
)
from halfgp import cg as solve
from halfgp.likelihood.stochastic import GradientEstimator
from halfgp.operators import Operator, as_operator
from halfgp.precision import DOUBLE, HALF, SINGLE
from halfgp.solvers.inner_products import Direct, Log

N = 200
RECIPES = [PivotedCholesky(20), PivotedCholesky(), RandomlyPivotedCholesky(20), Nystrom(20)]
# The halves, a share that is almost everything, three of them, and one that holds nothing.
each_cut = pytest.mark.parametrize("cuts", [[100], [3], [50, 120], [0]], ids=str)
each_recipe = pytest.mark.parametrize("recipe", RECIPES, ids=repr)


def whole(**options: object) -> Operator:
    return as_operator(kernel_operator(N, **options))


def agree(found: Tensor, wanted: Tensor, tolerance: float = 1e-9) -> None:
    """To what rounding in another order makes of the iterations."""
    assert float((found - wanted).abs().max()) <= tolerance * float(wanted.abs().max())


@each_cut
@pytest.mark.parametrize("recipe", [None, PivotedCholesky(20)], ids=repr)
@pytest.mark.parametrize("precision", ["auto", "double"])
def test_cg(cuts: list[int], recipe: object, precision: str) -> None:
    operator, b = whole(), columns(N, 3)
    options = {"preconditioner": recipe, "tol": 1e-8, "precision": precision}
    one = solve(operator, b, **options)
    parts = over_shards(operator, cuts, lambda shard: solve(shard, b[shard.held], **options))
    agree(torch.cat([part.solution for part in parts]), one.solution, 1e-6)
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
    agree(torch.cat([part.solution for part in parts]), one.solution, 1e-3)
    assert all(part.converged for part in parts)
    agree(parts[1].errors, one.errors, 0.5)


def test_the_papers_method_in_half() -> None:
    operator, b = whole(noise=1.0), columns(N, 2)
    one = solve(operator, b, precision="half", tol=0.05)
    parts = over_shards(operator, [100], lambda s: solve(s, b[s.held], precision="half", tol=0.05))
    # Sixteen bits round what differs in its last bit differently, and a step differs by that.
    agree(torch.cat([part.solution for part in parts]), one.solution, 0.05)
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
    operator = as_operator(with_spectrum(torch.cat([torch.linspace(-2, -1, 50), torch.linspace(1, 3, 150)])))
    b = columns(N, 2)
    options = {"shifts": [0.0, 0.5], "tol": 1e-8}
    one = minres(operator, b, **options)
    parts = over_shards(operator, cuts, lambda s: minres(s, b[s.held], **options))
    agree(torch.cat([part.solution for part in parts], dim=1), one.solution, 1e-6)
    assert all(part.converged for part in parts)


@each_cut
@each_recipe
def test_preconditioners(cuts: list[int], recipe: PivotedCholesky) -> None:
    operator = whole(noise=torch.linspace(0.05, 0.2, N))
    v = columns(N, 3)
    one = recipe.build(operator)
    solved = over_shards(operator, cuts, lambda s: recipe.build(s).solve(v[s.held]))
    whitened = over_shards(operator, cuts, lambda s: recipe.build(s).whiten(v[s.held]))
    agree(torch.cat(solved), one.solve(v), 1e-5)  # rows in single, from which the factor comes
    lengths = torch.cat(whitened).square().sum(dim=0)
    agree(lengths, (v * one.solve(v)).sum(dim=0), 1e-5)
    numbers = over_shards(operator, cuts, lambda s: _numbers(recipe.build(s)))
    for found in numbers:
        assert found == pytest.approx(_numbers(one), rel=1e-5)


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
        assert found.value == pytest.approx(one.value, rel=1e-6)
        assert found.standard_error == pytest.approx(one.standard_error, rel=1e-4)


@pytest.mark.parametrize("kind", ["pathwise", "hutchinson"])
def test_a_step_of_a_fit(kind: str) -> None:
    """Right-hand sides, their solves and the gradient: what a stochastic fit repeats."""
    x, y = columns(N, 2, seed=3), columns(N, 1, seed=4)
    point = at(1.5 * Matern(1.5, [0.8, 1.2]), noise=0.1, mean=[0.2])
    operator = KernelOperator(point.kernel, x, noise=0.1, precision="double", backend="reference")
    drawn = GradientEstimator.draw(point, x, y, fixed_noise=None, kind=kind, probes=4, priors={}, seed=0)

    def gradient(matrix: KernelOperator | Shard, held: slice) -> dict[str, Tensor]:
        mine = replace(drawn, x=x[held], y=y[held], probes=drawn.probes[held])
        sides = mine.right_hand_sides(point, matrix.nugget)
        solutions = solve(matrix, sides, tol=1e-8, preconditioner=PivotedCholesky(20)).solution
        return mine.gradient(point, matrix, solutions)  # type: ignore[arg-type]

    one = gradient(operator, slice(0, N))
    for found in over_shards(operator.bound, [80], lambda s: gradient(s, s.held)):
        assert set(found) == set(one)
        for name in one:
            agree(found[name], one[name], 1e-5)


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
    v, i = columns(N, 2), torch.tensor([150, 3, 99, 100, 3])
    for found, gathered in over_shards(
        operator, [100], lambda s: (s.at(v[s.held], i), s.gathered(v[s.held]))
    ):
        assert torch.equal(found, v[i])
        assert torch.equal(gathered, v)
