"""Conjugate gradients for many right-hand sides, on a ladder of precisions, with residuals that are true."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from halfgp.data import ArrayLike, Vectors, as_vectors
from halfgp.errors import ConvergenceWarning, InputError
from halfgp.operators.adapters import as_operator
from halfgp.operators.base import Operator, rung_name
from halfgp.precision import Precision
from halfgp.preconditioners import Preconditioner, PreconditionerConfig, build_preconditioner
from halfgp.solvers.advice import advice
from halfgp.solvers.base import SolveResult, check_tolerance
from halfgp.solvers.checkpoint import SolveCheckpoint
from halfgp.solvers.controller import Controller
from halfgp.solvers.energy import LARGEST_RESIDUAL
from halfgp.solvers.iteration import Callback, Iteration, Options
from halfgp.solvers.ladder import Ladder
from halfgp.solvers.paper import PaperIteration
from halfgp.solvers.reorthogonalise import window_of

METHODS: dict[str, type[Iteration]] = {"auto": Controller, "paper": PaperIteration}


def cg(
    A: Any,
    b: ArrayLike,
    *,
    method: str = "auto",
    preconditioner: Preconditioner | PreconditionerConfig | None = None,
    x0: ArrayLike | None = None,
    tol: float | Sequence[float] = 1e-2,
    error_tol: float | Sequence[float] | None = None,
    max_iterations: int = 1000,
    min_iterations: int = 0,
    inner_product: str = "auto",
    reorthogonalise: bool | int = True,
    precision: str | Precision = "auto",
    residual_precision: str | Precision = "double",
    callback: Callback | None = None,
    checkpoint: SolveCheckpoint | None = None,
    warn: bool = True,
) -> SolveResult:
    """Solve A x = b for a symmetric positive definite A known by its products.

    By default the solve starts on the lowest rung of precision that rho and the tolerance allow, tests
    convergence on the true residual, b - A x with A in double as given, and climbs where the rung does not
    serve. With one `precision` it stays there, and is otherwise the same.

    With `method="paper"` it is the paper's stable method in 16 bits, Algorithm 2 as corrected, in which
    nothing is repaired: it ends where the recurrence says, and the true residual tells what that was worth.
    With `inner_product="direct", reorthogonalise=False` beside it, it is the standard method with everything
    in 16 bits, which fails.

    Args:
        A: one of our operators, a torch tensor, NumPy array, SciPy sparse matrix or `LinearOperator`,
            anything with shape and `@`, or a pair (callable, n).
        b: (n,) or (n, t).
        method: "auto", or "paper" for the paper's.
        preconditioner: a recipe such as `PivotedCholesky(rank=100)`, or anything with `solve(v)`.
        x0: where to start, of the shape of b; costs one pass in the residual's precision.
        tol: largest true relative residual |b - A x| / |b| of any column; or of each, a sequence (t,).
        error_tol: beside it the largest error |x - A^-1 b|_A / √n, as estimated; infinite for none. Where b
            has the covariance A, as targets of a Gaussian process do, it is in units of their deviations.
            It goes with a residual of at most 0.1, which is then asked for, whatever `tol` is. For a matrix
            of which neither a preconditioner nor noise is known it may take a plateau for the end.
        max_iterations: in total, on all rungs.
        min_iterations: before any column may stop, whatever the tolerance: with one of 1, zero would do.
        inner_product: "log" for the paper's LΣE, "direct", or "auto": "log" for the paper's method, where it
            matters, otherwise "direct".
        reorthogonalise: against every earlier residual (True), none (False), or so many of the latest.
        precision: "auto" for the ladder, or one rung to stay on. The paper's method takes a 16-bit one, and
            "half" for "auto".
        residual_precision: of A in true residuals; "single" is enough for tolerances of 1e-3 and above.
        callback: called as callback(iteration, residuals) with the recurrence's relative residuals (t,).
        checkpoint: where the state is kept, so that a solve that was killed goes on to the same bits.
        warn: False for a caller that looks at the status and has another way to go.

    Returns:
        A `SolveResult`. One `ConvergenceWarning` if a column is not within its tolerances.

    An iteration costs one product and O(n t (k + rank)) around it, k being the iterations so far; memory
    4 n t k bytes, in double 8, at most a gibibyte. Zero right-hand sides and exact starts return at once.
    """
    for each in tol if isinstance(tol, Sequence) else (tol,):
        check_tolerance(each, max_iterations, min_iterations)
    if inner_product not in ("auto", "log", "direct"):
        raise InputError(f'`inner_product` must be "log", "direct" or "auto"; got {inner_product!r}.')
    precision = _precision_of(method, precision)
    system = as_operator(A)
    vectors = as_vectors(b, "b", system.rows_held, system.device, float("inf"))
    window = window_of(reorthogonalise)
    ladder = Ladder(system, precision, residual_precision)
    built = build_preconditioner(preconditioner, system)
    if inner_product == "auto":
        inner_product = "log" if method == "paper" else "direct"
    errors = _tolerances(math.inf if error_tol is None else error_tol, vectors, "error_tol")
    residuals = _tolerances(tol, vectors, "tol")
    options = Options(
        torch.where(errors.isfinite(), residuals.clamp_max(LARGEST_RESIDUAL), residuals),
        errors,
        min_iterations,
        max_iterations,
        inner_product,
        window,
        callback,
        None if checkpoint is None else checkpoint.take,
    )
    start = None if x0 is None else _start(x0, vectors, system)
    with torch.no_grad():
        solve = METHODS[method](ladder, built, vectors.values, options)
        if checkpoint is None:
            solve.run(start)
        else:
            choices = [method, precision, residual_precision, rung_name(system.precision)]
            choices.append(getattr(built, "whole", type(built).__name__))  # however many hold its rows
            _run_kept(solve, checkpoint, system, vectors.values, start, options, list(map(str, choices)))
        result = solve.result(vectors)
    if result.converged:
        return result
    result = replace(result, advice=advice(result, built))
    if warn:
        warnings.warn(result.advice, ConvergenceWarning, stacklevel=2)
    return result


def _run_kept(
    solve: Iteration,
    checkpoint: SolveCheckpoint,
    system: Operator,
    b: Tensor,
    start: Tensor | None,
    options: Options,
    choices: list[str],
) -> None:
    """Run, from the state that is kept of a solve with the same arguments; what else decides are choices."""
    counts = [options.min_iterations, options.max_iterations, options.window]
    others = [options.inner_product, *choices]
    # Of all rows, whoever holds them: another number of processes may go on.
    whole = [v if v is None else system.gathered(v) for v in (b, start)]
    state = checkpoint.begin(torch.stack([options.tol, options.error_tol]), *whole, counts, others)
    del whole
    try:
        solve.run(start, state)
    except (KeyboardInterrupt, SystemExit):
        checkpoint.write()
        raise
    checkpoint.end(solve.state())


def _precision_of(method: str, precision: str | Precision) -> str | Precision:
    """That a method is to use: as given, and for the paper's one of 16 bits."""
    if method not in METHODS:
        known = " or ".join(f'"{name}"' for name in METHODS)
        raise InputError(f"`method` must be {known}; got {method!r}.")
    if method != "paper":
        return precision
    chosen: str | Precision = "half" if precision == "auto" else precision
    if not Precision.resolve(chosen).is_sixteen_bit:
        raise InputError(
            f'`precision` must be "half" or "bfloat16" with `method="paper"`; got {precision!r}.'
            ' Wider ones go with `method="auto"`.'
        )
    return chosen


def _tolerances(tol: float | Sequence[float], vectors: Vectors, name: str) -> Tensor:
    """Of every column (t,)."""
    t = vectors.values.shape[1]
    found = torch.as_tensor(tol, dtype=torch.float64, device=vectors.values.device)
    if found.shape not in ((), (t,)):
        raise InputError(f"`{name}` must be a number, or one for each of the {t} columns; got {len(found)}.")
    if not bool((found > 0).all()):
        raise InputError(f"`{name}` must be positive; got {float(found.min()):g}.")
    return found.expand(t)


def _start(x0: ArrayLike, vectors: Vectors, system: Operator) -> Tensor:
    start = as_vectors(x0, "x0", system.rows_held, system.device, float("inf")).values
    if start.shape != vectors.values.shape:
        raise InputError(
            f"`x0` must have the shape of `b`, {tuple(vectors.values.shape)}; got {tuple(start.shape)}."
        )
    return start
