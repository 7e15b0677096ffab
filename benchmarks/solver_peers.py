"""Conjugate gradients as users have it today, on our products in double, with the same preconditioner."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator
from scipy.sparse.linalg import cg as scipy_cg
from torch import Tensor

from halfgp import KernelOperator
from halfgp.preconditioners import Preconditioner


class TimedOperator:
    """An operator, on every rung, that tells how many products it took and how long they were."""

    def __init__(self, operator: KernelOperator, log: list[float] | None = None) -> None:
        self._operator = operator
        self.log: list[float] = [] if log is None else log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._operator, name)

    def with_precision(self, precision: Any) -> TimedOperator:
        return TimedOperator(self._operator.with_precision(precision), self.log)

    def __matmul__(self, v: Any) -> Any:
        start = time.perf_counter()
        product = self._operator @ v
        self.log.append(time.perf_counter() - start)
        return product


@dataclass(frozen=True)
class PeerSolve:
    """What one solve cost, and how good it is in truth."""

    passes: int
    seconds: float
    residual: float

    def as_dict(self) -> dict[str, float | int]:
        return asdict(self)


def finish(operator: KernelOperator, b: Tensor, x: Tensor, log: list[float], seconds: float) -> PeerSolve:
    """Judge a solution by its true residual, worst column; the check is not counted."""
    residual = (b - operator @ x).norm(dim=0) / b.norm(dim=0)
    return PeerSolve(len(log), seconds, float(residual.max()))


def solve_scipy(
    operator: KernelOperator, b: Tensor, preconditioner: Preconditioner, tol: float, limit: int
) -> PeerSolve:
    """SciPy's, one right-hand side after the other."""
    timed = TimedOperator(operator)
    n = len(b)

    def precondition(v: Any) -> Any:
        return preconditioner.solve(torch.from_numpy(np.asarray(v).reshape(n, 1))).numpy().reshape(-1)

    product = LinearOperator((n, n), matvec=lambda v: (timed @ torch.from_numpy(v)).numpy(), dtype=np.float64)
    inverse = LinearOperator((n, n), matvec=precondition, dtype=np.float64)
    start = time.perf_counter()
    columns = [
        scipy_cg(product, b[:, j].numpy().copy(), rtol=tol, atol=0.0, maxiter=limit, M=inverse)[0]
        for j in range(b.shape[1])
    ]
    seconds = time.perf_counter() - start
    return finish(operator, b, torch.from_numpy(np.stack(columns, axis=1)), timed.log, seconds)


def solve_gpytorch(
    operator: KernelOperator, b: Tensor, preconditioner: Preconditioner, tol: float, limit: int
) -> PeerSolve:
    """GPyTorch's `linear_cg`, all right-hand sides at once; it tests the mean of their residuals."""
    from linear_operator.utils import linear_cg

    timed = TimedOperator(operator)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its residual is reported, whatever it is
        x = linear_cg(
            lambda v: timed @ v, b, tolerance=tol, max_iter=limit, preconditioner=preconditioner.solve
        )
    return finish(operator, b, x, timed.log, time.perf_counter() - start)


PEERS: dict[str, Callable[[KernelOperator, Tensor, Preconditioner, float, int], PeerSolve]] = {
    "SciPy cg, double": solve_scipy,
    "GPyTorch linear_cg, double": solve_gpytorch,
}
