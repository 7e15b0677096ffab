"""One Lanczos process for the likelihood and its gradient, beside a dense factor."""

from __future__ import annotations

import pytest
import torch

from halfgp import RBF, KernelOperator, Matern, PivotedCholesky, SparseInverseCholesky
from halfgp.errors import InputError
from halfgp.likelihood.krylov import krylov_terms

RECIPES = [PivotedCholesky(rank=20), SparseInverseCholesky(neighbours=20, landmarks=16)]


def system(n=500, noise=0.05):
    x = torch.randn(n, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = torch.sin(2 * x).sum(dim=1, keepdim=True)
    return KernelOperator(1.5 * Matern(1.5), x, noise=noise, precision="double"), y


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: type(recipe).__name__)
def test_terms_are_those_of_a_dense_factor(recipe):
    op, y = system()
    dense = torch.as_tensor(op.to_dense())
    terms = krylov_terms(op.bound, recipe, y, probes=32)
    solved = torch.linalg.solve(dense, y)
    # Of second order in a residual of five hundredths.
    assert float(terms.quadratic / (y * solved).sum()) == pytest.approx(1.0, abs=0.01)
    assert abs(terms.log_det - float(torch.logdet(dense))) < 4 * terms.standard_error
    assert terms.standard_error < 30


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: type(recipe).__name__)
def test_pairs_have_the_trace_for_their_mean(recipe):
    op, y = system()
    dense = torch.as_tensor(op.to_dense())
    terms = krylov_terms(op.bound, recipe, y, probes=64)
    each = torch.stack(
        [
            torch.as_tensor(op.bilinear_gradient(terms.left[:, [c]], terms.right[:, [c]])["lengthscale"])
            for c in range(64)
        ]
    )
    inverse = torch.linalg.inv(dense)
    exact = float(torch.as_tensor(op.bilinear_gradient(inverse, torch.eye(500).double())["lengthscale"]))
    assert abs(float(each.mean()) - exact) < 5 * float(each.std()) / 8.0 + 0.02 * abs(exact)


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
