"""Arrays, sparse matrices and callables as operators: the only place that asks what a matrix is."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
import torch
from scipy.sparse.linalg import LinearOperator
from torch import Tensor

from halfgp.data import as_real
from halfgp.errors import InputError
from halfgp.operators.base import Operator, column_major
from halfgp.operators.kernel import KernelOperator
from halfgp.precision import DOUBLE, Format, Precision


class DenseOperator(Operator):
    """A dense matrix: entries are rounded to the rung's format, products are in single or double."""

    def __init__(self, matrix: Tensor, precision: Precision) -> None:
        self._given = matrix
        self.shape = (matrix.shape[0], matrix.shape[0])
        self.device = matrix.device
        self.precision = precision
        self._entries = _rounded(matrix, precision.entries).to(precision.products.dtype)

    def matmul(self, v: Tensor) -> Tensor:
        """A v."""
        # By rows of v', so that the result is column-major without being turned.
        return (v.T.to(self._entries.dtype) @ self._entries.T).T.to(v.dtype)

    def with_precision(self, precision: str | Precision) -> Operator:
        """The matrix as given, rounded to another rung."""
        precision = Precision.resolve(precision)
        return self if precision == self.precision else DenseOperator(self._given, precision)

    @property
    def has_rows(self) -> bool:
        """Yes."""
        return True

    def rows(self, i: Tensor) -> Tensor:
        """Rows (len(i), n) of this rung."""
        return self._entries[i]

    def diagonal(self) -> Tensor:
        """The diagonal (n,) of this rung."""
        return self._entries.diagonal()


class SparseOperator(Operator):
    """A SciPy sparse matrix: entries are rounded to the rung's format, products are in single or double."""

    def __init__(self, matrix: Any, precision: Precision) -> None:
        self._given = matrix
        self.shape = (matrix.shape[0], matrix.shape[0])
        self.device = torch.device("cpu")
        self.precision = precision
        self._entries = matrix.tocsr(copy=True)
        data = _rounded(_entries(self._entries.data), precision.entries)
        self._entries.data = data.to(precision.products.dtype).numpy()

    def matmul(self, v: Tensor) -> Tensor:
        """A v."""
        product = self._entries @ v.to(self.precision.products.dtype).numpy()
        return column_major(torch.from_numpy(product)).to(v.dtype)

    def with_precision(self, precision: str | Precision) -> Operator:
        """The matrix as given, rounded to another rung."""
        precision = Precision.resolve(precision)
        return self if precision == self.precision else SparseOperator(self._given, precision)

    @property
    def has_rows(self) -> bool:
        """Yes."""
        return True

    def rows(self, i: Tensor) -> Tensor:
        """Dense rows (len(i), n) of this rung."""
        return torch.from_numpy(self._entries[i.numpy()].toarray())

    def diagonal(self) -> Tensor:
        """The diagonal (n,) of this rung."""
        return torch.from_numpy(self._entries.diagonal())


class CallableOperator(Operator):
    """Known by its product only, so it has one rung, the format it computes in: double as far as we know."""

    def __init__(
        self, product: Callable[[Any], Any], size: int, library: str, precision: Precision | None = None
    ) -> None:
        self._product = product
        self._library = library
        self.shape = (size, size)
        self.device = torch.device("cpu")
        self.precision = precision or Precision.resolve("double")

    def matmul(self, v: Tensor) -> Tensor:
        """A v."""
        result = self._product(v.contiguous().numpy() if self._library == "numpy" else v)
        return column_major(torch.as_tensor(result)).to(v.dtype)

    def with_precision(self, precision: str | Precision) -> Operator:
        """Itself: its precision is not ours to choose."""
        return self

    def rungs(self) -> tuple[Precision, ...]:
        """One."""
        return (self.precision,)


def as_operator(matrix: Any) -> Operator:
    """Anything square that multiplies, as a `Operator`.

    Args:
        matrix: one of our operators, a torch tensor, a NumPy array, a SciPy sparse matrix or
            `LinearOperator`, or a pair (callable, n) whose callable takes (n, t) tensors.

    Raises:
        InputError: not square, not finite, or nothing of the kind.
    """
    if isinstance(matrix, KernelOperator):
        matrix = matrix.bound
    if isinstance(matrix, Operator):
        _check_square(matrix.shape)
        return matrix
    if isinstance(matrix, tuple) and len(matrix) == 2 and callable(matrix[0]):
        return CallableOperator(matrix[0], int(matrix[1]), "torch")
    shape = getattr(matrix, "shape", None)
    if shape is None:
        raise InputError(
            "`A` must have a shape and `@`, or be a pair (callable, n);"
            f" got {type(matrix).__name__}. Use `(A, n)` for a callable."
        )
    _check_square(tuple(shape))
    double = Precision.resolve("double")
    if scipy.sparse.issparse(matrix):
        return SparseOperator(matrix, double)
    if isinstance(matrix, LinearOperator):
        return CallableOperator(matrix.matmat, shape[0], "numpy")
    if isinstance(matrix, np.ndarray | Tensor):
        return DenseOperator(_entries(matrix), double)
    return CallableOperator(matrix.__matmul__, shape[0], "torch")


def _check_square(shape: tuple[int, ...]) -> None:
    if len(shape) != 2 or shape[0] != shape[1]:
        raise InputError(f"`A` must be square; got shape {shape}.")


def _entries(values: np.ndarray[Any, Any] | Tensor) -> Tensor:
    """Entries of a matrix, as they were given, whatever their layout and byte order."""
    entries = as_real(values, "A")
    if not bool(entries.isfinite().all()):
        raise InputError("`A` must hold finite numbers; got NaN or infinity. Check how it was made.")
    return entries


def _rounded(entries: Tensor, fmt: Format) -> Tensor:
    """Entries rounded to a format, scaled by a power of two so that the largest is near 1: no overflow."""
    wide = entries.double()
    largest = float(wide.abs().max()) if wide.numel() else 0.0
    if fmt == DOUBLE or largest == 0.0:
        return wide
    scale = 2.0 ** math.frexp(largest)[1]
    return (wide / scale).to(fmt.dtype).double() * scale  # exact but for the one rounding to `fmt`
