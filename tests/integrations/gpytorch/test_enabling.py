"""GPyTorch's own scripts with and without `enable`."""

from __future__ import annotations

import contextlib
import math
import warnings

import gpytorch
import pytest
import torch
from gpytorch.kernels import (
    AdditiveKernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    ProductKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
)
from linear_operator.operators import RootLinearOperator

from halfgp import RBF, KernelOperator, PivotedCholesky
from halfgp.errors import BackendWarning, InputError
from halfgp.integrations.gpytorch import KernelCovariance, NoisyCovariance, enable
from halfgp.likelihood.krylov import krylov_terms

KERNELS = {
    "rbf": lambda: ScaleKernel(RBFKernel()),
    "rbf ard": lambda: ScaleKernel(RBFKernel(ard_num_dims=3)),
    "matern12": lambda: ScaleKernel(MaternKernel(0.5)),
    "matern32": lambda: ScaleKernel(MaternKernel(1.5, ard_num_dims=3)),
    "matern52": lambda: ScaleKernel(MaternKernel(2.5)),
    "rq": lambda: ScaleKernel(RQKernel()),
    "periodic": lambda: ScaleKernel(PeriodicKernel()),
    "sum": lambda: ScaleKernel(RBFKernel(active_dims=[0, 1])) + ScaleKernel(MaternKernel(active_dims=[2])),
    "product": lambda: ScaleKernel(RBFKernel(active_dims=[0]) * PeriodicKernel(active_dims=[1])),
    "linear": lambda: ScaleKernel(RBFKernel()) + LinearKernel(),
}


class Model(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood, kernel):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = kernel

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def rows(n, d=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=generator, dtype=torch.float64)
    y = torch.sin(2 * x).sum(dim=1) + 0.3 * torch.randn(n, generator=generator, dtype=torch.float64)
    return x, y


def untrained(kernel, x, y, x_new):
    """The mean and the variance with hyperparameters as they begin."""
    model = Model(x, y, gpytorch.likelihoods.GaussianLikelihood(), kernel).double().eval()
    predicted = model(x_new)
    return predicted.mean.detach(), predicted.variance.detach()


def script(kernel, x, y, x_new, steps):
    """GPyTorch's tutorial: train, then predict. The last gradient, the mean and the variance."""
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Model(x, y, likelihood, kernel).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    model.train(), likelihood.train()
    for _ in range(steps):
        optimizer.zero_grad()
        loss = -mll(model(x), y)
        loss.backward()
        optimizer.step()
    gradient = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
    model.eval(), likelihood.eval()
    predicted = likelihood(model(x_new))
    return loss.detach(), gradient, predicted.mean.detach(), predicted.variance.detach(), model


@pytest.mark.parametrize(
    ("name", "n"), [*((name, 120) for name in KERNELS), ("matern32", 800), ("product", 300)]
)
def test_a_script_is_the_same_where_both_are_exact(name, n):
    x, y = rows(n)
    x_new, _ = rows(20, seed=1)
    theirs = script(KERNELS[name](), x, y, x_new, 3)
    with enable():
        ours = script(KERNELS[name](), x, y, x_new, 3)
        assert isinstance(ours[-1].covar_module(x).evaluate_kernel(), KernelCovariance)
    for a, b in zip(theirs[:-1], ours[:-1], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def log_terms(kernel, x, y, noise):
    mvn = gpytorch.distributions.MultivariateNormal(torch.zeros_like(y), kernel(x).add_diagonal(noise))
    covariance = mvn.lazy_covariance_matrix.evaluate_kernel()
    return [float(term.detach()) for term in covariance.inv_quad_logdet(y[:, None], logdet=True)]


def test_beyond_cholesky_the_terms_are_within_their_standard_error():
    x, y = rows(900)
    noise = torch.tensor(0.1, dtype=torch.float64)
    with gpytorch.settings.max_cholesky_size(1000):
        exact = log_terms(ScaleKernel(RBFKernel()).double(), x, y, noise)
    with enable():
        quadratic, log_det = log_terms(ScaleKernel(RBFKernel()).double(), x, y, noise)
    # Targets are solved for to `OF_TARGETS`. The standard error is that of the same probes.
    assert abs(quadratic / exact[0] - 1) < 0.02
    operator = KernelOperator(math.log(2) * RBF(math.log(2)), x, noise=0.1)
    terms = krylov_terms(operator.bound, PivotedCholesky().build(operator), y[:, None], max_iterations=20)
    assert abs(log_det - exact[1]) < 4 * terms.standard_error
    assert terms.standard_error < 0.02 * abs(exact[1])


def test_beyond_cholesky_predictions_are_those_of_a_dense_factor():
    x, y = rows(900)
    x_new, _ = rows(30, seed=1)
    with gpytorch.settings.max_cholesky_size(1000):
        _, _, mean, variance, model = script(ScaleKernel(MaternKernel(1.5)), x, y, x_new, 5)
    with enable():
        model.train(), model.eval()
        model.prediction_strategy = None
        ours = model.likelihood(model(x_new))
        noise = float(model.likelihood.noise.detach())
        torch.testing.assert_close(ours.mean, mean, rtol=0, atol=0.02)
        # Too large by a thousandth of the noise at most, as estimated, and never too small but by rounding.
        excess = (ours.variance - variance).detach()
        assert float(excess.max()) < 2e-3 * noise
        assert float(excess.min()) > -1e-5 * noise
    torch.testing.assert_close(variance, ours.variance, rtol=1e-2, atol=0)


def test_variances_do_not_depend_on_tolerances():
    x, y = rows(300)
    x_new, _ = rows(10, seed=1)
    with enable(), gpytorch.settings.max_cholesky_size(200):
        model = script(ScaleKernel(RBFKernel()), x, y, x_new, 1)[-1]
        found = []
        for tolerance in (1e-4, 1.0, 100.0):
            model.prediction_strategy = None
            with gpytorch.settings.eval_cg_tolerance(tolerance), gpytorch.settings.cg_tolerance(tolerance):
                found.append(model(x_new).variance.detach())
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_gradients_in_the_points_are_those_of_a_dense_factor():
    x, y = rows(300)
    x_new, _ = rows(4, seed=1)

    def slopes(model):
        model.prediction_strategy = None
        leaf = x_new.clone().requires_grad_(True)
        predicted = model(leaf)
        (predicted.mean.sum() + predicted.variance.sum()).backward()
        return leaf.grad

    model = script(ScaleKernel(RBFKernel()), x, y, x_new, 1)[-1]
    theirs = slopes(model)
    with enable(), gpytorch.settings.max_cholesky_size(200):
        ours = slopes(model)
    torch.testing.assert_close(ours, theirs, rtol=0.02, atol=0.02 * float(theirs.abs().max()))


def test_leaving_restores_everything():
    places = [
        (RBFKernel, "forward"),
        (ProductKernel, "forward"),
        (gpytorch.kernels.Kernel, "prediction_strategy"),
    ]
    before = [place.__dict__[name] for place, name in places]
    with enable("half"):
        assert [place.__dict__[name] for place, name in places] != before
    assert [place.__dict__[name] for place, name in places] == before
    switched = enable()
    inner = enable("single")
    inner.disable()
    switched.disable()
    switched.disable()
    assert [place.__dict__[name] for place, name in places] == before


def test_blocks_may_end_in_any_order_and_by_errors():
    before = RBFKernel.__dict__["forward"], gpytorch.kernels.Kernel.__dict__["__call__"]
    outer, inner = enable("single"), enable("double")
    outer.disable()
    x, _ = rows(10)
    assert RBFKernel()(x).evaluate_kernel().precision == "double"
    outer.disable()  # again, of no effect
    inner.disable()
    with pytest.raises(ZeroDivisionError), enable():
        raise ZeroDivisionError
    with enable("single"):
        with enable("double"):
            pass
        assert RBFKernel()(x).evaluate_kernel().precision == "single"
    assert before == (RBFKernel.__dict__["forward"], gpytorch.kernels.Kernel.__dict__["__call__"])


def test_one_that_is_kept_serves_several_blocks():
    x, _ = rows(10)
    before = RBFKernel.__dict__["forward"]
    kept = enable("single")
    for _ in range(2):
        with kept:
            assert isinstance(RBFKernel()(x).evaluate_kernel(), KernelCovariance)
        assert RBFKernel.__dict__["forward"] is before


class CallsItsBase(RBFKernel):
    def forward(self, x1, x2, diag=False, **params):
        return torch.expm1(super().forward(x1, x2, diag=diag, **params))


class LooksIntoAnother(gpytorch.kernels.Kernel):
    def __init__(self):
        super().__init__()
        self.inner = RBFKernel()

    def forward(self, x1, x2, diag=False, **params):
        return self.inner.forward(x1, x2, diag=diag, **params).pow(2)


class MeasuresOtherwise(MaternKernel):
    def covar_dist(self, x1, x2, **params):
        return 2.0 * super().covar_dist(x1, x2, **params)


@pytest.mark.parametrize("kind", [CallsItsBase, LooksIntoAnother, MeasuresOtherwise])
def test_a_kernel_with_entries_or_distances_of_its_own_is_gpytorchs(kind):
    x, y = rows(60)
    x_new, _ = rows(5, seed=1)
    theirs = script(ScaleKernel(kind()), x, y, x_new, 2)
    with enable(), pytest.warns(BackendWarning, match="ScaleKernel"):
        ours = script(ScaleKernel(kind()), x, y, x_new, 2)
    for a, b in zip(theirs[:-1], ours[:-1], strict=True):
        torch.testing.assert_close(a, b)


def test_a_kernel_that_only_has_other_defaults_is_taken_over():
    class Own(RBFKernel):
        def __init__(self):
            super().__init__(ard_num_dims=3)

    x, _ = rows(20)
    with enable():
        assert isinstance(ScaleKernel(Own())(x).evaluate_kernel(), KernelCovariance)


def fixed_noise(n):
    noise = torch.linspace(0.1, 0.5, n, dtype=torch.float64)
    return gpytorch.likelihoods.FixedNoiseGaussianLikelihood(noise, learn_additional_noise=True)


def asked(model, x, x_new, **noise):
    """What a program may do with a model beside predicting."""
    fantasy = model.get_fantasy_model(x_new[:2], torch.tensor([0.3, 0.4], dtype=x.dtype), **noise)(x_new[2:])
    wide = model(torch.stack([x_new, x_new + 0.2]))
    model.train()
    model.eval()
    torch.manual_seed(0)
    drawn = model(x_new).rsample(torch.Size([3]))
    at_rows = model(x[:10])
    model.set_train_data(x + 0.05, 2 * model.train_targets, strict=False)
    moved = model(x_new)
    parts = (fantasy, wide, at_rows, moved)
    return [drawn, *(p.mean for p in parts), *(p.variance for p in parts)]


@pytest.mark.parametrize("n", [60, 300])
@pytest.mark.parametrize("noise", ["learned", "fixed"])
def test_whatever_else_is_asked_of_a_model(n, noise):
    x, y = rows(n)
    x_new, _ = rows(6, seed=1)
    known = {"noise": torch.full((2,), 0.2, dtype=torch.float64)} if noise == "fixed" else {}
    found = []
    for ours in (False, True):
        likelihood = fixed_noise(n) if noise == "fixed" else gpytorch.likelihoods.GaussianLikelihood()
        model = Model(x, y, likelihood, ScaleKernel(RBFKernel())).double().eval()
        limit = 200 if ours else 2000
        with enable() if ours else contextlib.nullcontext(), gpytorch.settings.max_cholesky_size(limit):
            model(x_new)
            found.append([t.detach() for t in asked(model, x, x_new, **known)])
    # Means are solved for to a residual of 1e-3 of targets as large as 6.
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-8 if n == 60 else 0.01)


def test_missing_targets_are_masked_beyond_cholesky_too():
    x, y = rows(300)
    y[::7] = math.nan
    x_new, _ = rows(6, seed=1)
    with gpytorch.settings.observation_nan_policy("mask"):
        theirs = untrained(ScaleKernel(RBFKernel()), x, y, x_new)
        with enable(), gpytorch.settings.max_cholesky_size(200):
            ours = untrained(ScaleKernel(RBFKernel()), x, y, x_new)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0.01)


def test_a_kernel_of_ones_own_is_left_to_gpytorch_with_one_word():
    class Own(RBFKernel):
        def forward(self, x1, x2, diag=False, **params):
            scaled = x1 / self.lengthscale, x2 / self.lengthscale
            return self.covar_dist(*scaled, square_dist=True, diag=diag).mul(-0.25).exp()

    x, y = rows(60)
    x_new, _ = rows(5, seed=1)
    theirs = script(ScaleKernel(Own()), x, y, x_new, 2)
    with enable(), pytest.warns(BackendWarning, match="ScaleKernel") as told:
        ours = script(ScaleKernel(Own()), x, y, x_new, 2)
    assert len(told) == 1
    for a, b in zip(theirs[:-1], ours[:-1], strict=True):
        torch.testing.assert_close(a, b)


def test_a_sum_with_a_kernel_of_ones_own_is_right():
    class Own(RBFKernel):
        def forward(self, x1, x2, diag=False, **params):
            scaled = x1 / self.lengthscale, x2 / self.lengthscale
            return self.covar_dist(*scaled, square_dist=True, diag=diag).mul(-0.25).exp()

    x, y = rows(60)
    x_new, _ = rows(5, seed=1)
    theirs = script(AdditiveKernel(Own(), MaternKernel()), x, y, x_new, 2)
    with enable(), warnings.catch_warnings():
        warnings.simplefilter("ignore", BackendWarning)
        ours = script(AdditiveKernel(Own(), MaternKernel()), x, y, x_new, 2)
    for a, b in zip(theirs[:-1], ours[:-1], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_a_composed_kernel_is_one_matrix():
    x, _ = rows(50)
    with enable():
        matrix = KERNELS["sum"]().double()(x).evaluate_kernel()
        assert isinstance(matrix, KernelCovariance)
        assert isinstance(matrix.add_jitter(0.1), NoisyCovariance)


def test_products_of_matrices_are_of_all_their_entries_and_not_of_roots_of_low_rank():
    x, _ = rows(60)
    few = gpytorch.settings.max_cholesky_size(5), gpytorch.settings.max_root_decomposition_size(5)
    with enable(), few[0], few[1]:
        one, two = RBFKernel().double()(x), MaternKernel().double()(x)
        other = RootLinearOperator(x)  # as a kernel of tasks has it
        assert isinstance(one * two, KernelCovariance)
        for a, b in ((one, two), (one, other), (other, one)):
            torch.testing.assert_close((a * b).to_dense(), a.to_dense() * b.to_dense())


@pytest.mark.parametrize("largest", [20, 800])
def test_no_points_are_predicted_too(largest):
    x, y = rows(60)
    with enable(), gpytorch.settings.max_cholesky_size(largest):
        mean, variance = untrained(ScaleKernel(RBFKernel()), x, y, x[:0])
    assert mean.shape == variance.shape == (0,)


def of_a_product(kernel, x, y):
    return (kernel(x) @ y[:, None]).square().sum()


def of_the_likelihood(kernel, x, y):
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Model(x, y, likelihood, kernel).double()
    return gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)(model(x), y)


@pytest.mark.parametrize("value", [of_a_product, of_the_likelihood])
def test_second_derivatives_are_refused_and_never_wrong(value):
    """Autograd does not look into first ones, and what it adds up without them is not all there is."""
    x, y = rows(60)
    kernel = ScaleKernel(RBFKernel()).double()
    parameters = list(kernel.parameters())
    with enable(), gpytorch.settings.max_cholesky_size(20):
        first = torch.autograd.grad(value(kernel, x, y), parameters, create_graph=True)
        with pytest.raises(InputError, match="outside of `enable`"):
            torch.autograd.grad(sum(part.sum() for part in first), parameters, allow_unused=True)
