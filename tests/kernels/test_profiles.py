"""A profile is one object, and a new one in torch alone serves everywhere."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch
from contracts.textbook import Textbook, at, points, targets
from torch import Tensor

import halfgp.backends as registry
from halfgp import (
    RBF,
    KernelOperator,
    Linear,
    Matern,
    PivotedCholesky,
    RationalQuadratic,
    cg,
    register_kernel,
)
from halfgp.analysis.diagnosis_words import in_words
from halfgp.archive import load_model, save_model
from halfgp.errors import BackendError, BackendWarning, InputError
from halfgp.kernel_json import kernel_to_spec
from halfgp.kernels import Kernel, Leaf, Stationary, StationaryProfile
from halfgp.kernels.profiles import MATERN12, MATERN32, MATERN52, RATIONAL_QUADRATIC, SQUARED_EXPONENTIAL
from halfgp.kernels.random_features import PriorSamples
from halfgp.likelihood.neighbours import NeighbourLikelihood
from halfgp.model import ExactGP
from halfgp.precision import HALF
from halfgp.problem import Problem

WRITTEN: list[StationaryProfile] = [SQUARED_EXPONENTIAL, MATERN12, MATERN32, MATERN52, RATIONAL_QUADRATIC]
X, NEW = points(120, 2), points(15, 2, seed=7)


class CauchyProfile(StationaryProfile):
    """1 / (1 + s/2): a rational quadratic of alpha 1, which the package has in other words."""

    name, label = "cauchy", "Cauchy"

    def value(self, squared: Tensor, shape: Tensor | None) -> Tensor:
        return 1.0 / (1.0 + 0.5 * squared)

    def draw(self, normal: Tensor, generator: torch.Generator) -> tuple[Tensor, None]:
        g = -torch.rand(normal.shape[1], generator=generator, dtype=torch.float64).log()
        return normal * g.sqrt(), None


class Cauchy(Stationary):
    profile = CauchyProfile()


class RootProfile(StationaryProfile):
    """exp(-√s), by autograd, which has no derivative at zero."""

    name, label = "root", "root"

    def value(self, squared: Tensor, shape: Tensor | None) -> Tensor:
        return torch.exp(-squared.sqrt())


class Root(Stationary):
    profile = RootProfile()


register_kernel(Cauchy, ["lengthscale"])


@pytest.fixture(autouse=True)
def _warnings_are_fresh() -> None:
    registry._warn_of_profile.cache_clear()


def operator(kernel: Kernel) -> KernelOperator:
    return KernelOperator(kernel, X, noise=0.1, precision="double", backend="reference")


def test_a_kernel_from_outside_is_fitted_predicted_sampled_saved_and_loaded(tmp_path) -> None:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        model = ExactGP(kernel=2.0 * Cauchy([1.0, 1.0])).fit(X.numpy(), targets(X)[:, 0].numpy())
        mean, std, *_ = model.predict(NEW.numpy(), return_std=True)
        samples = model.sample(NEW.numpy(), 3)
        save_model(model, tmp_path / "model")
        loaded, _ = load_model(tmp_path / "model")
        again, std_again, *_ = loaded.predict(NEW.numpy(), return_std=True)
    (word,) = [str(w.message) for w in found if issubclass(w.category, BackendWarning)]
    assert "'cauchy'" in word
    assert "slower" in word
    problem, x = model.posterior.problem, model.x_scale.apply(NEW)
    book = Textbook(model.hyperparameters, problem.x, problem.y, None)
    np.testing.assert_allclose(mean, model.y_scale.undo(book.mean(x))[:, 0], rtol=1e-8)
    np.testing.assert_array_equal(mean, again)
    np.testing.assert_array_equal(std, std_again)
    assert np.isfinite(samples).all()
    assert type(loaded.hyperparameters.kernel.kernel) is Cauchy
    assert "Cauchy with lengthscale" in in_words(loaded.hyperparameters.kernel)


def test_a_class_that_is_not_registered_is_told_how_to_be_saved() -> None:
    with pytest.raises(InputError, match=r"got Root.*register_kernel"):
        kernel_to_spec(Root())
    with pytest.raises(InputError, match="name of its own; RBF"):
        register_kernel(type("RBF", (Cauchy,), {}), ["lengthscale"])


def test_products_gradients_solves_and_neighbourhoods_are_those_of_the_same_kernel_in_other_words() -> None:
    kernels = Cauchy([0.7, 1.3]), RationalQuadratic(1.0, [0.7, 1.3])
    ours, theirs = map(operator, kernels)
    v = targets(X, q=2)
    torch.testing.assert_close(ours @ v, theirs @ v, rtol=1e-12, atol=1e-12)
    found, wanted = (o.bilinear_gradient(v, v, inputs=True) for o in (ours, theirs))
    for name in ("lengthscale", "x1"):
        torch.testing.assert_close(found[name], wanted[name], rtol=1e-10, atol=1e-10)
    a, b = (cg(o, v, tol=1e-8, preconditioner=PivotedCholesky(rank=5)).solution for o in (ours, theirs))
    torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)
    problem = Problem(X, targets(X), backend="reference")
    losses = [
        NeighbourLikelihood.around(at(kernel), problem, rows=50, neighbours=8, seed=0, priors={})(at(kernel))
        for kernel in kernels
    ]
    assert losses[0].loss == pytest.approx(losses[1].loss, rel=1e-12)
    first, second = (loss.gradient["kernel.lengthscale"] for loss in losses)
    torch.testing.assert_close(first, second, rtol=1e-9, atol=1e-12)


def test_samples_of_the_prior_have_its_covariance() -> None:
    f = PriorSamples.draw(Cauchy(0.8), 2, 40_000, 4, seed=1).samples_at(Cauchy(0.8), X[:6])
    products = f[:, None] * f[None, :]
    standard = products.std(dim=2) / math.sqrt(40_000)
    # 21 entries within five standard errors.
    assert bool(((products.mean(dim=2) - Cauchy(0.8)(X[:6], X[:6])).abs() <= 5.0 * standard).all())


def test_auto_takes_the_reference_with_one_warning_and_the_engine_says_what_it_lacks() -> None:
    with pytest.warns(BackendWarning, match=r"'root'.*slower"):
        assert KernelOperator(2.0 * Root() + RBF(), X).backend == "reference"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert KernelOperator(Root(), X).backend == "reference"
    if "cpu" in registry.available():
        with pytest.raises(BackendError, match=r"does not know the profile 'root'.*reference"):
            KernelOperator(Root(), X, backend="cpu")


def test_a_profile_that_cannot_be_sampled_says_so_instead_of_sampling_another() -> None:
    with pytest.raises(InputError, match=r"profile 'root' has no spectral draw.*hutchinson"):
        PriorSamples.draw(Root(), 2, 1, 1, seed=0)


def test_a_leaf_wants_a_profile() -> None:
    with pytest.raises(InputError, match=r"must be a `Profile`.*got 'rbf'"):
        Leaf("rbf", lambda x: x, torch.ones(1))  # type: ignore[arg-type]


def test_where_nobody_says_how_far_a_profile_reaches_nothing_is_left_out() -> None:
    assert Root(0.001).support(HALF).item() == math.inf


@pytest.mark.parametrize("profile", WRITTEN, ids=lambda p: p.name)
def test_slopes_that_are_written_out_are_those_of_the_value(profile: StationaryProfile) -> None:
    s = torch.logspace(-6, 2, 50, dtype=torch.float64)
    shape = torch.tensor(0.7, dtype=torch.float64) if profile is RATIONAL_QUADRATIC else None
    value, slope = profile.value_and_slope(s, shape)
    step = 1e-4 * s
    ahead, behind = (profile.value(s + sign * step, shape) for sign in (1.0, -1.0))
    # Of central differences: h² k'''/6 is below 1e-4 of 1e-2 of the slope, and values are right to some eps.
    rounding = 16 * torch.finfo(torch.float64).eps / step
    assert bool(((ahead - behind) / (2 * step) - slope).abs().le(1e-5 * slope.abs() + rounding).all())
    assert torch.equal(profile.value(s, shape), value)


@pytest.mark.parametrize(
    ("kernel", "twin"),
    [
        (Root([0.5, 2.0]), Matern(0.5, [0.5, 2.0])),
        (Cauchy([0.5, 2.0]), RationalQuadratic(1.0, [0.5, 2.0])),
    ],
    ids=["root", "cauchy"],
)
def test_gradients_by_autograd_are_right_where_points_coincide_too(kernel: Kernel, twin: Kernel) -> None:
    found = []
    for each in (kernel, twin):
        leaf = each.detached(requires_grad=True)
        x = torch.cat([X[:4], X[:4]]).requires_grad_()
        leaf(x, x).sum().backward()
        found.append((x.grad, dict(leaf.named_parameters())["lengthscale"].value.grad))
    torch.testing.assert_close(found[0], found[1], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("fall", [1e-6, 0.1, 1.0, 17.0, 745.0])
@pytest.mark.parametrize("profile", [MATERN12, MATERN32, MATERN52], ids=lambda p: p.name)
def test_a_matern_profile_falls_so_far_within_its_reach(profile: StationaryProfile, fall: float) -> None:
    a = profile.reach(fall, None) * math.sqrt(profile.twice_nu)
    polynomial = {1: 0.0, 3: a, 5: a + a * a / 3.0}[profile.twice_nu]
    # The left side is computed to a few eps a.
    assert a - math.log1p(polynomial) == pytest.approx(fall, rel=1e-12, abs=8e-16 * a)


def test_the_inner_product_is_no_function_of_the_distance() -> None:
    (leaf,) = Linear().program().leaves
    assert not leaf.is_stationary
    assert leaf.centre(X) is None


def test_a_second_derivative_is_refused_and_never_zero():
    """The slope is a number, which has no derivative of its own; that in distances torch itself refuses."""
    alpha = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    total = RATIONAL_QUADRATIC.covariance(torch.ones(3, dtype=torch.float64), alpha).sum()
    (first,) = torch.autograd.grad(total, alpha, create_graph=True)
    with pytest.raises(InputError, match="Second derivatives"):
        torch.autograd.grad(first + alpha, alpha)
