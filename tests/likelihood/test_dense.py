from __future__ import annotations

import pytest
import torch
from contracts.textbook import KERNELS, Textbook, at, covariance, points, targets

import halfgp.likelihood.dense
from halfgp.errors import InputError
from halfgp.hyperparameters import Coordinates, Hyperparameters
from halfgp.kernels import RBF, Matern
from halfgp.likelihood import dense_likelihood, lower_kernel
from halfgp.priors import PAPER, Gamma, log_prior

N = 40
# Solves lose a factor of the condition number, at most n (amplitude / noise) = 1e4 here, of 16 digits.
RTOL = 1e-10


def defined_loss(hyperparameters: Hyperparameters, x, y, fixed, priors, prior_weight):
    """By torch's own density and the kernel's definition, with its graph."""
    noise = fixed if hyperparameters.noise is None else hyperparameters.noise.value
    mean = (
        torch.zeros(y.shape[1], dtype=torch.float64)
        if hyperparameters.mean is None
        else hyperparameters.mean.value
    )
    normal = torch.distributions.MultivariateNormal(
        torch.zeros(len(x), dtype=torch.float64), covariance(hyperparameters.kernel, x, noise)
    )
    value = normal.log_prob((y - mean).T).sum() + prior_weight * log_prior(
        hyperparameters.named_parameters(), priors
    )
    return -value / y.numel()


def check_against_the_definition(hyperparameters, x, y, fixed=None, priors=None, prior_weight=1.0):
    priors = {} if priors is None else priors
    found = dense_likelihood(
        hyperparameters, x, y, fixed_noise=fixed, priors=priors, prior_weight=prior_weight
    )
    leaf = hyperparameters.detached(requires_grad=True)
    loss = defined_loss(leaf, x, y, fixed, priors, prior_weight)
    named = leaf.named_parameters()
    gradients = torch.autograd.grad(loss, [p.value for p in named.values()])
    assert found.loss == pytest.approx(loss.item(), rel=RTOL)
    assert list(found.gradient) == list(named)
    for name, gradient in zip(named, gradients, strict=True):
        error = (found.gradient[name] - gradient).abs() / (1.0 + gradient.abs())
        assert float(error.max()) < RTOL, name


@pytest.mark.parametrize("name", KERNELS)
def test_value_and_gradient_are_those_of_the_definition(name):
    x = points(N)
    check_against_the_definition(at(KERNELS[name], mean=[0.2]), x, targets(x))


def test_several_targets_share_a_kernel_and_have_means_of_their_own():
    x = points(N)
    check_against_the_definition(at(KERNELS["sum"], mean=[0.2, -0.4, 0.0]), x, targets(x, q=3))


def test_fixed_noise_takes_the_place_of_the_learned_one():
    x = points(N)
    fixed = torch.linspace(0.01, 1.0, N, dtype=torch.float64)
    check_against_the_definition(at(KERNELS["matern32"], noise=None, mean=[0.1]), x, targets(x), fixed)


@pytest.mark.parametrize("prior_weight", [1.0, 0.25])
def test_priors_count_once_with_their_weight(prior_weight):
    x = points(N)
    hyperparameters = at(KERNELS["matern12"], mean=[0.1, 0.2])
    check_against_the_definition(hyperparameters, x, targets(x, q=2), priors=PAPER, prior_weight=prior_weight)


def test_repeated_points_have_a_finite_gradient():
    x = points(N // 2).repeat(2, 1)
    check_against_the_definition(at(Matern(2.5, lengthscale=0.8)), x, targets(x))
    # The slope of exp(-r) in r² is infinite at 0, and what cancellation leaves of a distance of 0 is √eps.
    found = dense_likelihood(at(Matern(0.5, lengthscale=0.8)), x, targets(x), priors={})
    leaf = at(Matern(0.5, lengthscale=0.8)).detached(requires_grad=True)
    (slope,) = torch.autograd.grad(
        defined_loss(leaf, x, targets(x), None, {}, 1.0),
        [leaf.named_parameters()["kernel.lengthscale"].value],
    )
    torch.testing.assert_close(found.gradient["kernel.lengthscale"], slope, rtol=1e-6, atol=0)


@pytest.mark.parametrize("softplus", [False, True])
def test_the_gradient_on_the_real_line_is_that_of_finite_differences(softplus):
    x = points(N)
    y = targets(x, q=2)
    hyperparameters = at(KERNELS["nested"], mean=[0.1, 0.3])
    coordinates = Coordinates(hyperparameters, softplus=softplus)
    at_point = coordinates.vector(hyperparameters)

    def loss(vector):
        return dense_likelihood(coordinates.hyperparameters(vector), x, y, priors=PAPER)

    gradient = coordinates.pull_back(at_point, loss(at_point).gradient)
    h = 1e-5  # an error of h² from the third derivative and of 1e-16 / h from rounding
    for k in range(len(at_point)):
        step = torch.zeros_like(at_point)
        step[k] = h
        difference = (loss(at_point + step).loss - loss(at_point - step).loss) / (2 * h)
        assert float(gradient[k]) == pytest.approx(difference, rel=1e-6, abs=1e-8)


@pytest.fixture(autouse=True, params=["in blocks", "whole"])
def _blocks(request, monkeypatch):
    """Everything here must not depend on how many rows are taken at a time."""
    monkeypatch.setattr(halfgp.likelihood.dense, "CHUNK", 7 * N if request.param == "in blocks" else N * N)


@pytest.mark.parametrize("name", KERNELS)
def test_the_lower_kernel_is_the_kernel_with_its_diagonal(name):
    x = points(N)
    expected = covariance(KERNELS[name], x).detach().tril()
    torch.testing.assert_close(lower_kernel(KERNELS[name], x).tril(), expected, rtol=0, atol=1e-13)


def test_factor_and_weights_are_of_the_same_matrix():
    x = points(N)
    y = targets(x, q=2)
    hyperparameters = at(KERNELS["white"], mean=[0.5, 0.0])
    book = Textbook(hyperparameters, x, y)
    found = dense_likelihood(hyperparameters, x, y, priors={})
    torch.testing.assert_close(found.factor @ found.factor.T, book.matrix, rtol=0, atol=1e-13)
    torch.testing.assert_close(book.matrix @ found.weights, book.residual, rtol=0, atol=1e-12)


def test_a_matrix_that_is_not_positive_definite_is_refused_with_the_remedy():
    x = points(N)
    with pytest.raises(
        InputError, match=r"the noise, 1\.0e-30, is too small for double. Raise `noise_floor`"
    ):
        dense_likelihood(at(RBF(50.0), noise=1e-30, floor=0.0), x, targets(x), priors={})


def test_a_prior_moves_the_loss_by_its_density():
    x = points(N)
    prior = Gamma(2.0, 3.0)
    hyperparameters = at(RBF(0.8))
    without = dense_likelihood(hyperparameters, x, targets(x), priors={}).loss
    with_prior = dense_likelihood(hyperparameters, x, targets(x), priors={"lengthscale": prior}).loss
    density = float(prior.log_density(torch.tensor(0.8, dtype=torch.float64)))
    assert with_prior - without == pytest.approx(-density / N, rel=1e-10)


@pytest.mark.parametrize("kernel", [Matern(0.5), Matern(1.5), Matern(2.5), RBF()], ids=repr)
def test_an_outlier_costs_the_near_no_digits(kernel):
    """Squares of its distance are 1e8: what a difference of two such leaves is above a noise of 1e-6."""
    x = points(N)
    x[20:30] = x[:10] + 1e-6
    x[5] = 1e4
    differences = torch.linalg.vector_norm(x[:, None] - x, dim=-1)
    line = kernel(torch.zeros(1, 1, dtype=torch.float64), differences.reshape(-1, 1)).reshape(N, N)
    torch.testing.assert_close(lower_kernel(kernel, x).tril(), line.tril(), rtol=0, atol=1e-13)
    check_against_the_definition(at(kernel, noise=0.1, mean=[0.0]), x, targets(x))
