"""A quadratic form, a log-determinant and what their gradients need, by one Lanczos process."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from halfgp.errors import InputError
from halfgp.likelihood.traces.base import random_signs
from halfgp.operators import Operator
from halfgp.operators.base import column_major, rung_name
from halfgp.preconditioners import Preconditioner, PreconditionerConfig, Root, build_preconditioner
from halfgp.solvers import cg
from halfgp.solvers.lanczos import LanczosProcess, LanczosResult
from halfgp.solvers.quadrature import Bracket, Whitened, bracket_of

OF_TARGETS, OF_PROBES = 0.03, 0.3  # relative residuals, whitened, of what is solved for
RESIDUAL = 0.03  # of targets as they are, relative, where the process ended before they were solved for
SETTLED = 0.5  # of the standard error of the log-determinant: what is cut off may be so much
LEAST = 0.9  # of the least eigenvalue that is known: rounding may have taken it a little lower


@dataclass(frozen=True)
class KrylovTerms:
    """Of A = K + noise, and right-hand sides r.

    Attributes:
        solutions: (n, q) A^-1 r.
        quadratic: (q,) r'A^-1 r of every column, too small by what is of second order in its residual.
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
    start: Tensor | None = None,
    probes: int = 10,
    seed: int = 0,
    max_iterations: int = 100,
    precision: str = "auto",
) -> KrylovTerms:
    """By Lanczos on C^-1 A C^-T, P = C C' being the preconditioner, from C^-1 r and from random signs s.

    Its tridiagonal matrices give the logarithm, and on its basis u = A^-1 C s and A^-1 r are had without
    another product. With v = C^-T s, u'dA v has the mean tr(A^-1 dA), and little variance where P is near A.
    Where targets are not solved for in time, `cg` goes on from there, on its ladder of precisions. Weights
    that are nearly A^-1 r cost one product, which tells what they leave of r: that takes r's place.

    Args:
        system: K + noise.
        preconditioner: of it, with a root, or a recipe of one.
        r: (n, q), float64.
        start: weights (n, q), of a matrix that is much like A; used where they leave less than r.
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
    least = LEAST if built.below else math.inf
    signs = random_signs(system.size, probes, torch.Generator().manual_seed(seed))[system.held].to(r.device)
    passes = 0
    for rung in ("single", "double") if precision == "auto" else (precision, "double"):
        inner = system.with_precision(rung)
        begun = _begun(inner, built, r, start)
        process = LanczosProcess(
            Whitened(inner, built), column_major(torch.cat([begun.whitened, signs], dim=1)), None
        )
        found = _run(process, begun.goal, least, max_iterations)
        passes += len(process.diagonal) + (start is not None)
        if found is not None:
            break
    else:
        raise InputError(
            "K + noise is not positive definite in double: Lanczos met an eigenvalue that is not positive."
            " Add noise to the diagonal."
        )
    weights = begun.weights + built.whiten(found.targets, transposed=True)
    # r'A^-1 r, of which Galerkin gives what was left: the residual is orthogonal to targets.
    quadratic = system.dot(begun.weights, r + begun.left) + system.dot(begun.whitened, found.targets)
    if not found.solved:
        weights, quadratic, more = _gone_on(system, built, r, weights, precision)
        passes += more
    return KrylovTerms(
        weights,
        quadratic,
        float(found.logarithms.samples.mean()) + built.log_determinant(),
        found.logarithms.standard_error + found.logarithms.truncation,
        built.whiten(found.probes, transposed=True),
        built.whiten(signs, transposed=True),
        passes,
        rung_name(process.precision),
    )


def _gone_on(
    system: Operator, built: Preconditioner, r: Tensor, start: Tensor, precision: str
) -> tuple[Tensor, Tensor, int]:
    """Weights and quadratic forms by `cg` from where Lanczos ended, and the passes that it took."""
    solve = cg(
        system,
        r,
        preconditioner=built,
        x0=start,
        tol=RESIDUAL,
        precision=precision,
        residual_precision="single",
    )
    weights, residual = torch.as_tensor(solve.solution), torch.as_tensor(solve.residual)
    return weights, system.dot(weights, r + residual), solve.passes


class _Begun(NamedTuple):
    """Where targets are solved for from."""

    weights: Tensor  # (n, q)
    left: Tensor  # (n, q), r - A weights
    whitened: Tensor  # of those
    goal: Tensor  # (q,), relative residuals of what is left, whitened


def _begun(system: Operator, built: Root, r: Tensor, start: Tensor | None) -> _Begun:
    """From weights where they leave less of r than there is, each column for itself."""
    begun = _Begun(torch.zeros_like(r), r, built.whiten(r), r.new_full((r.shape[1],), OF_TARGETS))
    if start is None:
        return begun
    left = r - system.matmul(column_major(start))
    whitened = built.whiten(left)
    sizes = [system.dot(v, v).sqrt() for v in (begun.whitened, whitened)]
    nearer = sizes[1] < sizes[0]  # nor is NaN
    return _Begun(
        torch.where(nearer, start, 0.0),
        torch.where(nearer, left, r),
        torch.where(nearer, whitened, begun.whitened),
        torch.where(nearer, OF_TARGETS * sizes[0] / sizes[1], OF_TARGETS),
    )


class _Found(NamedTuple):
    """By one process, whitened."""

    logarithms: Bracket
    probes: Tensor  # (n, s), solved for
    targets: Tensor  # (n, q), solved for
    solved: bool  # whether as well as they have to be


def _run(process: LanczosProcess, goal: Tensor, least: float, most: int) -> _Found | None:
    """Step until the probes are known as well as they have to be, and go on with the targets alone.

    Args:
        process: from right-hand sides, then probes.
        goal: relative residuals (q,) of the right-hand sides.
        least: a lower bound of the spectrum.
        most: steps.

    Returns:
        What is found; None where the matrix is not positive definite.
    """
    elimination, q = _Elimination(process), len(goal)
    for _ in range(most):
        if not elimination.step():
            return None
        logarithms = bracket_of(_probes(process.result(False), q), least)
        settled = logarithms.truncation <= SETTLED * logarithms.standard_error
        known = settled and bool((elimination.ratio[q:] <= OF_PROBES).all())
        if known or not bool(process.alive[q:].any()):
            break
    if not logarithms.is_finite:
        return None
    probes = _solutions(_probes(process.result(True), q))
    elimination.keep(slice(q))
    while not elimination.within(goal) and len(process.diagonal) < most:
        if not elimination.step():
            return None
    return _Found(logarithms, probes, _solutions(process.result(True)), elimination.within(goal))


class _Elimination:
    """That of tridiagonal matrices as they grow, a row a step.

    Attributes:
        ratio: (t,) residuals of what is solved for, relative to where the columns started.
    """

    def __init__(self, process: LanczosProcess) -> None:
        self._process = process
        self.ratio, self._pivot = torch.ones_like(process.norms), torch.ones_like(process.norms)
        self._before = torch.zeros_like(process.norms)

    def step(self) -> bool:
        """Go on by one; False where a pivot is not positive, and so the matrix is not."""
        process, live = self._process, self._process.alive  # a space that is exhausted grows no more
        process.step()
        alpha, beta = process.diagonal[-1], process.off_diagonal[-1]
        self._pivot = torch.where(live, alpha - self._before.square() / self._pivot, 1.0)
        self.ratio, self._before = torch.where(live, self.ratio * beta / self._pivot, 0.0), beta
        return bool((self._pivot > 0).all())  # nor is NaN

    def keep(self, columns: slice) -> None:
        """Go on with these columns alone."""
        self._process.keep(columns)
        self.ratio, self._pivot = self.ratio[columns], self._pivot[columns]
        self._before = self._before[columns]

    def within(self, goal: Tensor) -> bool:
        """Whether all residuals are."""
        return bool((self.ratio <= goal).all())


def _probes(result: LanczosResult, q: int) -> LanczosResult:
    """The columns after the first q."""
    return replace(
        result,
        diagonal=result.diagonal[:, q:],
        off_diagonal=result.off_diagonal[:, q:],
        lengths=result.lengths[q:],
        norms=result.norms[q:],
        basis=None if result.basis is None else result.basis[q:],
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
