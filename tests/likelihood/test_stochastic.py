from __future__ import annotations

import pytest
import torch
from contracts.textbook import KERNELS, at, points, targets

from halfgp.errors import InputError
from halfgp.hyperparameters import Hyperparameters
from halfgp.kernels.random_features import PriorSamples
from halfgp.likelihood import GradientEstimator, dense_likelihood
from halfgp.operators import KernelOperator
from halfgp.priors import PAPER
from halfgp.problem import Problem

N = 60
SEEDS = 12
PROBES = 48


def estimate(kind, hyperparameters: Hyperparameters, x, y, seed, fixed=None, priors=PAPER, probes=PROBES):
    """One estimate, from solves that are exact."""
    estimator = GradientEstimator.draw(
        hyperparameters, Problem(x, y, fixed), kind=kind, probes=probes, priors=priors, seed=seed
    )
    operator = KernelOperator(
        hyperparameters.kernel, x, noise=hyperparameters.diagonal_noise(fixed), precision="double"
    )
    equations = estimator.at(hyperparameters, operator.bound)
    return equations.gradient(solved(equations, operator))


def solved(equations, operator):
    """Exact solutions of the right-hand sides."""
    return torch.linalg.solve(torch.as_tensor(operator.to_dense()), equations.right_hand_sides)


def check_unbiased(kind, hyperparameters, x, y, fixed=None):
    """The mean over seeds is within four standard errors of the exact gradient, in every component."""
    exact = dense_likelihood(hyperparameters, x, y, fixed_noise=fixed, priors=PAPER).gradient
    drawn = [estimate(kind, hyperparameters, x, y, seed, fixed) for seed in range(SEEDS)]
    for name, gradient in exact.items():
        values = torch.stack([one[name] for one in drawn])
        error = values.std(dim=0) / SEEDS**0.5
        # 1e-9: for what has no randomness, such as the mean's gradient.
        worst = ((values.mean(dim=0) - gradient).abs() / (4 * error + 1e-9)).max()
        assert worst < 1, f"{name}: {float(worst):.2f} of four standard errors"
        # The test has power: an error is not so large that a wrong formula would pass.
        assert float(error.max()) < 0.15 * float(gradient.abs().max()) + 0.02, name


@pytest.mark.parametrize("kind", ["pathwise", "hutchinson"])
@pytest.mark.parametrize("name", ["matern32", "rational_quadratic", "sum", "nested"])
def test_estimates_are_unbiased(kind, name):
    x = points(N)
    check_unbiased(kind, at(KERNELS[name], noise=0.3, mean=[0.2]), x, targets(x))


@pytest.mark.parametrize("kind", ["pathwise", "hutchinson"])
def test_estimates_are_unbiased_for_several_targets_and_fixed_noise(kind):
    x = points(N)
    check_unbiased(kind, at(KERNELS["rbf"], noise=0.3, mean=[0.1, 0.2]), x, targets(x, q=2))
    fixed = torch.linspace(0.1, 0.6, N, dtype=torch.float64)
    check_unbiased(kind, at(KERNELS["matern12"], noise=None), x, targets(x), fixed)


@pytest.mark.parametrize("kind", ["pathwise", "hutchinson"])
def test_a_seed_gives_the_same_numbers_and_another_does_not(kind):
    x = points(N)
    hyperparameters = at(KERNELS["matern32"])
    one, same, other = (estimate(kind, hyperparameters, x, targets(x), seed, probes=2) for seed in (3, 3, 4))
    assert torch.equal(one["noise"], same["noise"])
    assert not torch.equal(one["noise"], other["noise"])


@pytest.mark.parametrize("kind", ["pathwise", "hutchinson"])
def test_right_hand_sides_move_smoothly_with_the_hyperparameters(kind):
    x = points(N)
    estimator = GradientEstimator.draw(
        at(KERNELS["matern32"]),
        Problem(x, targets(x)),
        kind=kind,
        probes=4,
        priors={},
        seed=0,
    )

    def sides(lengthscale, noise):
        kernel = KERNELS["matern32"].with_parameters({"lengthscale": lengthscale})
        operator = KernelOperator(kernel, x, noise=noise, precision="double")
        return estimator.at(at(kernel, noise=noise), operator.bound).right_hand_sides

    near = (sides(0.9 * (1 + 1e-6), 0.1 * (1 + 1e-6)) - sides(0.9, 0.1)).abs().max()
    # A sample moves by its slope in the frequencies; new randomness would move it by its own size.
    assert float(near) < 1e-3 if kind == "pathwise" else float(near) == 0.0


def test_pathwise_probes_have_the_covariance_of_the_targets():
    """Second moments of the right-hand sides are K + noise, White included."""
    x = points(5)
    kernel = KERNELS["white"]
    probes = 20_000
    estimator = GradientEstimator.draw(
        at(kernel, noise=0.3),
        Problem(x, targets(x)),
        kind="pathwise",
        probes=probes,
        priors={},
        seed=0,
    )
    operator = KernelOperator(kernel, x, noise=0.3, precision="double")
    z = estimator.at(at(kernel, noise=0.3), operator.bound).right_hand_sides[:, 1:]
    exact = torch.as_tensor(operator.to_dense())
    # A second moment of normals has a variance of (k_ii k_jj + k_ij²) / probes; samples have 128 features.
    error = ((exact.diagonal()[:, None] * exact.diagonal() + exact.square()) / probes).sqrt()
    assert bool(((z @ z.T / probes - exact).abs() < 4.5 * error).all())


def test_frequencies_and_noise_of_a_sample_have_seeds_of_their_own(monkeypatch):
    """With one seed they would be the same numbers, which second moments do not show."""
    x, seeds = points(5), []
    plain = PriorSamples.draw

    def draw(kernel, d, samples, features, seed, device):
        seeds.append(seed)
        return plain(kernel, d, samples, features, seed, device)

    monkeypatch.setattr(PriorSamples, "draw", draw)
    for seed in (0, 0, 1):
        GradientEstimator.draw(
            at(KERNELS["rbf"]),
            Problem(x, targets(x)),
            kind="pathwise",
            probes=2,
            priors={},
            seed=seed,
        )
    assert seeds[0] == seeds[1] != seeds[2]
    assert not {0, 1} & set(seeds)


def test_bad_choices_are_refused():
    x = points(5)
    options = {"priors": {}, "seed": 0}
    rows = Problem(x, targets(x))
    with pytest.raises(
        InputError, match="`gradient` must be one of pathwise, hutchinson, neighbours; got 'exact'"
    ):
        GradientEstimator.draw(at(KERNELS["rbf"]), rows, kind="exact", probes=3, **options)
    with pytest.raises(InputError, match="`probes` must be at least 1; got 0"):
        GradientEstimator.draw(at(KERNELS["rbf"]), rows, kind="pathwise", probes=0, **options)
