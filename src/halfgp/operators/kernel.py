"""The public door to a kernel matrix that is never formed: validate, convert, delegate."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator
from torch import Tensor

from halfgp.backends import Backend, get_backend
from halfgp.backends.part import WHOLE, Part
from halfgp.data import (
    Array,
    ArrayLike,
    Vectors,
    as_indices,
    as_noise,
    as_points,
    as_vectors,
)
from halfgp.errors import InputError, OutOfRangeError
from halfgp.kernels import Kernel
from halfgp.operators.bound import BoundKernel
from halfgp.precision import Precision
from halfgp.truncation import TruncationReport


class KernelOperator:
    """K(x1, x2), or the square K(x1, x1) + diag(noise), which multiplies without being formed.

    Args:
        kernel: the covariance; its White part acts on the diagonal of a square operator only.
        x1: points (n1, d): NumPy, torch or nested lists, any real dtype.
        x2: points (n2, d), or None for a square operator.
        noise: variance, or (n1,) variances, added to the diagonal of a square operator.
        precision: "half", "bfloat16", "single", "double", a `Precision`, or "auto": single, and double
            where the points or the variance are out of its range.
        backend: "cpu", "reference", "auto", or an object with `bind`.
        storage: "on_the_fly", "stored" (in the format of the precision's entries), or "auto": stored only if
            a `memory_limit` was given and the entries fit into it.
        memory_limit: bytes for entries.
        threads: how many; None follows `torch.get_num_threads()`.
        truncate: tiles of K whose covariances are all zero are passed by, unless this is False; results are
            the same, to the bit. True does so for what is zero in the format. A number between 0 and 1 makes
            covariances of at most so much, relative to the variances, zero as well; "auto" those that all
            together are less than the format's own rounding of the variance.
        part: of a square operator, which of some summands products are of; see `Part`.
        copy: whether points and noise are copied, so that what the caller does to an array later does not
            change one product and not the next. Who never does saves their memory.

    A product takes O(s n1 n2 (d + t)) time, where 1 - s is the share that is `skipped`, and, on the fly,
    O((n1 + n2) d) memory. Bad arguments raise
    `InputError` before anything is computed. Products are not recorded by autograd: see `bilinear_gradient`.
    """

    def __init__(
        self,
        kernel: Kernel,
        x1: ArrayLike,
        x2: ArrayLike | None = None,
        *,
        noise: float | ArrayLike = 0.0,
        precision: str | Precision = "auto",
        backend: str | Backend = "auto",
        storage: str = "auto",
        memory_limit: int | None = None,
        threads: int | None = None,
        truncate: bool | str | float = "auto",
        part: Part = WHOLE,
        copy: bool = True,
    ) -> None:
        if not isinstance(kernel, Kernel):
            raise InputError(f"`kernel` must be a kernel such as `RBF()`; got {type(kernel).__name__}.")
        if threads is not None and threads < 1:
            raise InputError(f"`threads` must be at least 1, or None; got {threads}.")
        points = as_points(x1, "x1")
        others = None if x2 is None else as_points(x2, "x2", points.device)
        variances = as_noise(noise, len(points), points.device)
        if copy:
            points, variances = points.clone(), variances.clone()
            others = None if others is None else others.clone()
        _check_together(kernel, points, others, variances)
        self._numpy = not isinstance(x1, Tensor)
        bind = partial(
            BoundKernel,
            kernel,
            points,
            others,
            variances,
            backend=get_backend(backend, points.device, kernel),
            storage=storage,
            memory_limit=memory_limit,
            threads=threads,
            truncate=truncate,
            part=part,
        )
        try:
            self._bound = bind(precision=Precision.resolve(precision))
        except OutOfRangeError:
            if precision != "auto":
                raise
            self._bound = bind(precision=Precision.resolve("double"))

    @property
    def bound(self) -> BoundKernel:
        """The matrix as solvers see it: tensors in, tensors out, nothing checked."""
        return self._bound

    @property
    def kernel(self) -> Kernel:
        """The covariance function."""
        return self._bound.kernel

    @property
    def shape(self) -> tuple[int, int]:
        """(n1, n2)."""
        return self._bound.shape

    @property
    def dtype(self) -> torch.dtype:
        """The format of vectors that loses nothing in a product."""
        return self.precision.vectors.dtype

    @property
    def device(self) -> torch.device:
        """Where the points are, and vectors have to be."""
        return self._bound.device

    @property
    def noise(self) -> Tensor:
        """Variances on the diagonal beside the kernel's, () or (n1,), float64."""
        return self._bound.noise

    @property
    def nugget(self) -> Tensor:
        """What the diagonal has beyond the covariance of nearby points, noise and White: () or (n1,)."""
        self._require_square("nugget")
        return self._bound.nugget

    @property
    def precision(self) -> Precision:
        """As used: `entries` is what they are really held in."""
        return self._bound.precision

    @property
    def backend(self) -> str:
        """The name of the backend that serves."""
        return self._bound.backend.name

    @property
    def storage(self) -> str:
        """Either "on_the_fly" or "stored" with a dtype."""
        return self._bound.storage

    @property
    def skipped(self) -> float:
        """Of all entries, the share that a product does not look at because they are zero."""
        return self._bound.skipped

    @property
    def truncation(self) -> TruncationReport:
        """The cutoff, the share skipped, and proven bounds of what is taken for zero."""
        return self._bound.truncation

    @property
    def T(self) -> KernelOperator:
        """K(x2, x1), on the same rung; a square operator is its own."""
        return self._with(self._bound.T)

    def with_precision(self, precision: str | Precision, *, storage: str | None = None) -> KernelOperator:
        """The same operator, on the same points, on another rung; `storage` differs for that rung alone."""
        return self._with(self._bound.rebound(Precision.resolve(precision), storage))

    def _with(self, bound: BoundKernel) -> KernelOperator:
        other = copy.copy(self)
        other._bound = bound
        return other

    def __matmul__(self, v: ArrayLike) -> Array:
        """K v for (n2,) or (n2, t), in the library, device and dtype of `v`.

        Sixteen-bit floats give float32, for a sum of them may be beyond their range; integers give float64.
        Columns whose products would leave the range of the format on the way are scaled by powers of two.
        """
        vectors = as_vectors(v, "V", self.shape[1], self.device, math.inf)
        return vectors.restore(self._bound.matmul(vectors.values))

    def dot(self, u: ArrayLike, v: ArrayLike) -> Array:
        """Inner products (t,) of the columns of `u` and `v` (n, t), summed in float64; NaN passes through."""
        left, right = self._summands(u, "U"), self._summands(v, "V")
        return right.restore(self._bound.dot(left.values, right.values), torch.float64)

    def gram(self, u: ArrayLike, v: ArrayLike) -> Array:
        """The matrix u' v (s, t) of `u` (n, s) and `v` (n, t), summed in float64; NaN passes through."""
        left, right = self._summands(u, "U"), self._summands(v, "V")
        products = self._bound.gram(left.values, right.values)
        return replace(right, squeeze=False).restore(products, torch.float64)

    def bilinear_gradient(self, u: ArrayLike, v: ArrayLike, inputs: bool = False) -> dict[str, Array]:
        """The gradient of sum_c u_c' K v_c in every hyperparameter of the kernel, in one pass.

        Args:
            u: (n1,) or (n1, t).
            v: (n2,) or (n2, t).
            inputs: also differentiate by the points.

        Returns:
            By the names of `kernel.named_parameters()`, and "x1" (n1, d) and, if there is one, "x2" (n2, d);
            in float64, in the library of `v`. A square operator has the whole gradient in its points under
            "x1".
        """
        left, right = self._vectors(u, "U", self.shape[0]), self._vectors(v, "V", self.shape[1])
        if left.values.shape[1] != right.values.shape[1]:
            raise InputError(
                f"`U` must have as many columns as `V`, {right.values.shape[1]}; got {left.values.shape[1]}."
            )
        dtype = torch.promote_types(left.values.dtype, right.values.dtype)
        gradients, in_x1, in_x2 = self._bound.bilinear_gradient(
            left.values.to(dtype), right.values.to(dtype), inputs
        )
        if in_x1 is not None:
            gradients = {**gradients, "x1": in_x1}
        if in_x2 is not None:
            gradients = {**gradients, "x2": in_x2}
        plain = replace(right, squeeze=False)
        return {name: plain.restore(gradient, torch.float64) for name, gradient in gradients.items()}

    def diagonal(self) -> Array:
        """The diagonal (n1,) of a square operator, noise included, in the library of `x1`."""
        self._require_square("diagonal()")
        return self._like_points(self._bound.diagonal())

    def rows(self, i: object) -> Array:
        """Dense rows (len(i), n2), noise included, in the library of `x1`; a single integer gives (n2,)."""
        indices, single = as_indices(i, self.shape[0], self.device)
        dense = self._bound.rows(indices)
        return self._like_points(dense[0] if single else dense)

    def to_dense(self) -> Array:
        """The whole matrix (n1, n2), noise included, in the library of `x1`."""
        return self.rows(slice(None))

    def aslinearoperator(self) -> LinearOperator:
        """As SciPy's solvers take it: float64 vectors, and products in this precision."""
        transposed = self.T

        def times(v: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
            return np.asarray(self @ np.asarray(v, dtype=np.float64))

        def transposed_times(v: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
            return np.asarray(transposed @ np.asarray(v, dtype=np.float64))

        return LinearOperator(
            self.shape,
            matvec=times,
            rmatvec=transposed_times,
            matmat=times,
            rmatmat=transposed_times,
            dtype=np.dtype(np.float64),
        )

    def _vectors(self, v: ArrayLike, name: str, rows: int) -> Vectors:
        return as_vectors(v, name, rows, self.device, self.precision.vectors.max)

    def _summands(self, v: ArrayLike, name: str) -> Vectors:
        """Vectors of any length, finite or not."""
        return as_vectors(v, name, None, self.device)

    def _require_square(self, what: str) -> None:
        if self._bound.x2 is not None:
            raise InputError(f"{what} needs a square operator; got shape {self.shape} with an `x2`.")

    def _like_points(self, result: Tensor) -> Array:
        return result.numpy() if self._numpy else result

    def __repr__(self) -> str:
        return (
            f"KernelOperator({self.kernel!r}, shape={self.shape}, precision={self.precision.name!r},"
            f" backend={self.backend!r}, storage={self.storage!r})"
        )


def _check_together(kernel: Kernel, x1: Tensor, x2: Tensor | None, noise: Tensor) -> None:
    """Raise unless kernel, points and noise go together."""
    kernel.check_columns(x1.shape[1])
    if x2 is None:
        return
    if x2.shape[1] != x1.shape[1]:
        raise InputError(f"`x2` must have {x1.shape[1]} columns, as `x1` has; got {x2.shape[1]}.")
    if bool(noise.any()):
        raise InputError("`noise` belongs to the diagonal of a square operator; leave out `noise` or `x2`.")
