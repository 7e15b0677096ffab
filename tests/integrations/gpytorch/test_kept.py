"""Who is near whom, kept between steps."""

from __future__ import annotations

import copy
import gc
import weakref

import gpytorch
import pytest
import torch

from halfgp import RBF, KernelOperator
from halfgp.integrations.gpytorch import enable
from halfgp.integrations.gpytorch.kept import FEW, Kept
from halfgp.integrations.gpytorch.kernels import KEPT
from halfgp.preconditioners import SparseInverseCholesky


@pytest.fixture
def searches(monkeypatch):
    """The recipes that were asked for a pattern."""
    asked, plain = [], SparseInverseCholesky.pattern

    def pattern(recipe, operator):
        asked.append(recipe)
        return plain(recipe, operator)

    monkeypatch.setattr(SparseInverseCholesky, "pattern", pattern)
    return asked


def operator(lengthscale=1.0, noise=0.5, n=300):
    x = torch.randn(n, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return KernelOperator(RBF(lengthscale), x, noise=noise).bound


def test_it_is_searched_for_again_where_it_does_not_serve(searches):
    kept = Kept()
    for lengthscale in (1.0, 1.1, 1.3, 1.0, 2.0, 1.9):
        kept.preconditioner(operator(lengthscale))
    assert searches == [FEW, FEW]


def test_little_noise_takes_more_of_both_and_keeps_them(searches):
    kept = Kept()
    for noise in (0.5, 1e-3, 0.5):
        kept.preconditioner(operator(noise=noise, n=3000))
    assert len(searches) == 2
    assert searches[0] == FEW
    assert searches[1].landmarks > FEW.landmarks
    assert searches[1].neighbours > FEW.neighbours


def test_weights_are_where_to_start_for_as_many_rows_and_targets_only():
    kept = Kept()
    assert kept.start(torch.zeros(5, 1)) is None
    kept.weights = torch.ones(5, 1)
    assert kept.start(torch.zeros(5, 1)) is kept.weights
    for shape in ((4, 1), (5, 2)):
        assert kept.start(torch.zeros(shape)) is None


class Model(gpytorch.models.ExactGP):
    def __init__(self, x, y):
        super().__init__(x, y, gpytorch.likelihoods.GaussianLikelihood())
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=2))

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def test_a_model_keeps_its_own_and_no_other_has_it(searches):
    """So that a script that is run again comes to the same numbers."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(900, 2, generator=generator, dtype=torch.float64)
    y = torch.sin(2 * x).sum(dim=1)
    losses = []
    with enable():
        for _ in range(2):
            model = Model(x, y).double()
            mll = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
            optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
            for _ in range(3):
                optimizer.zero_grad()
                loss = -mll(model(x), y)
                loss.backward()
                optimizer.step()
            losses.append(float(loss.detach()))
    assert losses[0] == losses[1]
    assert len(searches) == 2  # one of each model
    assert model.covar_module.base_kernel in KEPT
    assert copy.deepcopy(model).covar_module.base_kernel not in KEPT
    kernel = weakref.ref(model.covar_module.base_kernel)
    del model, mll, optimizer, loss
    gc.collect()
    assert kernel() is None
