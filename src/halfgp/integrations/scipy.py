"""`cg` with the conventions of `scipy.sparse.linalg.cg`, to be imported in its place."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, aslinearoperator
from torch import Tensor

from halfgp import solvers
from halfgp.errors import InputError
from halfgp.preconditioners import Preconditioner, PreconditionerConfig

ITERATIONS_PER_ROW = 10  # as in SciPy


def cg(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Any = None,
    callback: Any = None,
) -> tuple[NDArray[np.float64], int]:
    """Solve A x = b for a symmetric positive definite A.

    Args:
        A: (n, n): whatever SciPy takes, a `halfgp.KernelOperator`, or anything that `halfgp.cg` takes.
        b: (n,) or (n, 1).
        x0: where to start.
        rtol: and
        atol: the true residual |b - A x| is to be at most max(rtol |b|, atol).
        maxiter: iterations; None is ten times n.
        M: what multiplies by about A^-1, as in SciPy, or a preconditioner of halfgp.
        callback: not had here: iterates are not formed at every iteration. `halfgp.cg` tells residuals.

    Returns:
        x (n,), and 0, or the number of iterations where the tolerance was not reached.
    """
    if callback is not None:
        raise InputError(
            "`callback` must be None: iterates are not formed. Use `halfgp.cg`, which tells residuals."
        )
    for name, given in (("A", A), ("b", b), ("x0", x0)):
        if np.iscomplexobj(given):
            raise InputError(f"`{name}` must be real; got complex numbers. Use scipy.sparse.linalg.cg.")
    right = np.asarray(b, dtype=np.float64)
    if right.ndim > 2 or (right.ndim == 2 and right.shape[1] != 1):
        raise InputError(f"`b` must have shape (n,) or (n, 1); got {right.shape}. `halfgp.cg` takes several.")
    right = right.reshape(-1)
    length = float(np.linalg.norm(right))
    if length == 0.0:
        return np.zeros_like(right), 0
    wanted = max(rtol, atol / length)
    if not wanted > 0.0:
        raise InputError(f"One of `rtol` and `atol` must be positive; got {rtol!r} and {atol!r}.")
    result = solvers.cg(
        A,
        right,
        x0=None if x0 is None else np.asarray(x0, dtype=np.float64).reshape(-1),
        tol=wanted,
        max_iterations=ITERATIONS_PER_ROW * len(right) if maxiter is None else maxiter,
        preconditioner=_preconditioner(M),
        warn=False,
    )
    return np.asarray(result.solution), 0 if result.converged else max(result.iterations, 1)


def _preconditioner(M: Any) -> Preconditioner | PreconditionerConfig | None:
    if M is None or isinstance(M, Preconditioner | PreconditionerConfig):
        return M
    return _Inverse(aslinearoperator(M))


class _Inverse:
    """A preconditioner from what multiplies by its inverse."""

    def __init__(self, inverse: LinearOperator) -> None:
        self._inverse = inverse

    def solve(self, v: Tensor) -> Tensor:
        """P^-1 v for (n, t), in float64."""
        return torch.from_numpy(np.asarray(self._inverse.matmat(v.double().numpy()), dtype=np.float64))
