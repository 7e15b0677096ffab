"""Where training begins, beside where it is told to."""

from __future__ import annotations

from dataclasses import replace

import torch

from halfgp.hyperparameters import Coordinates, Hyperparameters

SPREAD = 3.0  # of random starts: a factor of twenty up or down
QUIET = 1e-3  # of the noise, for a second start


def loud_and_quiet(start: Hyperparameters) -> list[Hyperparameters]:
    """Where to begin: as given, and with a thousandth of the noise.

    What varies quickly can be noise or function, and a likelihood often has an optimum for either.
    """
    noise = start.noise
    if noise is None or noise.fixed or float(noise.value) * QUIET <= noise.lower:
        return [start]
    return [start, replace(start, noise=noise.with_value(noise.value * QUIET))]


def random_starts(start: Hyperparameters, count: int, seed: int) -> list[Hyperparameters]:
    """So many others: uniform on the real line within SPREAD of the start, as far as bounds allow."""
    coordinates = Coordinates(start)
    origin = coordinates.vector(start)
    generator = torch.Generator().manual_seed(seed)
    away = (torch.rand(count, len(origin), generator=generator, dtype=torch.float64) * 2 - 1) * SPREAD
    return [coordinates.hyperparameters(origin + step) for step in away]
