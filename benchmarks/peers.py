"""The other ways to multiply with an RBF kernel matrix on a CPU, each behind the same two calls.

A peer is built with the points (n, d) and right-hand sides (n, t), float32 and already divided by the
lengthscale, and then called: each call is one product. What can be prepared once (copies, layouts,
compilation, a stored matrix) is prepared at construction, for the peers as for us, and is not timed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor


class Peer(Protocol):
    """A product that is ready to run."""

    name: ClassVar[str]

    def __init__(self, x: Tensor, v: Tensor) -> None: ...

    def __call__(self) -> Tensor:
        """One product, (n, t)."""

    def close(self) -> None:
        """Give the memory back."""


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence what libraries print from C or Python, so that the table stays readable."""
    libc = ctypes.CDLL(None)
    sys.stdout.flush()
    libc.fflush(None)
    saved = os.dup(1)
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        libc.fflush(None)  # C output is buffered: it must leave before the real stdout comes back
        os.dup2(saved, 1)
        os.close(saved)
        os.close(sink)


class KeOps:
    """KeOps' LazyTensor on the CPU: C++ generated and compiled for the formula, one pass, nothing stored."""

    name: ClassVar[str] = "KeOps"

    def __init__(self, x: Tensor, v: Tensor) -> None:
        with quiet():
            import pykeops
            from pykeops.torch import LazyTensor

            pykeops.set_verbose(False)
            few = x[:64]
            self._kernel(LazyTensor, few) @ v[:64]  # compiles; the formula does not depend on n
            self._matrix = self._kernel(LazyTensor, x)
        self._v = v

    @staticmethod
    def _kernel(lazy: Any, x: Tensor) -> Any:
        return (-((lazy(x[:, None, :]) - lazy(x[None, :, :])) ** 2).sum(-1) / 2).exp()

    def __call__(self) -> Tensor:
        product: Tensor = self._matrix @ self._v
        return product

    def close(self) -> None:
        del self._matrix


class HiGP:
    """HiGP's kernel matrix without H² compression, which it evaluates on the fly in SIMD C++ under OpenMP."""

    name: ClassVar[str] = "HiGP"

    def __init__(self, x: Tensor, v: Tensor) -> None:
        with quiet():
            from higp_cext import krnlmat

            self._matrix = krnlmat.setup(
                data=np.ascontiguousarray(x.numpy().T),
                kernel_type=1,  # exp(-|x - y|^2 / (2 l^2))
                l=1.0,
                f=1.0,
                s=0.0,
                use_h2=0,
                nthreads=torch.get_num_threads(),
            )
        self._v = np.ascontiguousarray(v.numpy().T)

    def __call__(self) -> Tensor:
        # Right-hand sides are rows here; the result comes back in that order whatever shape it is given.
        product = self._matrix.matmul(self._v)
        return torch.from_numpy(product.reshape(self._v.shape)).T

    def close(self) -> None:
        with quiet():
            del self._matrix


class TorchChunks:
    """Row chunks in torch: distances by a matrix product into a buffer that is reused, then all in place."""

    name: ClassVar[str] = "torch chunks"
    rows: ClassVar[int] = 1024  # the best of 32...2048 on the machine this was written on, by a small margin

    def __init__(self, x: Tensor, v: Tensor) -> None:
        self._x, self._v = x, v
        self._halved = -0.5 * x.square().sum(1)
        self._block = torch.empty(self.rows, len(x))

    def __call__(self) -> Tensor:
        product = torch.empty_like(self._v)
        for start in range(0, len(self._x), self.rows):
            rows = slice(start, start + self.rows)
            block = self._block[: len(self._x[rows])]
            fill_rbf(self._x, self._halved, rows, block)
            torch.mm(block, self._v, out=product[rows])
        return product

    def close(self) -> None:
        del self._block


class TorchDense:
    """The whole matrix held in float32, 4 n² bytes, and torch's matrix product; filling it is not timed."""

    name: ClassVar[str] = "torch dense float32"

    def __init__(self, x: Tensor, v: Tensor) -> None:
        self._v = v
        self._matrix = torch.empty(len(x), len(x))
        halved = -0.5 * x.square().sum(1)
        for start in range(0, len(x), TorchChunks.rows):
            rows = slice(start, start + TorchChunks.rows)
            fill_rbf(x, halved, rows, self._matrix[rows])

    def __call__(self) -> Tensor:
        return self._matrix @ self._v

    def close(self) -> None:
        del self._matrix


def fill_rbf(x: Tensor, halved: Tensor, rows: slice, block: Tensor) -> None:
    """Write exp(-|x_i - x_j|²/2) for some rows i and all j into `block`; `halved` is -|x_i|²/2."""
    torch.addmm(halved, x[rows], x.T, out=block)
    # The expansion cancels: a squared distance may come out below zero, hence the clamp.
    block.add_(halved[rows, None]).clamp_(max=0).exp_()


PEERS: tuple[type[Peer], ...] = (KeOps, HiGP, TorchChunks, TorchDense)
