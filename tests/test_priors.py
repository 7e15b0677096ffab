from __future__ import annotations

import math

import pytest
import torch
from contracts.textbook import KERNELS, at

from halfgp.errors import InputError
from halfgp.priors import PAPER, Gamma, as_priors, check_names, log_prior


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


def test_priors_go_by_the_last_part_of_a_name_and_count_every_value():
    point = at(KERNELS["sum"], noise=0.2)
    prior = Gamma(3.0, 6.0)
    names = ["kernel.0.lengthscale", "kernel.1.lengthscale"]
    values = [point.named_parameters()[name].value for name in names]
    expected = sum(prior.log_density(value).sum() for value in values)
    torch.testing.assert_close(log_prior(point.named_parameters(), {"lengthscale": prior}), expected)
    three = at(KERNELS["rbf"])
    each = prior.log_density(three.named_parameters()["kernel.lengthscale"].value)
    assert each.shape == (3,)
    torch.testing.assert_close(log_prior(three.named_parameters(), {"lengthscale": prior}), each.sum())
    assert float(log_prior(three.named_parameters(), {})) == 0.0


def test_words_and_mappings_become_priors():
    assert as_priors("paper") == PAPER
    assert as_priors(None) == {}
    own = {"lengthscale": Gamma(1.0, 1.0)}
    assert as_priors(own) is own


@pytest.mark.parametrize("priors", ["papers", {"lengthscale": 3.0}, 7, [Gamma(1.0, 1.0)]])
def test_what_is_no_prior_is_refused(priors):
    with pytest.raises(InputError, match='`priors` must be "paper", None, or a mapping'):
        as_priors(priors)


def test_a_prior_without_a_positive_parameter_is_refused():
    named = at(KERNELS["matern32"], mean=[0.0]).named_parameters()
    check_names({"lengthscale": Gamma(1.0, 1.0), "noise": Gamma(1.0, 1.0)}, named)
    for name in ("lengthscales", "mean", "outputscale"):
        with pytest.raises(
            InputError, match=f"positive parameters of the model, lengthscale, noise; got '{name}'"
        ):
            check_names({name: Gamma(1.0, 1.0)}, named)
