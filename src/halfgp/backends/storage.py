"""Whether the entries of a kernel matrix are held in memory, and in which format: the arguments decide."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from halfgp.errors import InputError
from halfgp.kernels import Kernel
from halfgp.precision import SINGLE, Format, Precision

STORAGES = ("auto", "on_the_fly", "stored")
RHO_LIMIT = 0.1  # at a tenth of the noise, rounded entries still let a solver converge
SAMPLED_POINTS = 640  # 320 rows against 320 columns: about 10^5 pairs


def choose_storage(
    kernel: Kernel,
    x1: Tensor,
    x2: Tensor | None,
    noise: Tensor,
    *,
    stored_bytes: Callable[[int], int],
    precision: Precision,
    storage: str,
    memory_limit: int | None,
) -> tuple[Precision, bool]:
    """The precision, with the format of the entries as they will be held, and whether they are stored.

    "auto" stores only where a `memory_limit` (bytes) was given and the entries fit into it: in 16 bits if
    that is the precision and `rounding_to_noise` is below RHO_LIMIT, otherwise unrounded.
    `stored_bytes` tells the memory of entries of a size.
    """
    if storage not in STORAGES:
        known = ", ".join(f'"{name}"' for name in STORAGES)
        raise InputError(f"`storage` must be one of {known}; got {storage!r}.")
    wide = unrounded(precision)
    if storage == "stored":
        needed = stored_bytes(precision.entries.bytes)
        if memory_limit is not None and needed > memory_limit:
            raise InputError(
                f'`storage="stored"` needs {needed:,} bytes and `memory_limit` is {memory_limit:,}.'
                ' Raise it, or use "on_the_fly".'
            )
        return precision, True
    if storage == "auto" and memory_limit is not None:
        sixteen_bit = precision.entries.bytes == 2 and stored_bytes(2) <= memory_limit and x2 is None
        if sixteen_bit and rounding_to_noise(kernel, x1, noise, precision.entries) < RHO_LIMIT:
            return precision, True
        if stored_bytes(wide.entries.bytes) <= memory_limit:
            return wide, True
    return wide, False


def unrounded(precision: Precision) -> Precision:
    """The same with entries as they are computed, not rounded to 16 bits."""
    return precision.with_entries(SINGLE) if precision.entries.bytes == 2 else precision


def rounding_to_noise(kernel: Kernel, x: Tensor, noise: Tensor, entries: Format) -> float:
    """An estimate of rho, the norm of the rounding errors of K relative to the noise.

    Rounded entries perturb K by about u ||K||_F / sqrt(N) in norm, and a solve survives that where it is well
    below the least noise variance, White included. The mean square comes from a fixed sample of pairs of
    distinct points.

    Args:
        kernel: the kernel.
        x: points (n, D).
        noise: variances () or (n,).
        entries: the format that entries are rounded to.

    Returns:
        u sqrt(n mean(k^2) + 1) / (noise / amplitude), with k normalised; inf without noise.
    """
    n = len(x)
    if n == 0:
        return 0.0
    kernel = kernel.detached()
    amplitude = kernel.amplitude(x).item()
    least = (noise + kernel.white(x)).min().item() / amplitude
    if least <= 0.0:
        return math.inf
    sample = x[torch.randperm(n, generator=torch.Generator().manual_seed(0))[:SAMPLED_POINTS].to(x.device)]
    half = len(sample) // 2
    normalised = kernel(sample[:half], sample[half:]) / amplitude
    mean_square = normalised.square().mean().item() if half else 0.0
    return entries.unit_roundoff * math.sqrt(n * mean_square + 1.0) / least
