"""The log-determinant by stochastic Lanczos quadrature, with its standard error and what is cut off."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import torch
from torch import Tensor

from halfgp.errors import ConvergenceWarning, InputError
from halfgp.operators.adapters import as_operator
from halfgp.operators.base import Operator, column_major
from halfgp.precision import DOUBLE, Precision
from halfgp.preconditioners import PreconditionerConfig, Root, build_preconditioner
from halfgp.solvers.lanczos import LanczosProcess, LanczosResult, quadrature

LOOK_EVERY = 5  # steps between looks at the value
SETTLED = 0.1  # of the standard error: what is cut off may be so much
SEEN = 0.25  # of the least Ritz value, where nothing else bounds the spectrum
LEAST = 0.9  # of the least eigenvalue that is known: rounding may have taken it a little lower


@dataclass(frozen=True)
class LogDeterminant:
    """An estimate of log det A.

    Attributes:
        value: the estimate.
        standard_error: over probes.
        truncation: how far the value may be off because Lanczos ended: half the width of a bracket.
        samples: (probes,) one estimate each.
        passes: products with A.
        precision: the rung.
    """

    value: float
    standard_error: float
    truncation: float
    samples: Tensor
    passes: int
    precision: str

    @property
    def error(self) -> float:
        """Both errors together; the first is one standard deviation, the second a bound."""
        return self.standard_error + self.truncation


def log_determinant(
    A: Any,
    *,
    probes: int = 16,
    steps: int = 200,
    preconditioner: Root | PreconditionerConfig | None = None,
    seed: int = 0,
    precision: str | Precision = "auto",
    warn: bool = True,
) -> LogDeterminant:
    """Estimate log det A of a positive definite A.

    With a preconditioner P = C C', it is log det P, which is exact, and an estimate for C^-1 A C^-T, whose
    logarithm is small where P is near A: so are its variance and the steps it takes.

    A quadrature by k steps of Lanczos is too high, and Radau's, with a node at a lower bound of the spectrum,
    is too low. Steps go on until the two are as close as the standard error asks for. The bound is that of
    the noise, or 1 with a preconditioner that is not above A. Of one that may be, it is an estimate: a part
    of the least Ritz value.

    Args:
        A: as for `cg`.
        probes: random sign vectors, all in one product.
        steps: Lanczos steps at most, one pass each.
        preconditioner: a recipe or one that is built: low rank and noise, or a factor.
        seed: of the probes.
        precision: of the products; "auto" is single, and double if that finds A indefinite.
        warn: whether what is cut off gives a `ConvergenceWarning` where it is more than the standard error.

    Raises:
        InputError: A is not positive definite in that precision, or a product was not finite.
    """
    if probes < 1:
        raise InputError(f"`probes` must be at least 1; got {probes}.")
    if steps < 1:
        raise InputError(f"`steps` must be at least 1; got {steps}.")
    system = as_operator(A)
    if not system.size:
        raise InputError("`A` must have at least one row; got shape (0, 0).")
    generator = torch.Generator().manual_seed(seed)
    signs = torch.randint(0, 2, (system.size, probes), generator=generator).double() * 2 - 1
    signs = signs[system.held].to(system.device)
    built = build_preconditioner(preconditioner, system)
    if built is not None and not isinstance(built, Root):
        raise InputError(
            "`preconditioner` must have a root and a log-determinant, as that of `PivotedCholesky()` has; got"
            f" {type(built).__name__}. Use that, or none."
        )
    passes = 0
    for rung in ("single", "double") if precision == "auto" else (precision,):
        least = _least_eigenvalue(system, built)
        result = _tridiagonal(system.with_precision(rung), built, signs, steps, LEAST * least)
        passes += result.passes
        if not result.is_finite:
            continue
        bracket = bracket_of(result, LEAST * least)
        if bracket.is_finite:
            offset = 0.0 if built is None else built.log_determinant()
            found = LogDeterminant(
                float(bracket.samples.mean()) + offset,
                bracket.standard_error,
                bracket.truncation,
                bracket.samples + offset,
                passes,
                result.precision,
            )
            if warn and found.truncation > found.standard_error:
                warnings.warn(
                    f"The log-determinant may be off by {found.truncation:.2g} because Lanczos ended after"
                    f" {passes} steps; its standard error is {found.standard_error:.2g}. Use more `steps`, or"
                    " a preconditioner of larger rank.",
                    ConvergenceWarning,
                    stacklevel=2,
                )
            return found
    if not result.is_finite:
        raise InputError(
            f"A product with `A` was not finite in {result.precision}. Check the matrix, rescale it, or use a"
            " wider `precision`."
        )
    raise InputError(
        f"`A` is not positive definite in {result.precision}: Lanczos met an eigenvalue that is not positive."
        " Use a wider `precision`, or add noise to the diagonal."
    )


def _least_eigenvalue(system: Operator, built: Root | None) -> float:
    """A lower bound of the spectrum; infinite where Ritz values alone tell."""
    if built is None:
        return system.least_nugget
    return 1.0 if built.below else math.inf


class Whitened(Operator):
    """C^-1 A C^-T with P = C C'; its rows are shared out as those of A."""

    def __init__(self, inner: Operator, root: Root) -> None:
        self._inner, self._root = inner, root
        self.shape, self.device, self.precision = inner.shape, inner.device, inner.precision

    def matmul(self, v: Tensor) -> Tensor:
        """Column-major."""
        return column_major(self._root.whiten(self._inner.matmul(self._root.whiten(v, transposed=True))))

    def with_precision(self, precision: str | Precision) -> Whitened:
        """With A on another rung."""
        return Whitened(self._inner.with_precision(precision), self._root)

    @property
    def is_shared(self) -> bool:
        """As of A."""
        return self._inner.is_shared

    @property
    def held(self) -> slice | Tensor:
        """As of A."""
        return self._inner.held

    def total(self, partial: Tensor) -> Tensor:
        """As of A."""
        return self._inner.total(partial)

    def largest(self, partial: Tensor) -> Tensor:
        """As of A."""
        return self._inner.largest(partial)


def _tridiagonal(
    system: Operator, built: Root | None, signs: Tensor, steps: int, least: float
) -> LanczosResult:
    """Lanczos until more steps tell nothing that the probes' own error would not hide."""
    inner = system if built is None else Whitened(system, built)
    process = LanczosProcess(inner, column_major(signs), None)
    for step in range(1, min(steps, system.size) + 1):
        process.step()
        if not bool(process.alive.any()):
            break
        if step % LOOK_EVERY == 0:
            bracket = bracket_of(process.result(False), least)
            # One probe has no error that could hide anything.
            hidden = SETTLED * bracket.standard_error if len(bracket.upper) > 1 else 0.0
            if bracket.is_finite and bracket.truncation < hidden:
                break
    return process.result(False)


class Bracket(NamedTuple):
    """Quadratures (probes,) of the logarithm from above and below; NaN where a Ritz value is not positive."""

    upper: Tensor
    lower: Tensor

    @property
    def samples(self) -> Tensor:
        """Between the two, of each probe."""
        return 0.5 * (self.upper + self.lower)

    @property
    def truncation(self) -> float:
        """Half their distance."""
        return 0.5 * float((self.upper - self.lower).mean().clamp_min(0.0))

    @property
    def standard_error(self) -> float:
        """Over probes; infinite for one."""
        count = len(self.upper)
        return float(self.samples.std() / math.sqrt(count)) if count > 1 else math.inf

    @property
    def is_finite(self) -> bool:
        """Whether every Ritz value was positive."""
        return bool(self.samples.isfinite().all())


def bracket_of(result: LanczosResult, least: float) -> Bracket:
    """By Gauss and by Gauss and Radau, with the spectrum above `least`, or above nothing but rounding."""
    pairs = [_logarithms(result, j, least) for j in range(len(result.norms))]
    return Bracket(*torch.tensor(pairs, dtype=torch.float64).reshape(-1, 2).unbind(1))


def _logarithms(result: LanczosResult, column: int, least: float) -> tuple[float, float]:
    values, weights = result.ritz(column)
    if not bool((values > 0).all()):
        return math.nan, math.nan
    length = float(result.norms[column]) ** 2
    upper = length * float((weights * values.log()).sum())
    k = len(values)
    remainder = float(result.off_diagonal[k - 1, column]) if k else 0.0
    if remainder == 0.0:  # the space is exhausted: nothing is cut off
        return upper, upper
    # Below every Ritz value, as the spectrum is; where nobody knows how far, as far as rounding could tell.
    known = least if least > 0.0 else DOUBLE.eps * float(values.max())
    node = min(known, (SEEN if math.isinf(known) else LEAST) * float(values.min()))
    diagonal = result.diagonal[:k, column].cpu().numpy()
    off = result.off_diagonal[:k, column].cpu().numpy()
    bands = np.zeros((3, k))
    bands[0, 1:], bands[1], bands[2, :-1] = off[:-1], diagonal - node, off[:-1]
    unit = np.zeros(k)
    unit[-1] = remainder**2
    last = node + scipy.linalg.solve_banded((1, 1), bands, unit)[-1]
    at, shares = quadrature(np.append(diagonal, last), off)
    lower = length * float((shares * np.log(np.maximum(at, node))).sum())
    return upper, min(lower, upper)
