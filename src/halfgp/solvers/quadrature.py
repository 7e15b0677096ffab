"""The log-determinant by stochastic Lanczos quadrature, with its standard error."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from halfgp.errors import InputError
from halfgp.precision import Precision
from halfgp.preconditioners import LowRankPlusNoise, PreconditionerConfig
from halfgp.solvers.lanczos import LanczosProcess, LanczosResult
from halfgp.solvers.system import CallableSystem, System, as_system, column_major

LOOK_EVERY = 5  # steps between looks at the value
SETTLED = 0.1  # of the standard error: a smaller change in so many steps ends them


@dataclass(frozen=True)
class LogDeterminant:
    """An estimate of log det A.

    Attributes:
        value: the estimate.
        standard_error: over probes; what too few Lanczos steps add is not in it.
        samples: (probes,) one estimate each.
        passes: products with A.
        precision: the rung.
    """

    value: float
    standard_error: float
    samples: Tensor
    passes: int
    precision: str


def log_determinant(
    A: Any,
    *,
    probes: int = 16,
    steps: int = 50,
    preconditioner: LowRankPlusNoise | PreconditionerConfig | None = None,
    seed: int = 0,
    precision: str | Precision = "auto",
) -> LogDeterminant:
    """Estimate log det A of a positive definite A.

    With a preconditioner P = C C', it is log det P, which is exact, and an estimate for C^-1 A C^-T, whose
    logarithm is small where P is near A: so are its variance and the steps it takes.

    Args:
        A: as for `cg`.
        probes: random sign vectors, all in one product.
        steps: Lanczos steps at most, one pass each; fewer where the value has settled within its error.
        preconditioner: a recipe or one that is built.
        seed: of the probes.
        precision: of the products; "auto" is single, and double if that finds A indefinite.

    Raises:
        InputError: A is not positive definite in that precision.
    """
    if probes < 1:
        raise InputError(f"`probes` must be at least 1; got {probes}.")
    if steps < 1:
        raise InputError(f"`steps` must be at least 1; got {steps}.")
    system = as_system(A)
    generator = torch.Generator().manual_seed(seed)
    signs = torch.randint(0, 2, (system.size, probes), generator=generator).double() * 2 - 1
    signs = signs.to(system.device)
    built: Any = preconditioner
    if preconditioner is not None and hasattr(preconditioner, "build"):
        built = preconditioner.build(system)
    passes = 0
    for rung in ("single", "double") if precision == "auto" else (precision,):
        result = _tridiagonal(system.with_precision(rung), built, signs, steps)
        passes += result.passes
        samples = _samples(result)
        if bool(samples.isfinite().all()):
            offset = 0.0 if built is None else built.log_determinant()
            return LogDeterminant(
                float(samples.mean()) + offset,
                _standard_error(samples),
                samples + offset,
                passes,
                result.precision,
            )
    raise InputError(
        f"`A` is not positive definite in {result.precision}: Lanczos met an eigenvalue that is not positive."
        " Use a wider `precision`, or add noise to the diagonal."
    )


def _tridiagonal(system: System, built: Any, signs: Tensor, steps: int) -> LanczosResult:
    """Lanczos until a few more steps tell nothing that the probes' own error would not hide."""

    def whitened(v: Tensor) -> Tensor:
        return column_major(built.whiten(system.matmul(built.whiten(v, transposed=True))))

    inner = system if built is None else CallableSystem(whitened, system.size, "torch", system.precision)
    process = LanczosProcess(inner, column_major(signs), None)
    before = torch.full((signs.shape[1],), math.nan, dtype=torch.float64)
    for step in range(1, min(steps, system.size) + 1):
        process.step()
        if not bool(process.alive.any()):
            break
        if step % LOOK_EVERY == 0:
            samples = _samples(process.result(False))
            error = _standard_error(samples)
            if math.isfinite(error) and abs(float((samples - before).mean())) < SETTLED * error:
                break
            before = samples
    return process.result(False)


def _standard_error(samples: Tensor) -> float:
    return float(samples.std() / math.sqrt(len(samples))) if len(samples) > 1 else math.inf


def _samples(result: LanczosResult) -> Tensor:
    """Quadratures (probes,) of the logarithm; NaN where a Ritz value is not positive."""
    samples = []
    for j in range(len(result.norms)):
        values, weights = result.ritz(j)
        total = float((weights * values.log()).sum()) if bool((values > 0).all()) else math.nan
        samples.append(float(result.norms[j]) ** 2 * total)
    return torch.tensor(samples, dtype=torch.float64)
