"""A step of Bayesian optimisation on our products."""

from __future__ import annotations

import botorch
import gpytorch
import numpy as np
import pytest
import torch
from botorch.acquisition import qLogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Log, Normalize
from botorch.optim import optimize_acqf
from linear_operator.settings import max_cholesky_size

import halfgp
from halfgp.errors import InputError
from halfgp.integrations.gpytorch import MaternKernel, enable, likelihood_terms

BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)


def rows(n):
    x = torch.rand(n, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    noise = torch.randn(n, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    y = -((x - 0.6) ** 2).sum(dim=1, keepdim=True) * 4 + 0.02 * noise
    return x, (y - y.mean()) / y.std()


def step(model, y, fit=True):
    torch.manual_seed(0)
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    if fit:
        fit_gpytorch_mll(mll, optimizer_kwargs={"options": {"maxiter": 5}}, max_attempts=1)
    acquisition = qLogExpectedImprovement(
        model, best_f=float(y.max()), sampler=botorch.sampling.SobolQMCNormalSampler(torch.Size([32]), seed=0)
    )
    point, value = optimize_acqf(
        acquisition, BOUNDS, q=1, num_restarts=2, raw_samples=8, options={"maxiter": 5}
    )
    return point[0], value


@pytest.mark.filterwarnings("ignore::botorch.exceptions.OptimizationWarning")
@pytest.mark.filterwarnings("ignore::botorch.exceptions.warnings.OptimizationWarning")
def test_a_kernel_of_ours_in_their_model_finds_the_same_point():
    x, y = rows(40)
    found = []
    for make in (MaternKernel, gpytorch.kernels.MaternKernel):
        torch.manual_seed(0)
        model = SingleTaskGP(x, y, covar_module=gpytorch.kernels.ScaleKernel(make(2.5, ard_num_dims=2)))
        found.append(step(model, y))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=0, atol=1e-3)
    torch.testing.assert_close(found[0][1], found[1][1], rtol=0, atol=1e-2)


@pytest.mark.filterwarnings("ignore::botorch.exceptions.warnings.OptimizationWarning")
def test_beyond_cholesky_a_step_goes_through_our_solver(monkeypatch):
    """BoTorch turns GPyTorch's own solves off, and Cholesky's limit up, which is 4,096 rows with it."""
    sizes = []
    plain = likelihood_terms.krylov_terms

    def terms(system, *args, **options):
        sizes.append(system.shape)
        return plain(system, *args, **options)

    monkeypatch.setattr(likelihood_terms, "krylov_terms", terms)
    x, y = rows(300)
    with enable(), max_cholesky_size(200):
        model = SingleTaskGP(x, y)
        point, _ = step(model, y)
        posterior = model.posterior(x[:5])
        draws = posterior.rsample(torch.Size([64]))
    assert sizes
    assert set(sizes) == {(300, 300)}
    assert draws.shape == (64, 5, 1)
    assert bool(draws.isfinite().all())
    assert float((point - 0.6).norm()) < 0.2


def asked(model, x_new, **noise):
    """A posterior, one of a batch, fantasies, and the slopes of an acquisition."""
    sampler = botorch.sampling.SobolQMCNormalSampler(torch.Size([16]), seed=0)
    plain, batch = model.posterior(x_new), model.posterior(x_new.reshape(3, 2, 2))
    targets = torch.tensor([[0.1], [0.2]], dtype=torch.float64)
    conditioned = model.condition_on_observations(x_new[:2], targets, **noise).posterior(x_new[2:])
    leaf = x_new[:4].reshape(4, 1, 2).clone().requires_grad_(True)
    value = qLogExpectedImprovement(model, best_f=1.0, sampler=sampler)(leaf)
    value.sum().backward()
    parts = (plain, batch, conditioned)
    return [*(p.mean for p in parts), *(p.variance for p in parts), value, leaf.grad]


@pytest.mark.parametrize("variances", [False, True])
@pytest.mark.parametrize("n", [40, 300])
def test_whatever_is_asked_of_a_model(n, variances):
    x, y = rows(n)
    x_new = torch.rand(6, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    known = torch.linspace(0.01, 0.2, n, dtype=torch.float64)[:, None] if variances else None
    noise = {"noise": torch.full((2, 1), 0.05, dtype=torch.float64)} if variances else {}
    theirs = asked(SingleTaskGP(x, y, train_Yvar=known), x_new, **noise)
    with enable(), max_cholesky_size(200):
        ours = asked(SingleTaskGP(x, y, train_Yvar=known), x_new, **noise)
    for a, b in zip(theirs, ours, strict=True):
        # Of second order in variances, and of 1e-3 in means, which acquisitions take logarithms of.
        size = float(a.detach().abs().max())
        torch.testing.assert_close(a, b, rtol=0, atol=(1e-9 if n == 40 else 0.02) * max(size, 0.1))


def test_a_model_that_is_taken_over_predicts_in_the_units_of_its_targets():
    x, y = rows(40)
    theirs = SingleTaskGP(x, 5 * y + 100)
    mean, std = halfgp.from_gpytorch(theirs).predict(x[:5].numpy(), return_std=True, include_noise=False)
    with torch.no_grad():
        expected = theirs.posterior(x[:5])
    np.testing.assert_allclose(mean, expected.mean[:, 0], rtol=1e-9)
    np.testing.assert_allclose(std, expected.variance[:, 0].sqrt(), rtol=1e-6)


def test_a_model_that_transforms_otherwise_is_not_taken_over():
    x, y = rows(40)
    with pytest.raises(InputError, match="no `input_transform`; got Normalize"):
        halfgp.from_gpytorch(SingleTaskGP(x, y, input_transform=Normalize(2)))
    with pytest.raises(InputError, match="shifts and scales; got Log"):
        halfgp.from_gpytorch(SingleTaskGP(x, y.exp(), outcome_transform=Log()))
