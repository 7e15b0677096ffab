"""Where training begins: the kernel, noise and mean that the settings name."""

from __future__ import annotations

import math

import torch

from halfgp.choices import choose_noise_floor
from halfgp.errors import InputError
from halfgp.hyperparameters import Hyperparameters, kernel_by_name
from halfgp.kernels import Kernel
from halfgp.parameters import Parameter
from halfgp.problem import Problem
from halfgp.settings import Settings
from halfgp.standardise import Standardisation


def starting_point(settings: Settings, problem: Problem, x_scale: Standardisation) -> Hyperparameters:
    """Hyperparameters before any are learned, with a kernel of the columns that vary, where some do."""
    kernel = _kernel(settings, x_scale)
    features = problem.features
    kernel.check_columns(features)
    floor = choose_noise_floor(settings.noise_floor, settings.noise, features)
    noise = Parameter(torch.tensor(float(settings.noise), dtype=torch.float64), floor, name="noise")
    # Zero where targets are standardised. Parameters are on the CPU, wherever the rows are.
    mean = Parameter(problem.y.mean(dim=0).cpu(), lower=-math.inf, name="mean")
    return Hyperparameters(
        kernel.detached(),
        noise if problem.fixed_noise is None else None,
        mean if settings.mean == "constant" else None,
    )


def _kernel(settings: Settings, x_scale: Standardisation) -> Kernel:
    """As given, or by its name."""
    kernel, d = settings.kernel, len(x_scale.constant)
    if isinstance(kernel, Kernel):
        return kernel
    if not isinstance(kernel, str):
        raise InputError(f"`kernel` must be a name or a kernel such as `RBF()`; got {kernel!r}.")
    varying = (~x_scale.constant).nonzero()[:, 0].tolist()
    some = varying if 0 < len(varying) < d else None
    count = d if some is None else len(some)
    return kernel_by_name(
        kernel,
        count,
        ard=settings.ard,
        lengthscale=settings.lengthscale or max(1.0, math.sqrt(count)) / 2,
        outputscale=settings.outputscale,
        active_dims=some,
    )
