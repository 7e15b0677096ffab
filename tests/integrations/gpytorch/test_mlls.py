"""Our marginal likelihood in place of GPyTorch's."""

from __future__ import annotations

import gpytorch
import pytest
import torch
from gpytorch.kernels import MaternKernel, PeriodicKernel, RBFKernel, ScaleKernel

from halfgp import InputError
from halfgp.integrations.gpytorch import ExactMarginalLogLikelihood, likelihood_terms

KERNELS = {
    "matern": lambda: ScaleKernel(MaternKernel(1.5, ard_num_dims=3)),
    "sum": lambda: ScaleKernel(RBFKernel()) + PeriodicKernel(active_dims=[1]),
}


class Model(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood, kernel):
        super().__init__(x, y, likelihood)
        self.mean_module, self.covar_module = gpytorch.means.ConstantMean(), kernel

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def rows(n):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, 3, generator=generator, dtype=torch.float64)
    return x, torch.sin(2 * x).sum(dim=1) + 0.3 * torch.randn(n, generator=generator, dtype=torch.float64)


def evaluated(kind, kernel, x, y, prior=False):
    """The value per row, and its gradient in every parameter."""
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Model(x, y, likelihood, kernel()).double()
    if prior:
        density = gpytorch.priors.GammaPrior(3.0, 6.0)
        likelihood.register_prior("noise_prior", density.double(), lambda m: m.noise, lambda m, v: None)
    value = kind(likelihood, model)(model(x), y)
    value.backward()
    return value.detach(), torch.cat([p.grad.reshape(-1) for p in model.parameters()])


@pytest.mark.parametrize("prior", [False, True])
@pytest.mark.parametrize("name", KERNELS)
def test_value_and_gradient_are_gpytorchs_where_both_are_exact(name, prior):
    x, y = rows(300)
    ours = evaluated(ExactMarginalLogLikelihood, KERNELS[name], x, y, prior)
    theirs = evaluated(gpytorch.mlls.ExactMarginalLogLikelihood, KERNELS[name], x, y, prior)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", KERNELS)
def test_beyond_cholesky_they_are_within_the_error_of_their_probes(name):
    n = 900
    x, y = rows(n)
    with gpytorch.settings.max_cholesky_size(n):
        value, gradient = evaluated(gpytorch.mlls.ExactMarginalLogLikelihood, KERNELS[name], x, y)
    found = []
    for seed in range(8):
        with probes_of(seed):
            found.append(evaluated(ExactMarginalLogLikelihood, KERNELS[name], x, y))
    values, gradients = (torch.stack(parts) for parts in zip(*found, strict=True))
    for exact, draws in ((value, values), (gradient, gradients)):
        error = draws.std(dim=0) / 8**0.5
        # Targets are solved for to 0.03, whitened: a gradient of theirs is off by that at most, relatively to
        # the quadratic form, whose size per row is about a half.
        assert bool(((draws.mean(dim=0) - exact).abs() < 5 * error + 0.03 * 0.5).all())
        assert float(error.norm()) < 0.1 * float(exact.norm())  # it does tell something


class probes_of:
    """Other random signs."""

    def __init__(self, seed):
        self._seed, self._plain = seed, likelihood_terms.krylov_terms

    def __enter__(self):
        plain, seed = self._plain, self._seed
        likelihood_terms.krylov_terms = lambda *args, **options: plain(*args, seed=seed, **options)

    def __exit__(self, *_):
        likelihood_terms.krylov_terms = self._plain


def test_a_precision_that_is_none_is_refused():
    x, y = rows(5)
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    with pytest.raises(InputError, match="precision"):
        ExactMarginalLogLikelihood(likelihood, Model(x, y, likelihood, RBFKernel()), precision="quarter")
