"""Models of GPyTorch taken over."""

from __future__ import annotations

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.kernels import (
    ConstantKernel,
    CosineKernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
)

import halfgp
from halfgp.errors import InputError
from halfgp.integrations.gpytorch.conversion import kernel_of

KERNELS = {
    "rbf": lambda: ScaleKernel(RBFKernel(ard_num_dims=3)),
    "on columns": lambda: ScaleKernel(RBFKernel(active_dims=[2])) + MaternKernel(1.5, active_dims=[0, 2]),
    "nested": lambda: ScaleKernel(
        RQKernel(active_dims=[1]) * PeriodicKernel(active_dims=[0])
        + LinearKernel(active_dims=[2])
        + ConstantKernel()
    ),
}


class Model(gpytorch.models.ExactGP):
    def __init__(self, x, y, kernel, mean):
        super().__init__(x, y, gpytorch.likelihoods.GaussianLikelihood())
        self.mean_module, self.covar_module = mean, kernel

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def model(kernel, mean=None):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 3, generator=generator, dtype=torch.float64)
    y = torch.sin(x).sum(dim=1) + 2.0
    made = Model(x, y, kernel, gpytorch.means.ConstantMean() if mean is None else mean).double()
    made.likelihood.noise = 0.05
    if mean is None:
        made.mean_module.constant = 1.5
    return made.eval()


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_has_the_same_covariance(name):
    theirs = KERNELS[name]().double()
    x = torch.randn(20, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    ours = kernel_of(theirs, 3)
    np.testing.assert_allclose(
        ours(x, x).numpy(), theirs(x).to_dense().detach().numpy(), rtol=1e-9, atol=1e-10
    )


def test_predictions_are_the_same_and_stay_so_in_a_file(tmp_path):
    theirs = model(KERNELS["on columns"]())
    x_new = torch.randn(10, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    ours = halfgp.from_gpytorch(theirs)
    mean, std = ours.predict(x_new.numpy(), return_std=True, include_noise=False)
    with torch.no_grad():
        expected = theirs(x_new)
    np.testing.assert_allclose(mean, expected.mean.numpy(), rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(std, expected.stddev.numpy(), rtol=1e-5)
    ours.save(tmp_path / "model")
    np.testing.assert_array_equal(halfgp.load(tmp_path / "model").predict(x_new.numpy()), mean)


def test_what_is_none_of_ours_is_refused():
    with pytest.raises(InputError, match="ExactGP"):
        halfgp.from_gpytorch(object())
    with pytest.raises(InputError, match="CosineKernel"):
        halfgp.from_gpytorch(model(CosineKernel()))
    with pytest.raises(InputError, match="LinearMean"):
        halfgp.from_gpytorch(model(RBFKernel(), gpytorch.means.LinearMean(3)))


class Squashes(Model):
    def forward(self, x):
        return super().forward(torch.tanh(x))


class NamesOtherwise(Model):
    def __init__(self, x, y, kernel, mean):
        super().__init__(x, y, kernel, mean)
        self.k = self._modules.pop("covar_module")

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.k(x))


@pytest.mark.parametrize(
    ("kind", "word"),
    [(Squashes, "`forward`.*another covariance"), (NamesOtherwise, "without `covar_module`")],
)
def test_a_model_that_is_more_than_its_parts_is_refused_and_never_wrong(kind, word):
    theirs = model(RBFKernel())
    strange = kind(theirs.train_inputs[0], theirs.train_targets, RBFKernel(), gpytorch.means.ZeroMean())
    with pytest.raises(InputError, match=word):
        halfgp.from_gpytorch(strange.double())


def test_a_model_without_rows_or_with_another_likelihood_is_refused():
    with pytest.raises(InputError, match="set_train_data"):
        halfgp.from_gpytorch(Model(None, None, RBFKernel(), gpytorch.means.ZeroMean()))
    theirs = model(RBFKernel())
    theirs.likelihood = gpytorch.likelihoods.MultitaskGaussianLikelihood(num_tasks=2)
    with pytest.raises(InputError, match="got MultitaskGaussianLikelihood"):
        halfgp.from_gpytorch(theirs)
