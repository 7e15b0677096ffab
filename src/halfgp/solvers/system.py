"""One face for everything that can be multiplied: our operators, arrays, sparse matrices, callables."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
import torch
from scipy.sparse.linalg import LinearOperator
from torch import Tensor

from halfgp.data import as_real
from halfgp.errors import InputError
from halfgp.precision import DOUBLE, SINGLE, Format, Precision

Rung = Precision
NO_NOISE = torch.zeros((), dtype=torch.float64)


def rung_name(precision: Precision) -> str:
    """The name of a rung: a 16-bit one says whether its entries are 16 bits too, or only its inputs."""
    if not precision.is_sixteen_bit:
        return precision.name
    return f"{precision.name} {'entries' if precision.entries.bytes == 2 else 'inputs'}"


def column_major(v: Tensor) -> Tensor:
    """The same (n, t) with its columns contiguous: solvers work along columns."""
    return v.T.contiguous().T


class System(ABC):
    """A square symmetric matrix on one rung of precision.

    Vectors are (n, t) tensors in float64 or float32, whatever the rung: rounding them is the solver's
    decision, so that it can use the rounded vector everywhere.

    Attributes:
        size: n.
        device: of the vectors.
        precision: what its product is computed in.
    """

    size: int
    device: torch.device
    precision: Precision

    @abstractmethod
    def matmul(self, v: Tensor) -> Tensor:
        """A v (n, t), column-major, in the dtype of v."""

    @abstractmethod
    def with_precision(self, precision: str | Precision) -> System:
        """The same matrix on another rung."""

    @property
    def shape(self) -> tuple[int, int]:
        """(n, n)."""
        return self.size, self.size

    @property
    def matrix(self) -> Any:
        """What preconditioners are built from: the operator behind it, or itself."""
        return self

    def rungs(self) -> tuple[Precision, ...]:
        """Rungs that differ, cheapest first."""
        return tuple(Precision.resolve(name) for name in ("half", "single", "double"))

    def dot(self, u: Tensor, v: Tensor) -> Tensor:
        """Inner products (t,) of the columns of u and v, in float64."""
        products: Tensor = torch.linalg.vecdot(u.double().T, v.double().T)
        return products

    def gram(self, u: Tensor, v: Tensor) -> Tensor:
        """The matrix u' v (s, t)."""
        return (v.double().T @ u.double()).T  # for long contiguous columns twice as fast as u' v

    def total(self, partial: Tensor) -> Tensor:
        """A sum over all rows from one over the rows held here: the same, unless rows are sharded."""
        return partial

    @property
    def noise(self) -> Tensor:
        """Variances on the diagonal, () or (n,), where the matrix knows them; zero where not."""
        return NO_NOISE

    @property
    def has_rows(self) -> bool:
        """Whether `rows` and `diagonal` can be asked for."""
        return False

    def rows(self, i: Tensor) -> Tensor:
        """Rows (len(i), n)."""
        raise InputError(
            "This matrix is known by its products only, and rows were asked for: pass `preconditioner=None`,"
            " one that is built, or the matrix itself."
        )

    def diagonal(self) -> Tensor:
        """The diagonal (n,)."""
        return self.rows(torch.arange(self.size)).diagonal()


class OperatorSystem(System):
    """One of our operators: it has rungs, inner products, rows and noise of its own."""

    def __init__(self, operator: Any) -> None:
        self._operator = operator
        self.size = operator.shape[0]
        self.device = operator.device
        self.precision = operator.precision

    @property
    def matrix(self) -> Any:
        """The operator."""
        return self._operator

    def matmul(self, v: Tensor) -> Tensor:
        """A v."""
        return column_major(self._operator @ v)

    def with_precision(self, precision: str | Precision) -> System:
        """The same operator on another rung."""
        if Precision.resolve(precision) == self.precision:
            return self
        if Precision.resolve(precision).name == "double" and self._operator.storage != "on_the_fly":
            # Double serves a few checks: to hold its entries would cost more than they do.
            return OperatorSystem(self._operator.with_precision(precision, storage="on_the_fly"))
        return OperatorSystem(self._operator.with_precision(precision))

    def rungs(self) -> tuple[Precision, ...]:
        """With 16-bit entries only where the operator would hold such in memory."""
        half, single, double = super().rungs()
        unrounded = half.with_entries(SINGLE)
        stored = self.precision == half
        return (half, unrounded, single, double) if stored else (unrounded, single, double)

    def dot(self, u: Tensor, v: Tensor) -> Tensor:
        """Inner products from the operator, which may be sharded."""
        return torch.as_tensor(self._operator.dot(u, v))

    def gram(self, u: Tensor, v: Tensor) -> Tensor:
        """Gram matrices from the operator, which may be sharded."""
        return torch.as_tensor(self._operator.gram(u, v))

    def total(self, partial: Tensor) -> Tensor:
        """Through the operator's `total`, if it has one: a sharded operator must."""
        reduce: Callable[[Tensor], Tensor] | None = getattr(self._operator, "total", None)
        return partial if reduce is None else reduce(partial)

    @property
    def noise(self) -> Tensor:
        """The operator's, White included where it tells."""
        told = getattr(self._operator, "nugget", self._operator.noise)
        return torch.as_tensor(told, dtype=torch.float64)

    @property
    def has_rows(self) -> bool:
        """Yes."""
        return True

    def rows(self, i: Tensor) -> Tensor:
        """Rows (len(i), n), noise included."""
        return torch.as_tensor(self._operator.rows(i))

    def diagonal(self) -> Tensor:
        """The diagonal (n,), noise included."""
        return torch.as_tensor(self._operator.diagonal())


class DenseSystem(System):
    """A dense matrix: entries are rounded to the rung's format, products are in single or double."""

    def __init__(self, matrix: Tensor, precision: Precision) -> None:
        self._given = matrix
        self.size = matrix.shape[0]
        self.device = matrix.device
        self.precision = precision
        self._entries = _rounded(matrix, precision.entries).to(precision.products.dtype)

    def matmul(self, v: Tensor) -> Tensor:
        """A v."""
        return column_major(self._entries @ v.to(self._entries.dtype)).to(v.dtype)

    def with_precision(self, precision: str | Precision) -> System:
        """The matrix as given, rounded to another rung."""
        precision = Precision.resolve(precision)
        return self if precision == self.precision else DenseSystem(self._given, precision)

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


class SparseSystem(System):
    """A SciPy sparse matrix: entries are rounded to the rung's format, products are in single or double."""

    def __init__(self, matrix: Any, precision: Precision) -> None:
        self._given = matrix
        self.size = matrix.shape[0]
        self.device = torch.device("cpu")
        self.precision = precision
        self._entries = matrix.tocsr(copy=True)
        data = _rounded(_entries(self._entries.data), precision.entries)
        self._entries.data = data.to(precision.products.dtype).numpy()

    def matmul(self, v: Tensor) -> Tensor:
        """A v."""
        product = self._entries @ v.to(self.precision.products.dtype).numpy()
        return column_major(torch.from_numpy(product)).to(v.dtype)

    def with_precision(self, precision: str | Precision) -> System:
        """The matrix as given, rounded to another rung."""
        precision = Precision.resolve(precision)
        return self if precision == self.precision else SparseSystem(self._given, precision)

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


class CallableSystem(System):
    """Known by its product only, so it has one rung, the format it computes in: double as far as we know."""

    def __init__(
        self, product: Callable[[Any], Any], size: int, library: str, precision: Precision | None = None
    ) -> None:
        self._product = product
        self._library = library
        self.size = size
        self.device = torch.device("cpu")
        self.precision = precision or Precision.resolve("double")

    def matmul(self, v: Tensor) -> Tensor:
        """A v."""
        result = self._product(v.contiguous().numpy() if self._library == "numpy" else v)
        return column_major(torch.as_tensor(result)).to(v.dtype)

    def with_precision(self, precision: str | Precision) -> System:
        """Itself: its precision is not ours to choose."""
        return self

    def rungs(self) -> tuple[Precision, ...]:
        """One."""
        return (self.precision,)


def as_system(matrix: Any) -> System:
    """Anything square that multiplies, as a `System`.

    Args:
        matrix: one of our operators, a torch tensor, a NumPy array, a SciPy sparse matrix or
            `LinearOperator`, or a pair (callable, n) whose callable takes (n, t) tensors.

    Raises:
        InputError: not square, not finite, or nothing of the kind.
    """
    if isinstance(matrix, System):
        return matrix
    if isinstance(matrix, tuple) and len(matrix) == 2 and callable(matrix[0]):
        return CallableSystem(matrix[0], int(matrix[1]), "torch")
    shape = getattr(matrix, "shape", None)
    if shape is None:
        raise InputError(
            "`A` must have a shape and `@`, or be a pair (callable, n);"
            f" got {type(matrix).__name__}. Use `(A, n)` for a callable."
        )
    if len(shape) != 2 or shape[0] != shape[1]:
        raise InputError(f"`A` must be square; got shape {tuple(shape)}.")
    if hasattr(matrix, "with_precision") and hasattr(matrix, "dot"):
        return OperatorSystem(matrix)
    double = Precision.resolve("double")
    if scipy.sparse.issparse(matrix):
        return SparseSystem(matrix, double)
    if isinstance(matrix, LinearOperator):
        return CallableSystem(matrix.matmat, shape[0], "numpy")
    if isinstance(matrix, np.ndarray | Tensor):
        return DenseSystem(_entries(matrix), double)
    return CallableSystem(matrix.__matmul__, shape[0], "torch")


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
