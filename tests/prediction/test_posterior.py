from __future__ import annotations

import math
import pickle
from dataclasses import replace

import pytest
import torch
from contracts.textbook import KERNELS, Textbook, at, points, targets

from halfgp.kernels import RBF, Matern
from halfgp.kernels.random_features import PriorSamples
from halfgp.likelihood import dense_likelihood
from halfgp.preconditioners import PivotedCholesky
from halfgp.prediction import Conditioning, LatentPrediction, Variances, condition
from halfgp.problem import Problem

N = 200
X, Y = points(N), targets(points(N), q=2)
NEW = points(60, seed=5)
# Largest errors: a direct solve in double; and CG to 1e-6 with products in single.
EXACT, ITERATIVE = 1e-10, 1e-4


def conditioning(method="cg", variance="local", tol=1e-6, neighbours=N, **options):
    return Conditioning(
        **{
            "method": method,
            "tol": tol,
            "max_iterations": 1000,
            "recipe": PivotedCholesky(),
            "variance": variance,
            "neighbours": neighbours,
            "seed": 0,
            **options,
        }
    )


WAYS = {
    "cholesky": (conditioning("cholesky"), EXACT),
    "factor": (conditioning(variance="cholesky"), ITERATIVE),
    "local": (conditioning(variance="local"), ITERATIVE),
}


def posterior(hyperparameters, way, x=X, y=Y, fixed=None):
    return condition(Problem(x, y, fixed), hyperparameters, WAYS[way][0])


def uncalibrated(found):
    """With local variances as they are, from all rows, where they are exact."""
    return replace(found, variances=Variances(found.equations, N))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", KERNELS)
def test_means_and_variances_are_those_of_the_textbook(name, way):
    """Local variances from all rows are exact, up to their calibration by a trace from two probes."""
    hyperparameters, tolerance = at(KERNELS[name], noise=0.1, mean=[0.2, -0.1]), WAYS[way][1]
    book, found = Textbook(hyperparameters, X, Y), uncalibrated(posterior(hyperparameters, way))
    prediction = found.predict(NEW, variance=True)
    torch.testing.assert_close(prediction.mean, book.mean(NEW), rtol=0, atol=tolerance)
    exact = book.covariance(NEW).diagonal()
    torch.testing.assert_close(
        prediction.variance, exact, rtol=0, atol=EXACT if way == "local" else tolerance
    )
    assert prediction.mean_error is None
    assert prediction.variance_error is None
    assert found.predict(NEW).variance is None


@pytest.mark.parametrize("way", WAYS)
def test_fixed_noise_is_that_of_the_rows(way):
    fixed = torch.linspace(0.02, 1.0, N, dtype=torch.float64)
    hyperparameters, y = at(KERNELS["matern32"], noise=None), Y[:, :1]
    book, found = Textbook(hyperparameters, X, y, fixed), posterior(hyperparameters, way, y=y, fixed=fixed)
    torch.testing.assert_close(found.predict(NEW).mean, book.mean(NEW), rtol=0, atol=WAYS[way][1])
    torch.testing.assert_close(found.covariance(NEW), book.covariance(NEW), rtol=0, atol=WAYS[way][1])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["rbf", "nested"])
def test_covariances_are_those_of_the_textbook(name, way):
    hyperparameters = at(KERNELS[name], noise=0.1)
    found = posterior(hyperparameters, way).covariance(NEW)
    torch.testing.assert_close(
        found, Textbook(hyperparameters, X, Y).covariance(NEW), rtol=0, atol=WAYS[way][1]
    )
    assert torch.equal(found, found.T)
    assert bool((found.diagonal() >= 0).all())


@pytest.mark.parametrize(("way", "joint"), [("cholesky", True), ("cholesky", False), ("local", True)])
def test_samples_have_the_mean_and_the_covariance_of_the_posterior(monkeypatch, way, joint):
    monkeypatch.setattr("halfgp.prediction.posterior.SAMPLE_FEATURES", 64)  # covariances do not depend on it
    hyperparameters, draws, new = at(KERNELS["white"], noise=0.1, mean=[0.2, 0.3]), 2000, NEW[:4]
    book = Textbook(hyperparameters, X, Y)
    found = posterior(hyperparameters, way).sample(new, draws, seed=1, joint=joint)
    assert found.shape == (4, draws, 2)
    exact = book.covariance(new)
    mean = book.mean(new)
    errors = (exact.diagonal() / draws).sqrt()
    assert bool(((found.mean(dim=1) - mean).abs() < 4.5 * errors[:, None] + 1e-4).all())
    for target in range(2):
        centred = found[:, :, target] - mean[:, target, None]
        # A covariance of normals has a variance of (k_ii k_jj + k_ij²) / draws.
        spread = ((exact.diagonal()[:, None] * exact.diagonal() + exact.square()) / draws).sqrt()
        assert bool(((centred @ centred.T / draws - exact).abs() < 4.5 * spread).all())
    one, other = (found[:, :, target] - mean[:, target, None] for target in range(2))
    independent = (one * other).mean(dim=1).abs()
    assert bool((independent < 4.5 * exact.diagonal() / draws**0.5).all())


def test_noise_of_samples_is_added_and_is_not_that_of_the_rows():
    found = posterior(at(KERNELS["rbf"], noise=0.1), "cholesky")
    plain, noisy = found.sample(X, 50, seed=3), found.sample(X, 50, seed=3, noise=0.1)
    added = noisy - plain
    assert float(added.square().mean()) == pytest.approx(0.1, rel=4.5 * math.sqrt(2 / added.numel()))
    # Were it the noise that the rows were perturbed by, it would cancel what the data took from the draws.
    moved = plain - plain.mean(dim=1, keepdim=True)
    correlation = (added * moved).mean() / (added.std() * moved.std())
    assert abs(float(correlation)) < 4.5 / math.sqrt(added.numel())


def test_frequencies_and_noise_of_a_sample_have_seeds_of_their_own(monkeypatch):
    """With one seed they would be the same numbers, which second moments do not show."""
    seeds, plain = [], PriorSamples.draw

    def draw(kernel, d, samples, features, seed, device):
        seeds.append(seed)
        return plain(kernel, d, samples, features, seed, device)

    monkeypatch.setattr(PriorSamples, "draw", draw)
    found = posterior(at(KERNELS["rbf"]), "cholesky")
    for seed in (0, 0, 1):
        found.sample(NEW[:2], 1, seed=seed)
    assert seeds[0] == seeds[1] != seeds[2]
    assert not {0, 1} & set(seeds)


@pytest.mark.parametrize("way", WAYS)
def test_samples_are_functions(way):
    """One seed, other batches and another order: the same values, up to the rounding of a product."""
    found = posterior(at(KERNELS["matern52"], noise=0.1), way)
    whole = found.sample(NEW, 3, seed=7)
    order = torch.arange(len(NEW) - 1, -1, -1)
    tolerance = EXACT if way == "cholesky" else 1e-5
    torch.testing.assert_close(found.sample(NEW[order], 3, seed=7), whole[order], rtol=0, atol=tolerance)
    torch.testing.assert_close(found.sample(NEW[5:9], 3, seed=7), whole[5:9], rtol=0, atol=tolerance)
    assert not torch.equal(found.sample(NEW, 3, seed=8), whole)


@pytest.mark.parametrize("way", WAYS)
def test_the_log_likelihood_is_that_of_the_textbook(way):
    hyperparameters = at(KERNELS["sum"], noise=0.1, mean=[0.1, 0.2])
    exact = Textbook(hyperparameters, X, Y).log_likelihood()
    value, error = posterior(hyperparameters, way).log_marginal_likelihood()
    if way == "local":
        assert 0 < error < 0.02 * abs(exact)
        assert abs(value - exact) < 4 * error
    else:
        assert error < (1e-8 if way == "cholesky" else 1e-6)
        assert value == pytest.approx(exact, abs=1e-8 if way == "cholesky" else 2e-2)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("fixed", [None, torch.linspace(0.05, 0.6, N, dtype=torch.float64)])
def test_leaving_one_out_is_to_leave_it_out(way, fixed):
    y = Y[:, :1]
    hyperparameters = at(KERNELS["white"], noise=0.1 if fixed is None else None, mean=[0.2])
    found = uncalibrated(posterior(hyperparameters, way, y=y, fixed=fixed))
    mean, variance = found.leave_one_out()
    for i in (0, 57, N - 1):
        rest = torch.arange(N) != i
        book = Textbook(hyperparameters, X[rest], y[rest], None if fixed is None else fixed[rest])
        own = 0.2 + (0.1 if fixed is None else float(fixed[i]))  # White and noise
        assert float(mean[i]) == pytest.approx(float(book.mean(X[i : i + 1])), abs=WAYS[way][1] * 5)
        latent = float(book.covariance(X[i : i + 1]))
        assert float(variance[i]) == pytest.approx(latent + own, abs=WAYS[way][1])


@pytest.mark.parametrize("variance", ["cholesky", "local"])
@pytest.mark.parametrize("tol", [0.1, 3e-3, 1e-4])
@pytest.mark.parametrize("kernel", [2.0 * RBF(1.0), Matern(1.5), RBF(0.4)], ids=repr)
@pytest.mark.parametrize("noise", [1e-1, 1e-3])
def test_errors_of_means_are_estimated_not_too_low_and_not_much_too_high(kernel, noise, tol, variance):
    x, new = points(300, 2), points(100, 2, seed=4)
    y = targets(x, q=2)
    hyperparameters = at(kernel, noise=noise)
    found = condition(Problem(x, y), hyperparameters, conditioning(variance=variance, tol=tol, neighbours=32))
    prediction = found.predict(new, errors=True)
    true = (prediction.mean - Textbook(hyperparameters, x, y).mean(new)).square().mean().sqrt()
    estimate = prediction.mean_error.square().mean().sqrt()
    assert 0.005 * estimate < true < 1.2 * estimate


@pytest.mark.parametrize("kernel", [2.0 * RBF(1.0), Matern(1.5), RBF(0.4)], ids=repr)
@pytest.mark.parametrize("noise", [1e-1, 1e-3, 1e-5])
def test_errors_of_variances_from_a_factor_in_single_are_bounded(kernel, noise):
    x, new = points(300, 2), points(100, 2, seed=4)
    hyperparameters = at(kernel, noise=noise, floor=1e-9)
    found = condition(Problem(x, targets(x)), hyperparameters, conditioning(variance="cholesky"))
    prediction = found.predict(new, variance=True, errors=True)
    true = (prediction.variance - Textbook(hyperparameters, x, targets(x)).covariance(new).diagonal()).abs()
    assert bool((true <= prediction.variance_error).all())
    assert float(prediction.variance_error.mean()) < 100 * float(true.mean())


def test_little_noise_has_its_means_in_double():
    """Weights are large and cancel: in single the mean would be off by more than the noise."""
    x, new = points(600, 2), points(100, 2, seed=4)
    y = targets(x, noise=0.0)
    hyperparameters = at(2.0 * RBF(1.0), noise=1e-6, floor=1e-9)
    found = condition(Problem(x, y), hyperparameters, conditioning(tol=1e-5, max_iterations=2000))
    assert found.accuracy.precision == "double"
    error = (found.predict(new).mean - Textbook(hyperparameters, x, y).mean(new)).abs().max()
    assert float(error) < math.sqrt(1e-6)
    assert condition(Problem(x, y), at(RBF(1.0), noise=0.1), conditioning()).accuracy.precision == "single"


def test_samples_at_repeated_points_are_the_same():
    """Their covariance is singular."""
    found = posterior(at(KERNELS["rbf"], noise=0.1), "cholesky")
    draws = found.sample(NEW[[3, 3, 4]], 5, seed=1, joint=True)
    torch.testing.assert_close(draws[0], draws[1], rtol=0, atol=1e-6)
    assert float((draws[0] - draws[2]).abs().max()) > 1e-3


def test_a_factor_leaves_cg_little_to_do():
    found = posterior(at(KERNELS["rbf"], noise=0.1), "factor")
    assert found.solve.iterations <= 3
    assert posterior(at(KERNELS["rbf"], noise=0.1), "cholesky").solve.iterations == 0


def test_the_weights_solve_the_system_and_a_start_is_used():
    hyperparameters = at(KERNELS["matern12"], noise=0.1, mean=[0.1, 0.2])
    book = Textbook(hyperparameters, X, Y)
    cold = posterior(hyperparameters, "local")
    residual = book.residual - book.matrix @ cold.weights
    assert float((residual.norm(dim=0) / book.residual.norm(dim=0)).max()) <= 1e-6 * (1 + 1e-6)
    warm = condition(
        cold.problem, hyperparameters, conditioning(tol=1e-5), torch.linalg.solve(book.matrix, book.residual)
    )
    assert warm.solve.iterations <= cold.solve.iterations


def test_the_loss_of_training_is_minus_this_likelihood():
    hyperparameters = at(KERNELS["rbf"], noise=0.1, mean=[0.1, 0.2])
    value, _ = posterior(hyperparameters, "cholesky").log_marginal_likelihood()
    assert dense_likelihood(hyperparameters, X, Y, priors={}).loss * Y.numel() == pytest.approx(
        -value, rel=1e-12
    )


@pytest.mark.parametrize("way", WAYS)
def test_no_points_give_nothing(way):
    found = posterior(at(KERNELS["rbf"]), way).predict(points(0), variance=True, errors=True)
    assert [part.shape[0] for part in found] == [0, 0, 0, 0]


def test_chunks_do_not_change_variances(monkeypatch):
    found = posterior(at(KERNELS["rbf"]), "cholesky")
    whole = found.predict(NEW, variance=True, errors=True)
    monkeypatch.setattr("halfgp.prediction.variances.CHUNK_BYTES", 3 * N * 8 * 7)
    monkeypatch.setattr("halfgp.prediction.posterior.COLUMNS", 3)
    small = found.predict(NEW, variance=True, errors=True)
    torch.testing.assert_close(small.variance, whole.variance, rtol=0, atol=1e-13)
    torch.testing.assert_close(small.variance_error, whole.variance_error, rtol=1e-6, atol=0)
    local = posterior(at(KERNELS["rbf"]), "local")
    torch.testing.assert_close(local.covariance(NEW), found.covariance(NEW), rtol=0, atol=ITERATIVE)


def test_predictions_are_joined_end_to_end():
    found = posterior(at(KERNELS["rbf"], mean=[0.0, 1.0]), "cholesky")
    parts = [found.predict(NEW[:20], variance=True), found.predict(NEW[20:], variance=True)]
    whole, joined = found.predict(NEW, variance=True), LatentPrediction.joined(parts)
    torch.testing.assert_close(joined.mean, whole.mean, rtol=0, atol=1e-13)
    torch.testing.assert_close(joined.variance, whole.variance, rtol=0, atol=1e-13)
    assert joined.mean_error is None


@pytest.mark.parametrize("way", WAYS)
def test_a_pickled_posterior_is_small_and_says_the_same(way):
    found = posterior(at(KERNELS["rbf"], noise=0.1), way)
    before = found.predict(NEW, variance=True)
    data = pickle.dumps(found)
    assert len(data) < N * N * 4
    after = pickle.loads(data).predict(NEW, variance=True)
    assert torch.equal(after.mean, before.mean)
    assert torch.equal(after.variance, before.variance)
