from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.integrate
import torch
from contracts.textbook import KERNELS, at

from halfgp import RBF, GPRegressor, Matern, White
from halfgp.errors import InputError
from halfgp.priors import (
    PAPER,
    WEAK,
    Gamma,
    HalfCauchy,
    LogNormal,
    Normal,
    Overall,
    as_priors,
    check_names,
    log_prior,
)


@pytest.mark.parametrize(("a", "b"), [(1.1, 0.05), (2.0, 0.15), (3.0, 6.0), (0.5, 2.0)])
def test_the_density_is_that_of_torch(a, b):
    values = torch.tensor([1e-4, 0.3, 1.0, 20.0], dtype=torch.float64, requires_grad=True)
    reference = torch.distributions.Gamma(
        torch.tensor(a, dtype=torch.float64), torch.tensor(b, dtype=torch.float64)
    ).log_prob(values)
    ours = Gamma(a, b).log_density(values)
    torch.testing.assert_close(ours, reference, rtol=1e-13, atol=1e-13)
    (slope,) = torch.autograd.grad(ours.sum(), values)
    torch.testing.assert_close(slope, (a - 1) / values.detach() - b, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(("a", "b"), [(0.0, 1.0), (1.0, -1.0), (math.nan, 1.0), (1.0, math.inf)])
def test_constants_that_are_not_positive_are_refused(a, b):
    with pytest.raises(InputError, match="needs a positive concentration and rate; got"):
        Gamma(a, b)


@pytest.mark.parametrize(("mode", "spread"), [(0.01, 1.0), (1.0, 2.0), (3.0, 0.2)])
def test_the_log_normal_density_is_that_of_torch_and_highest_at_its_mode(mode, spread):
    values = torch.tensor([1e-4, 0.3, 1.0, 20.0], dtype=torch.float64, requires_grad=True)
    location = torch.tensor(math.log(mode) + spread**2, dtype=torch.float64)
    reference = torch.distributions.LogNormal(location, torch.tensor(spread, dtype=torch.float64))
    ours = LogNormal(mode, spread).log_density(values)
    torch.testing.assert_close(ours, reference.log_prob(values), rtol=1e-12, atol=1e-12)
    (slope,) = torch.autograd.grad(ours.sum(), values)
    expected = -(values.detach() / mode).log() / (spread**2 * values.detach())
    torch.testing.assert_close(slope, expected, rtol=1e-12, atol=1e-12)
    at_mode = torch.tensor(mode, dtype=torch.float64, requires_grad=True)
    (flat,) = torch.autograd.grad(LogNormal(mode, spread).log_density(at_mode), at_mode)
    assert float(flat) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    "density", [Gamma(1.1, 0.05), Gamma(3.0, 6.0), LogNormal(0.01, 1.0), LogNormal(1.0, 2.0)], ids=repr
)
def test_densities_integrate_to_one(density):
    # Over log x, where the trapezoid rule converges faster than any power of the step.
    logs = torch.linspace(-30.0, 30.0, 6001, dtype=torch.float64)
    mass = torch.trapezoid(torch.exp(density.log_density(logs.exp()) + logs), logs)
    assert float(mass) == pytest.approx(1.0, abs=1e-10)


@pytest.mark.parametrize("prior", [*WEAK.values(), Overall(Gamma(3.0, 6.0))], ids=repr)
def test_gradients_are_those_of_finite_differences(prior):
    values = torch.tensor([0.3, 1.7, 40.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: prior.log_density(v).sum(), values)


@pytest.mark.parametrize(("mode", "spread"), [(0.0, 1.0), (1.0, -1.0), (math.nan, 1.0), (1.0, math.inf)])
def test_a_mode_or_spread_that_is_not_positive_is_refused(mode, spread):
    with pytest.raises(InputError, match="needs a positive mode and spread; got"):
        LogNormal(mode, spread)


@pytest.mark.parametrize("density", [3.0, None, Gamma, Overall(Gamma(1.0, 1.0))])
def test_an_overall_prior_is_of_one_density(density):
    with pytest.raises(InputError, match="needs a density such as LogNormal"):
        Overall(density)


def test_the_overall_lengthscale_has_one_density_whatever_the_features():
    density = LogNormal(1.0, 2.0)
    prior = Overall(density)
    alone = density.log_density(torch.tensor(0.7, dtype=torch.float64))
    for d in (1, 2, 20, 90):
        equal = torch.full((d,), 0.7 * math.sqrt(d), dtype=torch.float64)
        torch.testing.assert_close(prior.log_density(equal), alone, rtol=1e-12, atol=1e-12)
    # Features that do not matter: their 1/l² are lost beside the others', to 90 * 1e-12.
    some = torch.tensor([0.9, 2.0], dtype=torch.float64)
    more = torch.cat([some, torch.full((90,), 1e6, dtype=torch.float64)])
    torch.testing.assert_close(prior.log_density(more), prior.log_density(some), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("d", [1, 20, 90])
def test_the_weight_of_the_default_does_not_grow_with_the_features(d):
    """All lengthscales moved together by e move its log density by the same for any d; the paper's by d."""

    def moved(priors, by):
        hyperparameters = at(RBF([by * math.sqrt(d)] * d))
        return float(log_prior(hyperparameters.named_parameters(), priors))

    assert moved(WEAK, 1.0) - moved(WEAK, math.e) == pytest.approx(1 / 8)  # ½ (1 / spread)²
    paper = PAPER["lengthscale"].log_density(torch.tensor([1.0, math.e], dtype=torch.float64) * math.sqrt(d))
    assert moved(PAPER, 1.0) - moved(PAPER, math.e) == pytest.approx(d * float(paper[0] - paper[1]))


def test_priors_go_by_the_last_part_of_a_name_and_count_every_value():
    hyperparameters = at(KERNELS["sum"], noise=0.2)
    prior = Gamma(3.0, 6.0)
    names = ["kernel.0.lengthscale", "kernel.1.lengthscale"]
    values = [hyperparameters.named_parameters()[name].value for name in names]
    expected = sum(prior.log_density(value).sum() for value in values)
    torch.testing.assert_close(
        log_prior(hyperparameters.named_parameters(), {"lengthscale": prior}), expected
    )
    three = at(KERNELS["rbf"])
    each = prior.log_density(three.named_parameters()["kernel.lengthscale"].value)
    assert each.shape == (3,)
    torch.testing.assert_close(log_prior(three.named_parameters(), {"lengthscale": prior}), each.sum())
    assert float(log_prior(three.named_parameters(), {})) == 0.0


def test_words_and_mappings_become_priors():
    assert as_priors("weak") is WEAK
    assert as_priors("paper") is PAPER
    assert as_priors(None) == {}
    own = {"lengthscale": Gamma(1.0, 1.0), "noise": LogNormal(0.1, 1.0)}
    assert as_priors(own) is own


@pytest.mark.parametrize("priors", ["papers", {"lengthscale": 3.0}, {"noise": Gamma}, 7, [Gamma(1.0, 1.0)]])
def test_what_is_no_prior_is_refused(priors):
    with pytest.raises(InputError, match='`priors` must be "weak", "paper", None, or a mapping'):
        as_priors(priors)


def test_a_prior_without_a_positive_parameter_is_refused():
    named = at(KERNELS["matern32"], mean=[0.0]).named_parameters()
    check_names({"lengthscale": Gamma(1.0, 1.0), "noise": Gamma(1.0, 1.0)}, named)
    for name in ("lengthscales", "mean", "outputscale"):
        with pytest.raises(
            InputError, match=f"positive parameters of the model, lengthscale, noise; got '{name}'"
        ):
            check_names({name: Gamma(1.0, 1.0)}, named)


def linear_rows(n=200, d=20, seed=0):
    """Standard normal features, a function of all of them that is nearly linear, little noise."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d))
    w = rng.standard_normal(d) / math.sqrt(d)
    return x, x @ w + 0.1 * np.sin(x[:, 0]) + 0.05 * rng.standard_normal(n)


def test_few_rows_per_feature_do_not_collapse_to_the_mean():
    x, y = linear_rows(n=500)
    train, test = slice(200), slice(200, None)
    default = GPRegressor().fit(x[train], y[train])
    assert default.score(x[test], y[test]) > 0.95
    assert GPRegressor(priors="paper").fit(x[train], y[train]).score(x[test], y[test]) < 0.1


def test_the_names_of_the_default_and_of_the_papers():
    assert GPRegressor().priors == "weak"
    assert GPRegressor.paper().priors == "paper"


def test_the_noise_comes_up_where_the_rows_say_nothing_about_it():
    """Rows far apart: any split of their variance between function and noise explains them."""
    x = 100.0 * np.arange(10.0)[:, None]
    y = np.random.default_rng(0).standard_normal(10)
    options = {"kernel": 1.0 * Matern(1.5, lengthscale=1e-3), "standardise_X": False, "noise": 1e-5}
    assert GPRegressor(**options, priors=None).fit(x, y).noise_ < 1e-4
    assert 1e-3 < GPRegressor(**options).fit(x, y).noise_ < 1e-1


@pytest.mark.parametrize(
    ("options", "targets"),
    [
        ({"ard": False}, 1),
        ({}, 3),
        ({"kernel": 2.0 * RBF([1.0] * 20) + 0.5 * Matern(1.5, lengthscale=3.0) + White(0.01)}, 1),
        ({"kernel": 1.0 * RBF([2.0] * 20) * RBF(4.0, active_dims=[0])}, 1),
        ({"kernel": RBF([3.0] * 20)}, 2),
        ({"method": "cg", "training__subset": 100, "training__steps": 1}, 1),
    ],
    ids=["one lengthscale", "targets", "sum", "product", "no outputscale", "steps on all rows"],
)
def test_the_default_goes_with_every_kernel_and_number_of_targets(options, targets):
    x, y = linear_rows()
    y = y if targets == 1 else np.stack([y, *(x[:, k] for k in range(1, targets))], axis=1)
    gp = GPRegressor().set_params(**options, training__subset_iterations=30).fit(x, y)
    assert gp.score(x, y) > 0.9


@pytest.mark.parametrize("prior", [Normal(2.0, 0.5), Normal(-1.0, 0.5), HalfCauchy(0.7)], ids=repr)
def test_a_density_on_the_positive_numbers_has_an_integral_of_one(prior):
    def density(x: float) -> float:
        return math.exp(float(prior.log_density(torch.tensor(x, dtype=torch.float64))))

    total, _ = scipy.integrate.quad(density, 0.0, math.inf, limit=200)
    assert total == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(
    "make", [lambda: Normal(math.nan, 1.0), lambda: Normal(0.0, 0.0), lambda: HalfCauchy(-1.0)]
)
def test_numbers_that_make_no_density_are_refused(make):
    with pytest.raises(InputError, match="prior needs"):
        make()
