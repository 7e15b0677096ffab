"""How fast this machine is at what fits are made of, measured on small cases when somebody asks."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache

import torch

from halfgp.backends import get_backend
from halfgp.backends.conditionals import Neighbourhoods
from halfgp.kernels import Matern
from halfgp.operators import KernelOperator
from halfgp.precision import Precision
from halfgp.threads import torch_threads

# Of the time of dense algebra with its size: larger matrices come nearer to the machine's peak.
GROWTH_OF_INVERSE, GROWTH_OF_FACTOR = 2.8, 2.7
CALIBRATION_ROWS, CALIBRATION_DENSE, CALIBRATION_NEIGHBOURS = 4096, 1024, 2048
# Work beside it disturbs most calls, and seldom all: many of what is quick, some of what takes long.
CALLS, LEAST_CALLS, BUDGET = 12, 2, 0.2


@cache
def entry_rate(features: int, threads: int | None = None) -> float:
    """Entries of K per second of a product with one column, measured here on a few thousand rows."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(CALIBRATION_ROWS, features, generator=generator)
    v = torch.randn(CALIBRATION_ROWS, 1, generator=generator)
    kernel = Matern(1.5, lengthscale=max(1.0, features**0.5))
    operator = KernelOperator(kernel, x, precision="single", threads=threads)
    return CALIBRATION_ROWS**2 / _fastest(lambda: operator @ v)


@cache
def neighbour_seconds(features: int, threads: int | None, neighbours: int) -> float:
    """Time of a row given so many neighbours, with the gradient, measured here on a few."""
    n = CALIBRATION_NEIGHBOURS + neighbours
    x = torch.randn(n, features, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    kernel = Matern(1.5, lengthscale=[max(1.0, features**0.5)] * features)
    of = Neighbourhoods(
        x,
        torch.arange(neighbours, n),
        torch.arange(neighbours).expand(CALIBRATION_NEIGHBOURS, -1).contiguous(),
        torch.full((n,), 2.0, dtype=torch.float64),
        x[:, :1].contiguous(),
    )
    backend, double = get_backend("auto", x.device), Precision.resolve("double")
    seconds = _fastest(
        lambda: backend.conditionals(kernel, of, precision=double, threads=threads, gradient=True)
    )
    return seconds / CALIBRATION_NEIGHBOURS


def dense_seconds(rows: int, threads: int | None) -> float:
    """Time of a Cholesky factor and an inverse in double, by the speed of small ones here."""
    growth = (rows / CALIBRATION_DENSE) ** GROWTH_OF_INVERSE
    return float(growth * _small_inverse_seconds(threads))


def factor_seconds(rows: int, kind: torch.dtype, threads: int | None) -> float:
    """Time of a Cholesky factor alone."""
    growth = (rows / CALIBRATION_DENSE) ** GROWTH_OF_FACTOR
    return float(growth * _small_factor_seconds(kind, threads))


@cache
def _small_inverse_seconds(threads: int | None) -> float:
    matrix = torch.eye(CALIBRATION_DENSE, dtype=torch.float64) + 0.5
    with torch_threads(threads):
        return _fastest(lambda: torch.cholesky_inverse(torch.linalg.cholesky(matrix)))


@cache
def _small_factor_seconds(kind: torch.dtype, threads: int | None) -> float:
    matrix = torch.eye(CALIBRATION_DENSE, dtype=kind) + 0.5
    with torch_threads(threads):
        return _fastest(lambda: torch.linalg.cholesky(matrix))


def _fastest(work: Callable[[], object]) -> float:
    """Seconds of the fastest of some calls."""
    best = float("inf")
    began = time.perf_counter()
    for call in range(CALLS):
        start = time.perf_counter()
        if call >= LEAST_CALLS and start - began > BUDGET:
            break
        work()
        best = min(best, time.perf_counter() - start)
    return best
