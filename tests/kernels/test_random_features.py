"""Random features: their second moments are the kernel's, and samples are frozen functions."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

import halfgp.kernels.random_features as module
from halfgp import RBF, Constant, Linear, Matern, Periodic, RationalQuadratic, White
from halfgp.errors import InputError
from halfgp.kernels import Kernel
from halfgp.kernels.random_features import PriorSamples
from halfgp.parameters import Parameter

X = torch.randn(7, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
KERNELS = [
    RBF([0.7, 1.3]),
    Matern(0.5, 1.2),
    Matern(1.5, [0.8, 2.0]),
    Matern(2.5, 0.9, active_dims=[1]),
    RationalQuadratic(0.4, 0.8),
    RationalQuadratic(30.0, [0.8, 1.1]),
    Periodic(1.7, 0.6),
    Linear([0.5, 2.0]),
    Constant(0.7),
    3.0 * RBF(0.5),
    RBF(0.5) + RBF(0.5),
    Constant(2.0) + Linear(0.5),
    2.0 * (RBF(0.5) + 1.0) + 3.0,  # two constants that are not one: signs keep them apart
    RBF(1.0) * RBF(1.0),
    Linear(0.5) * RBF(0.9),
    Linear(0.5) * Linear(0.7),
    2.0 * RBF(0.5) * (Matern(0.5) + 0.3 * Periodic(2.0)) + Linear(0.1) * (RBF(2.0) + 1.5) + White(0.3),
]


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("features", [1, 16])
def test_second_moments_are_those_of_the_kernel(kernel: Kernel, features: int) -> None:
    draws = 40_000
    f = PriorSamples.draw(kernel, 2, draws, features, seed=1).samples_at(kernel, X)
    products = f[:, None] * f[None, :]  # (n, n, s)
    error = products.mean(dim=2) - kernel(X, X)
    # Entries share their draws: 28 of them within five standard errors leave 2e-5 of false alarms.
    standard = products.std(dim=2) / math.sqrt(draws)
    assert bool((error.abs() <= 5.0 * standard).all())
    assert bool((f.mean(dim=1).abs() <= 5.0 * f.std(dim=1) / math.sqrt(draws)).all())


def test_many_features_make_a_gaussian() -> None:
    f = PriorSamples.draw(RBF(), 2, 4_000, 200, seed=2).samples_at(RBF(), X[:1])[0]
    # A kurtosis of normals has the standard deviation sqrt(24 / s); that of m features is 3 + 1.5 / m.
    assert abs((f**4).mean().item() / f.var().item() ** 2 - 3.0) < 5.0 * math.sqrt(24.0 / len(f)) + 1.5 / 200


def test_the_factors_of_a_square_are_independent() -> None:
    # With shared draws a square would have the moments of k^2 + ..., the diagonal 1.5 instead of 1.
    same = RBF(1.0)
    f = PriorSamples.draw(same * same, 2, 40_000, 1, seed=3).samples_at(same * same, X)
    assert (f**2).mean().item() == pytest.approx(1.0, abs=0.05)


def test_white_is_noise_and_takes_no_part() -> None:
    samples = PriorSamples.draw(White(2.0), 2, 3, 4, seed=0)
    assert torch.equal(samples.samples_at(White(2.0), X), torch.zeros(7, 3, dtype=torch.float64))
    plain, noisy = (PriorSamples.draw(k, 2, 3, 4, seed=0).samples_at(k, X) for k in (RBF(), RBF() + White()))
    assert torch.equal(plain, noisy)


def test_a_seed_decides_everything() -> None:
    kernel = KERNELS[-1]
    state = torch.get_rng_state()
    first, again, other = (
        PriorSamples.draw(kernel, 2, 3, 8, seed).samples_at(kernel, X) for seed in (5, 5, 6)
    )
    assert torch.equal(first, again)
    assert not torch.isclose(first, other).any()
    assert torch.equal(torch.get_rng_state(), state)


def test_draws_do_not_depend_on_hyperparameters() -> None:
    one, other = (
        k + Linear(v) for k, v in ((RationalQuadratic(0.3, 2.0), 1.0), (RationalQuadratic(9.0), 4.0))
    )
    drawn = [PriorSamples.draw(kernel, 2, 3, 8, seed=0).samples_at(one, X) for kernel in (one, other)]
    assert torch.equal(*drawn)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_samples_are_smooth_in_every_hyperparameter(kernel: Kernel) -> None:
    # By central differences: h and h/2 agree to O(h^2) times third derivatives, and a jump would be O(1/h).
    samples = PriorSamples.draw(kernel, 2, 2, 16, seed=7)

    def slope(name: str, parameter: Parameter, h: float) -> torch.Tensor:
        up, down = (
            samples.samples_at(kernel.with_parameters({name: parameter.value * math.exp(s)}), X)
            for s in (h, -h)
        )
        return (up - down) / (2.0 * h)

    for name, parameter in kernel.named_parameters():
        coarse, fine = (slope(name, parameter, h) for h in (1e-5, 5e-6))
        torch.testing.assert_close(coarse, fine, rtol=1e-3, atol=1e-3)


def test_the_mixing_variable_moves_smoothly_over_all_shapes() -> None:
    samples = PriorSamples.draw(RationalQuadratic(), 2, 2, 16, seed=7)
    values = [samples.samples_at(RationalQuadratic(a), X) for a in torch.logspace(-1, 6, 1401)]
    steps = torch.stack([(b - a).abs().max() for a, b in itertools.pairwise(values)])
    assert steps.max() < 0.2  # of a function of variance 1, with alpha growing by one percent
    assert steps[-1] < 1e-4  # the limit of large alpha is the RBF
    assert all(bool(value.isfinite().all()) for value in values)


def test_samples_do_not_depend_on_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = KERNELS[-1]
    x = torch.randn(301, 2, generator=torch.Generator().manual_seed(3))
    samples = PriorSamples.draw(kernel, 2, 3, 8, seed=0)
    whole = samples.samples_at(kernel, x)
    # A phase is a sum of two products, whose roundings a BLAS may order otherwise for another number of rows.
    bound = {"rtol": 0.0, "atol": 1e-10}
    for size in (1, 2**12, 2**15):
        monkeypatch.setattr(module, "CHUNK_BYTES", size)
        torch.testing.assert_close(samples.samples_at(kernel, x), whole, **bound)
    torch.testing.assert_close(samples.samples_at(kernel, x[17:50]), whole[17:50], **bound)
    assert samples.samples_at(kernel, x[:0]).shape == (0, 3)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_chunks_stay_small(kernel: Kernel) -> None:
    samples = PriorSamples.draw(kernel, 2, 10, 128, seed=0)
    assert samples._chunk_rows() * 8 * 1280 * (len(samples.nodes) + 2) <= 2**26


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_points_in_float32_are_points(kernel: Kernel) -> None:
    x = X.to(torch.float32)
    samples = PriorSamples.draw(kernel, 2, 3, 8, seed=0)
    narrow = samples.samples_at(kernel, x)
    assert narrow.dtype == torch.float64
    assert torch.equal(narrow, samples.samples_at(kernel, x.to(torch.float64)))


def test_nearby_points_far_from_the_origin_keep_their_covariance() -> None:
    # 1e4 lengthscales away the heavy tail of a Matérn 1/2 makes phases of 1e8, far beyond float32.
    kernel = Matern(0.5)
    samples = PriorSamples.draw(kernel, 1, 2_000, 16, seed=0)
    x = torch.tensor([[1e4], [1e4 + 1e-3]], dtype=torch.float64)
    f = samples.samples_at(kernel, x)
    squares = (f[0] - f[1]) ** 2
    expected = 2.0 * (1.0 - math.exp(-1e-3))
    assert abs(squares.mean().item() - expected) < 5.0 * squares.std().item() / math.sqrt(2_000)


def test_a_function_is_one_function_of_all_points() -> None:
    # Interpolation: f at a fine grid has the increments of a smooth function.
    samples = PriorSamples.draw(RBF(), 1, 4, 32, seed=0)
    grid = torch.linspace(0.0, 1.0, 1001, dtype=torch.float64)[:, None]
    f = samples.samples_at(RBF(), grid)
    assert f.diff(dim=0).abs().max() < 0.01
    assert f.diff(n=2, dim=0).abs().max() < 1e-4


def test_another_structure_is_refused() -> None:
    samples = PriorSamples.draw(2.0 * RBF() + Linear(), 2, 2, 4, seed=0)
    samples.samples_at(1.0 * RBF([1.0, 3.0]) + Linear(), X)
    for other in (
        RBF(),
        2.0 * RBF() * Linear(),
        2.0 * Matern() + Linear(),
        2.0 * RBF(active_dims=[1]) + Linear(),
    ):
        with pytest.raises(InputError, match="`kernel` must have the structure"):
            samples.samples_at(other, X)
    with pytest.raises(InputError, match="`x` must have 2 columns, as the samples were drawn for; got 3"):
        samples.samples_at(2.0 * RBF() + Linear(), torch.zeros(1, 3))


def test_what_cannot_be_drawn_is_refused() -> None:
    for name in ("samples", "features"):
        arguments = {"samples": 1, "features": 1, name: 0}
        with pytest.raises(InputError, match=f"`{name}` must be at least 1; got 0"):
            PriorSamples.draw(RBF(), 2, seed=0, **arguments)
    with pytest.raises(InputError, match="`lengthscale` must be a single number or one per"):
        PriorSamples.draw(RBF([1.0, 2.0]), 3, 1, 1, seed=0)
    negative = Constant(Parameter(torch.tensor(-1.0), -2.0, 2.0)) + RBF()
    with pytest.raises(InputError, match="negative factors to be sampled; got -1"):
        PriorSamples.draw(negative, 2, 1, 1, seed=0).samples_at(negative, X)
