"""One Lanczos process for the likelihood and its gradient, beside a dense factor."""

from __future__ import annotations

import copy

import pytest
import torch

from halfgp import RBF, KernelOperator, Matern, PivotedCholesky, SparseInverseCholesky
from halfgp.errors import InputError
from halfgp.likelihood.krylov import OF_PROBES, OF_TARGETS, RESIDUAL, krylov_terms
from halfgp.likelihood.traces.base import random_signs

RECIPES = [PivotedCholesky(rank=20), SparseInverseCholesky(neighbours=20, landmarks=16)]


def system(n=500, noise=0.05):
    x = torch.randn(n, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = torch.sin(2 * x).sum(dim=1, keepdim=True)
    return KernelOperator(1.5 * Matern(1.5), x, noise=noise, precision="double"), y


def whitened(op, recipe):
    """C^-1 A C^-T and the root of the preconditioner, dense; and the least eigenvalue of the former."""
    root = recipe.build(op.bound).whiten(torch.eye(op.shape[0], dtype=torch.float64))
    matrix = root @ torch.as_tensor(op.to_dense()) @ root.T
    return root, matrix, float(torch.linalg.eigvalsh(matrix)[0])


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: type(recipe).__name__)
@pytest.mark.parametrize("steps", [100, 3])
def test_terms_are_those_of_a_dense_factor(recipe, steps):
    op, y = system()
    dense = torch.as_tensor(op.to_dense())
    terms = krylov_terms(op.bound, recipe, y, probes=32, max_iterations=steps)
    exact = float(y.T @ torch.linalg.solve(dense, y))
    root, _, least = whitened(op, recipe)
    # What is left of the form is residual' A^-1 residual: of second order, and never negative but for single
    # precision. Of a process that was ended, `cg` has brought the residual itself to 0.03.
    left = float((OF_TARGETS * (root @ y).norm()) ** 2) / least
    if steps < 100:
        left = float((RESIDUAL * y.norm()) ** 2 / torch.linalg.eigvalsh(dense)[0])
    room = 1e-4 * exact
    assert -left - room <= float(terms.quadratic) - exact <= room
    assert abs(terms.log_det - float(torch.logdet(dense))) < 4 * terms.standard_error
    assert terms.standard_error < 30 or steps < 100


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: type(recipe).__name__)
def test_pairs_have_the_trace_for_their_mean(recipe):
    op, y = system()
    dense = torch.as_tensor(op.to_dense())
    terms = krylov_terms(op.bound, recipe, y, probes=64)
    names = {"lengthscale", "outputscale"}
    slopes = {name: derivative(op, name) for name in names}
    root, _, least = whitened(op, recipe)
    solved = torch.linalg.solve(dense, torch.linalg.solve(root, random_signs_of(64)))
    for slope in slopes.values():
        exact = float((torch.linalg.inv(dense) * slope).sum())
        pairs = (solved * (slope @ terms.right)).sum(dim=0)  # with nothing cut off
        assert abs(float(pairs.mean()) - exact) < 5 * float(pairs.std()) / 8.0
        # What is cut off, e with |e|_A below 0.3 |s| over the root of the least eigenvalue, meets dA C^-T s.
        error = OF_PROBES * 500**0.5 / least**0.5
        reach = torch.linalg.solve_triangular(torch.linalg.cholesky(dense), slope @ terms.right, upper=False)
        off = ((terms.left - solved) * (slope @ terms.right)).sum(dim=0)
        assert bool((off.abs() <= error * reach.norm(dim=0)).all())
        # And it is no bias that errors over probes would not hide: what is seen of it is far less.
        assert abs(float(off.mean())) < float(pairs.std())


def random_signs_of(count):
    return random_signs(500, count, torch.Generator().manual_seed(0))


def derivative(op, name):
    """dA in one parameter, dense, by central differences of the definition."""
    kernel, x = op.kernel, torch.as_tensor(op.bound.x1)
    value = dict(kernel.named_parameters())[name].value
    above, below = (kernel.with_parameters({name: value + step})(x, x) for step in (1e-5, -1e-5))
    return (above - below) / 2e-5


def test_columns_of_probes_stop_when_they_are_known():
    op, y = system()
    widths = []

    class Watched(type(op.bound)):
        def matmul(self, v):
            widths.append(v.shape[1])
            return super().matmul(v)

    watched = copy.copy(op.bound)
    watched.__class__ = Watched
    watched.with_precision = lambda precision: watched
    terms = krylov_terms(watched, RECIPES[0].build(op.bound), y, probes=4)
    assert widths[0] == 5
    assert widths[-1] == 1
    assert widths == sorted(widths, reverse=True)
    assert terms.passes == len(widths)


def test_a_zero_right_hand_side_and_several():
    op, y = system(200)
    both = torch.cat([y, torch.zeros_like(y)], dim=1)
    terms = krylov_terms(op.bound, RECIPES[0], both)
    assert float(terms.quadratic[1]) == 0.0
    assert float(terms.quadratic[0]) > 0.0


def test_the_same_seed_gives_the_same():
    op, y = system(200)
    first, again = (krylov_terms(op.bound, RECIPES[0], y, seed=3) for _ in range(2))
    assert first.log_det == again.log_det
    assert first.log_det != krylov_terms(op.bound, RECIPES[0], y, seed=4).log_det


def test_a_preconditioner_without_a_root_is_refused():
    class Plain:
        def solve(self, v):
            return v

    op, y = system(50)
    with pytest.raises(InputError, match="root"):
        krylov_terms(KernelOperator(RBF(), torch.randn(50, 3), noise=0.1).bound, Plain(), y)
    assert op.shape == (50, 50)


FEW = SparseInverseCholesky(neighbours=2, landmarks=8, group=2)


@pytest.mark.parametrize("recipe", [RECIPES[0], FEW], ids=lambda recipe: type(recipe).__name__)
def test_weights_of_a_matrix_that_is_much_like_it_spare_products(recipe):
    op, y = system(noise=0.2)
    x = torch.as_tensor(op.bound.x1)
    before = KernelOperator(1.4 * Matern(1.5, lengthscale=1.05), x, noise=0.22, precision="double")
    start = krylov_terms(before.bound, recipe, y, probes=2).solutions
    terms, plain = (krylov_terms(op.bound, recipe, y, start=s, probes=2) for s in (start, None))
    assert terms.passes < plain.passes
    assert terms.log_det == plain.log_det
    exact = torch.linalg.solve(torch.as_tensor(op.to_dense()), y)
    root, _, least = whitened(op, recipe)
    goal = float(OF_TARGETS * (root @ y).norm())  # of the whitened residual, wherever it began
    lacking = torch.linalg.solve_triangular(root.T, exact - terms.solutions, upper=True)
    assert float(lacking.norm()) <= goal / least + 1e-4 * float(exact.norm())
    form = float((y * exact).sum())
    assert -(goal**2) / least - 1e-4 * form <= float(terms.quadratic) - form <= 1e-4 * form


@pytest.mark.parametrize("worth", [float("nan"), 1e30, -1.0])
def test_weights_that_are_worth_nothing_change_nothing(worth):
    op, y = system(200)
    both = torch.cat([y, 0.5 * y], dim=1)
    plain = krylov_terms(op.bound, RECIPES[0], both)
    worthless = krylov_terms(op.bound, RECIPES[0], both, start=worth * plain.solutions)
    torch.testing.assert_close(worthless.solutions, plain.solutions, rtol=0, atol=0)
    torch.testing.assert_close(worthless.quadratic, plain.quadratic, rtol=0, atol=0)
