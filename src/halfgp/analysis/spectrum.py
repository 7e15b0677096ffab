"""Eigenvalues of kernel matrices across formats, the error that rounding makes, and effective dimensions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from halfgp.analysis.matrices import Rounding, as_format, kernel_matrix
from halfgp.data import ArrayLike
from halfgp.errors import InputError
from halfgp.kernels import Kernel
from halfgp.precision import Format
from halfgp.solvers import lanczos

NORM_STEPS = 100  # of Lanczos: at the edge of a random matrix's spectrum so many are right to a percent
CHUNK = 2**22  # numbers of a temporary


@dataclass(frozen=True)
class QuantisedDimension:
    """The expected effective dimension of eigenvalues with uniform noise, beside that without.

    Attributes:
        mean: by Monte Carlo.
        standard_error: of the mean.
        exact: the same expectation by its integral.
        effective_dimension: of the eigenvalues as they are; never below `exact`, by Jensen's inequality.
    """

    mean: float
    standard_error: float
    exact: float
    effective_dimension: float


def eigenvalues(
    kernel: Kernel, X: ArrayLike, precision: str | Format = "double", *, rounding: Rounding = "entries"
) -> Tensor:
    """The eigenvalues (n,) of K, largest first, float64; below zero where rounding made it indefinite.

    Args:
        kernel: the covariance; its White part is left out.
        X: points (n, d). O(n³) time.
        precision: the format.
        rounding: what is rounded to it, as for `kernel_matrix`. The decomposition is in double.
    """
    values: Tensor = torch.linalg.eigvalsh(kernel_matrix(kernel, X, precision, rounding=rounding))
    return values.flip(0)


def effective_dimension(
    eigenvalues: Tensor, noise: float, *, negative: Literal["zero", "keep"] = "zero"
) -> float:
    """The sum of λ / (λ + noise).

    Args:
        eigenvalues: (n,).
        noise: variance, positive.
        negative: what eigenvalues below zero, which rounding makes, count as: "zero", or "keep" for the trace
            of K (K + noise)^-1 whatever it is worth.
    """
    _check_noise(noise)
    if negative not in ("zero", "keep"):
        raise InputError(f'`negative` must be "zero" or "keep"; got {negative!r}.')
    values = eigenvalues.double()
    if negative == "zero":
        values = values.clamp_min(0.0)
    elif bool((values <= -noise).any()):
        raise InputError(
            f"K + noise is not positive definite: its least eigenvalue is {float(values.min()) + noise:g}."
            ' Use `negative="zero"`, or more noise.'
        )
    return float((values / (values + noise)).sum())


def largest_eigenvalue_difference(
    kernel: Kernel, X: ArrayLike, precision: str | Format, *, rounding: Rounding = "entries"
) -> float:
    """|λ_max in the format - λ_max in double| / λ_max in double; arguments as for `eigenvalues`."""
    exact = float(eigenvalues(kernel, X)[0])
    return abs(float(eigenvalues(kernel, X, precision, rounding=rounding)[0]) - exact) / exact


def entry_error_norm(
    kernel: Kernel, X: ArrayLike, precision: str | Format, *, rounding: Rounding = "entries"
) -> float:
    """The spectral norm of E = K in the format - K in double; arguments as for `eigenvalues`."""
    return spectral_norm(kernel_matrix(kernel, X, precision, rounding=rounding) - kernel_matrix(kernel, X))


def rho(
    kernel: Kernel, X: ArrayLike, noise: float, precision: str | Format, *, rounding: Rounding = "entries"
) -> float:
    """|E| / noise: a solve in the format is worth something where this is well below 1.

    Args:
        kernel: the covariance.
        X: points (n, d).
        noise: variance, positive.
        precision: the format.
        rounding: what is rounded to it, as for `kernel_matrix`.
    """
    _check_noise(noise)
    return entry_error_norm(kernel, X, precision, rounding=rounding) / noise


def spectral_norm(matrix: Tensor, steps: int = NORM_STEPS) -> float:
    """Of a symmetric (n, n), from below, right to about a percent; O(steps n²)."""
    largest = float(matrix.abs().max()) if matrix.numel() else 0.0
    if largest == 0.0:
        return 0.0
    start = torch.randn(len(matrix), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = lanczos(matrix / largest, start, steps=steps, precision="double")
    return largest * float(found.ritz()[0].abs().max())


def quantised_effective_dimension(
    eigenvalues: Tensor, noise: float, step: float, *, samples: int = 1000, seed: int = 0
) -> QuantisedDimension:
    """The expectation of the effective dimension of Q(λ), independently uniform on [λ - step, λ + step].

    The paper has it above the effective dimension of λ. As x / (x + noise) is concave, it is below.

    Args:
        eigenvalues: (n,).
        noise: variance, positive.
        step: not negative, and below λ + noise for every λ: otherwise the expectation does not exist.
        samples: of the Monte Carlo estimate.
        seed: of it.
    """
    _check_noise(noise)
    values = eigenvalues.double()
    if not 0.0 <= step < float(values.min()) + noise:
        raise InputError(
            "`step` must not be negative, and below the least eigenvalue plus noise,"
            f" {float(values.min()) + noise:g}; got {step:g}."
        )
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 2:
        raise InputError(f"`samples` must be an integer of at least 2; got {samples!r}.")
    generator = torch.Generator().manual_seed(seed)
    totals = []
    for start in range(0, samples, max(1, CHUNK // len(values))):
        count = min(max(1, CHUNK // len(values)), samples - start)
        uniform = 2.0 * torch.rand(count, len(values), dtype=torch.float64, generator=generator) - 1.0
        drawn = values + step * uniform
        totals.append((drawn / (drawn + noise)).sum(dim=1))
    total = torch.cat(totals)
    return QuantisedDimension(
        mean=float(total.mean()),
        standard_error=float(total.std()) / math.sqrt(samples),
        exact=_expected(values, noise, step),
        effective_dimension=effective_dimension(values, noise, negative="keep"),
    )


def spectral_cutoff(eigenvalues: Tensor, fmt: str | Format | float) -> int:
    """How many eigenvalues are at least δ times the largest: for RBF kernels it grows as log 1/δ.

    Args:
        eigenvalues: (n,), of the kernel in double.
        fmt: the format whose unit round-off is δ, or δ.
    """
    delta = fmt if isinstance(fmt, float) else as_format(fmt).unit_roundoff
    if not 0.0 < delta < 1.0:
        raise InputError(f"`fmt` must be a format, or a number between 0 and 1; got {fmt!r}.")
    return int((eigenvalues >= delta * eigenvalues.max()).sum())


def _expected(values: Tensor, noise: float, step: float) -> float:
    """The integral of x / (x + noise): 1 - noise / (2 step) log((λ + noise + step) / (λ + noise - step))."""
    relative = step / (values + noise)
    # By artanh, for a ratio of two numbers that are nearly equal has lost its logarithm; below 1e-8 it is the
    # identity.
    stretch = torch.where(relative > 1e-8, torch.atanh(relative) / relative, 1.0)
    return float((1.0 - noise / (values + noise) * stretch).sum())


def _check_noise(noise: float) -> None:
    if not 0.0 < noise < math.inf:
        raise InputError(f"`noise` must be a positive finite number; got {noise!r}.")
