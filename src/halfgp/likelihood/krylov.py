"""A quadratic form, a log-determinant and what their gradients need, by one Lanczos process."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from halfgp.errors import InputError
from halfgp.likelihood.traces.base import random_signs
from halfgp.operators import Operator
from halfgp.operators.base import column_major
from halfgp.preconditioners import Preconditioner, PreconditionerConfig, Root, build_preconditioner
from halfgp.solvers import cg
from halfgp.solvers.lanczos import LanczosProcess, LanczosResult
from halfgp.solvers.quadrature import Bracket, Whitened, bracket_of

OF_TARGETS, OF_PROBES = 0.03, 0.3  # relative residuals, whitened, of what is solved for
RESIDUAL = 0.05  # of targets as they are, relative
SETTLED = 0.5  # of the standard error of the log-determinant: what is cut off may be so much
LEAST = 0.9  # of the least eigenvalue that is known: rounding may have taken it a little lower


@dataclass(frozen=True)
class KrylovTerms:
    """Of A = K + noise, and right-hand sides r.

    Attributes:
        solutions: (n, q) A^-1 r.
        quadratic: (q,) r'A^-1 r of every column.
        log_det: an estimate.
        standard_error: of that, over probes, and what Lanczos cut off.
        left: (n, s), and
        right: (n, s), such that tr(A^-1 dA) is the mean of left_c' dA right_c.
        passes: products with A.
        precision: of those.
    """

    solutions: Tensor
    quadratic: Tensor
    log_det: float
    standard_error: float
    left: Tensor
    right: Tensor
    passes: int
    precision: str


def krylov_terms(
    system: Operator,
    preconditioner: Preconditioner | PreconditionerConfig,
    r: Tensor,
    *,
    probes: int = 10,
    seed: int = 0,
    max_iterations: int = 100,
    precision: str = "auto",
) -> KrylovTerms:
    """By Lanczos on C^-1 A C^-T, P = C C' being the preconditioner, from C^-1 r and from random signs s.

    Its tridiagonal matrices give the logarithm, and on its basis u = A^-1 C s and A^-1 r are had without
    another product. With v = C^-T s, u'dA v has the mean tr(A^-1 dA), and little variance where P is near A.
    Where targets are not solved for in time, `cg` goes on from there, on its ladder of precisions.

    Args:
        system: K + noise.
        preconditioner: of it, with a root, or a recipe of one.
        r: (n, q), float64.
        probes: s, how many.
        seed: of the signs: the same for all hyperparameters, so that what is estimated moves smoothly.
        max_iterations: one pass each.
        precision: of the products; "auto" is single, and double if that finds A indefinite.

    Raises:
        InputError: A is not positive definite in double.
    """
    built = build_preconditioner(preconditioner, system)
    if not isinstance(built, Root):
        raise InputError(
            "`preconditioner` must have a root and a log-determinant, as that of `PivotedCholesky()` has; got"
            f" {type(built).__name__}."
        )
    q, least = r.shape[1], LEAST if built.below else math.inf
    signs = random_signs(system.size, probes, torch.Generator().manual_seed(seed))[system.held].to(r.device)
    start = column_major(torch.cat([built.whiten(r), signs], dim=1))
    goals = r.new_tensor([OF_TARGETS] * q + [OF_PROBES] * probes)
    passes = 0
    for rung in ("single", "double") if precision == "auto" else (precision, "double"):
        process = LanczosProcess(Whitened(system.with_precision(rung), built), start, None)
        logarithms = _run(process, q, goals, least, max_iterations)
        passes += len(process.diagonal)
        if logarithms is not None:
            break
    else:
        raise InputError(
            "K + noise is not positive definite in double: Lanczos met an eigenvalue that is not positive."
            " Add noise to the diagonal."
        )
    result = process.result(keep_basis=True)
    solutions = built.whiten(_solutions(result), transposed=True)
    solve = cg(
        system,
        r,
        preconditioner=built,
        x0=solutions[:, :q],
        tol=RESIDUAL,
        precision=precision,
        residual_precision="single",
    )
    weights, residual = torch.as_tensor(solve.solution), torch.as_tensor(solve.residual)
    return KrylovTerms(
        weights,
        system.dot(weights, r + residual),
        float(logarithms.samples.mean()) + built.log_determinant(),
        logarithms.standard_error + logarithms.truncation,
        solutions[:, q:],
        built.whiten(signs, transposed=True),
        passes + solve.passes,
        result.precision,
    )


def _run(process: LanczosProcess, q: int, goals: Tensor, least: float, most: int) -> Bracket | None:
    """Step until all is known as well as it has to be; None where a Ritz value is not positive.

    Args:
        process: from right-hand sides, then probes.
        q: how many right-hand sides.
        goals: (t,) relative residuals of what is solved for.
        least: a lower bound of the spectrum.
        most: steps.
    """
    ratio = torch.ones_like(goals)  # of the residual, relative to where the column started
    pivot = torch.ones_like(goals)  # of the elimination of T
    before = torch.zeros_like(goals)
    for _ in range(most):
        live = process.alive  # a space that is exhausted grows no more
        process.step()
        alpha, beta = process.diagonal[-1], process.off_diagonal[-1]
        pivot = torch.where(live, alpha - before.square() / pivot, 1.0)
        if not bool((pivot > 0).all()):  # nor is NaN
            return None
        ratio, before = torch.where(live, ratio * beta / pivot, 0.0), beta
        logarithms = bracket_of(_probes(process.result(False), q), least)
        settled = logarithms.truncation <= SETTLED * logarithms.standard_error
        if (bool((ratio <= goals).all()) and settled) or not bool(process.alive.any()):
            break
    return logarithms if logarithms.is_finite else None


def _probes(result: LanczosResult, q: int) -> LanczosResult:
    """The columns after the first q."""
    return replace(
        result,
        diagonal=result.diagonal[:, q:],
        off_diagonal=result.off_diagonal[:, q:],
        lengths=result.lengths[q:],
        norms=result.norms[q:],
    )


def _solutions(result: LanczosResult) -> Tensor:
    """B^-1 v (n, t) of the matrix B that was tridiagonalised, and the vectors v that it started from."""
    assert result.basis is not None
    columns = []
    for j, norm in enumerate(result.norms.tolist()):
        k = int(result.lengths[j])
        unit = result.norms.new_zeros(k)
        if k:
            unit[0] = norm
            unit = torch.linalg.solve(result.tridiagonal(j), unit)
        columns.append(result.basis[j, :k].double().T @ unit)
    return torch.stack(columns, dim=1)
