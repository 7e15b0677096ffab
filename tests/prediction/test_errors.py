"""Errors told beside means and variances are not short, however rows lie and whatever their noise."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from contracts.textbook import Textbook, at, targets

import halfgp.prediction.conditioning
from halfgp.kernels import RBF, Matern
from halfgp.operators import KernelOperator
from halfgp.prediction import Conditioning, condition
from halfgp.prediction.accuracy import IN_DOUBLE, rounding_in_double
from halfgp.problem import Problem

N, NEW = 240, 200
SHORT = 3.0  # an estimate that is short by more than this, in more than one point of a hundred, fails
KERNELS = {
    "rbf": RBF(0.5),
    "matern12": Matern(0.5, 1.0),
    "matern32": Matern(1.5, 1.0),
    "matern52": Matern(2.5),
}
BACKENDS = ("cpu", "reference")
NOTHING = 1e-4  # of a deviation: an error that nobody sees
UNKNOWN = 1e-12  # of a prior variance of one: what the textbook's factor in double may round away itself


def uniform(d, generator):
    return 4 * torch.rand(N + NEW, d, generator=generator, dtype=torch.float64) - 2


def copies(d, generator):
    """Eight rows at each place; new points anywhere."""
    x = uniform(d, generator)
    x[:N] = x[torch.arange(N) % (N // 8)]
    return x


def grid(d, generator):
    """Whole numbers, and new points on and between them."""
    x = torch.randint(0, 40 if d == 1 else 5, (N + NEW, d), generator=generator).double()
    x[N + NEW // 2 :] += 0.3
    return x / (10.0 if d == 1 else 1.25) - 2.0


def outliers(d, generator):
    """Every twentieth row ten times as far away."""
    x = uniform(d, generator)
    x[::20] *= 10.0
    return x


# Every noise, kernel and way to lie with each other, in one feature or in three by turns.
CASES = [
    (lie, (1, 3)[(i + j + k) % 2], kernel, noise)
    for i, lie in enumerate([uniform, copies, grid, outliers])
    for j, kernel in enumerate(KERNELS)
    for k, noise in enumerate([1e-8, 1e-4, 1e-2, "known"])
]


@pytest.mark.parametrize(("lie", "d", "kernel", "noise"), CASES)
@pytest.mark.parametrize("route", ["products", "single factor"])
def test_what_is_told_is_not_short(route, lie, d, kernel, noise, monkeypatch):
    generator = torch.Generator().manual_seed(1)
    x, fixed = lie(d, generator), None
    y = targets(x, noise=1e-8 if noise == "known" else noise)[:N]
    if noise == "known":
        fixed = 10 ** (-8 * torch.rand(N, generator=generator, dtype=torch.float64))
        y = y + fixed.sqrt()[:, None] * torch.randn(N, 1, generator=generator, dtype=torch.float64)
    hyperparameters = at(1.0 * KERNELS[kernel], noise=None if noise == "known" else noise, floor=1e-14)
    monkeypatch.setattr(halfgp.prediction.conditioning, "routes", lambda *_: (route, "double factor"))
    found = condition(
        Problem(x[:N], y, fixed), hyperparameters, Conditioning("cg", 1e-2, 1000, None, "auto", None, 0)
    )
    book, new = Textbook(hyperparameters, x[:N], y, fixed), x[N:]
    told = found.predict(new, variance=True, errors=True)
    exact = book.covariance(new).diagonal()
    deviation = (told.variance + (0.0 if fixed is not None else noise)).sqrt()
    short = (told.mean - book.mean(new)).abs() > SHORT * told.mean_error + NOTHING * deviation[:, None]
    assert float(short.double().mean()) <= 0.01
    short = (told.variance - exact).abs() > SHORT * told.variance_error + UNKNOWN
    assert float(short.double().mean()) <= 0.01
    # Never sure of what is not known.
    assert bool((told.variance >= exact - SHORT * told.variance_error - UNKNOWN).all())
    # Nor told so large that it says nothing.
    assert float((told.mean_error[:, 0] / deviation).median()) < 0.1


@pytest.mark.skipif(np.finfo(np.longdouble).eps >= np.finfo(np.float64).eps, reason="no wider format here")
def test_rounding_in_double_is_what_a_wider_format_finds():
    """Large weights of either sign, as smooth kernels with a large outputscale and little noise have."""
    x = uniform(3, torch.Generator().manual_seed(2))
    scale, lengthscale = 2e5, 40.0
    weights = 1e3 * torch.randn(N, 1, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    kernel = scale * Matern(2.5, lengthscale)
    by = {name: KernelOperator(kernel, x[N:], x[:N], precision="double", backend=name) for name in BACKENDS}
    one, other = (torch.as_tensor(operator @ weights) for operator in by.values())
    sizes = torch.as_tensor(by["reference"] @ weights.abs())
    told = rounding_in_double(one, other, sizes) * sizes[:, 0]
    wide, rows = (part.numpy().astype(np.longdouble) for part in (x[N:], x[:N]))
    r = np.sqrt(5 * ((wide[:, None] - rows) ** 2).sum(axis=2)) / lengthscale
    exact = (scale * (1 + r + r**2 / 3) * np.exp(-r)) @ weights[:, 0].numpy().astype(np.longdouble)
    error = torch.from_numpy(abs(one[:, 0].numpy() - exact).astype(np.float64))
    assert float((error > SHORT * told).double().mean()) <= 0.01
    assert float((told / sizes[:, 0]).max()) < IN_DOUBLE


def test_nothing_is_learned_from_one_program_that_runs_twice():
    product = torch.ones(4, 1, dtype=torch.float64)
    assert rounding_in_double(product, product, product) == IN_DOUBLE
