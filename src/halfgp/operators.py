"""A kernel matrix that is never formed: validate, bind to a backend, delegate."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from halfgp.backends import Backend, KernelMatrix, get_backend
from halfgp.backends.storage import choose_storage
from halfgp.data import (
    Array,
    ArrayLike,
    Vectors,
    as_indices,
    as_noise,
    as_points,
    as_vectors,
    binary_scale,
    check_reach,
)
from halfgp.errors import InputError, OutOfRangeError
from halfgp.kernels import Kernel
from halfgp.precision import Format, Precision


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

    A product takes O(n1 n2 (d + t)) time and, on the fly, O((n1 + n2) d) memory. Bad arguments raise
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
    ) -> None:
        if not isinstance(kernel, Kernel):
            raise InputError(f"`kernel` must be a kernel such as `RBF()`; got {type(kernel).__name__}.")
        if threads is not None and threads < 1:
            raise InputError(f"`threads` must be at least 1, or None; got {threads}.")
        self._kernel = kernel
        # Copies: what the caller does to an array later must not change one product and not the next.
        self._x1 = as_points(x1, "x1").clone()
        self._x2 = None if x2 is None else as_points(x2, "x2", self.device).clone()
        self._numpy = not isinstance(x1, Tensor)
        self._noise = as_noise(noise, len(self._x1), self.device).clone()
        self._check_points()
        self._options: dict[str, Any] = {
            "backend": backend,
            "storage": storage,
            "memory_limit": memory_limit,
            "threads": threads,
        }
        self._backend = get_backend(backend, self.device, kernel)
        try:
            self._matrix = self._bind(Precision.resolve(precision))
        except OutOfRangeError:
            if precision != "auto":
                raise
            self._matrix = self._bind(Precision.resolve("double"))
        noisy = bool((self._noise > 0).any())
        self._extra_diagonal = self._noise.detach().expand(len(self._x1)).contiguous() if noisy else None

    def _check_points(self) -> None:
        """Raise unless kernel, points and noise go together."""
        self._kernel.check_columns(self._x1.shape[1])
        if self._x2 is None:
            return
        if self._x2.shape[1] != self._x1.shape[1]:
            raise InputError(
                f"`x2` must have {self._x1.shape[1]} columns, as `x1` has; got {self._x2.shape[1]}."
            )
        if bool(self._noise.any()):
            raise InputError(
                "`noise` belongs to the diagonal of a square operator; leave out `noise` or `x2`."
            )

    def _bind(self, precision: Precision, storage: str | None = None) -> KernelMatrix:
        """The matrix of the backend, once its scaled features are known to stay in range."""
        with torch.no_grad():
            check_range(self._kernel, [self._x1] if self._x2 is None else [self._x1, self._x2], precision)
            precision, store = choose_storage(
                self._kernel,
                self._x1,
                self._x2,
                self._noise,
                backend=self._backend,
                precision=precision,
                storage=storage or self._options["storage"],
                memory_limit=self._options["memory_limit"],
            )
            return self._backend.bind(
                self._kernel,
                self._x1,
                self._x2,
                precision=precision,
                store=store,
                threads=self._options["threads"],
            )

    @property
    def kernel(self) -> Kernel:
        """The covariance function."""
        return self._kernel

    @property
    def shape(self) -> tuple[int, int]:
        """(n1, n2)."""
        return self._matrix.shape

    @property
    def dtype(self) -> torch.dtype:
        """The format of vectors that loses nothing in a product."""
        return self.precision.vectors.dtype

    @property
    def device(self) -> torch.device:
        """Where the points are, and vectors have to be."""
        return self._x1.device

    @property
    def noise(self) -> Tensor:
        """Variances on the diagonal beside the kernel's, () or (n1,), float64."""
        return self._noise

    @property
    def nugget(self) -> Tensor:
        """What the diagonal has beyond the covariance of nearby points, noise and White: () or (n1,)."""
        self._require_square("nugget")
        with torch.no_grad():
            white = self._kernel.white(self._x1.to(torch.float64))
        return self._noise + (white[0] if len(white) and bool((white == white[0]).all()) else white)

    @property
    def precision(self) -> Precision:
        """As used: `entries` is what they are really held in."""
        return self._matrix.precision

    @property
    def points(self) -> Tensor:
        """The points (n1, d) of the rows."""
        return self._x1

    @property
    def engine(self) -> Backend:
        """What computes."""
        return self._backend

    @property
    def threads(self) -> int | None:
        """How many work at a product; None follows torch."""
        threads: int | None = self._options["threads"]
        return threads

    def variances(self) -> Tensor:
        """The diagonal (n1,) of a square operator, noise included, in float64 whatever the precision."""
        self._require_square("variances()")
        return self._diagonal(slice(None))

    @property
    def backend(self) -> str:
        """The name of the backend that serves."""
        return self._backend.name

    @property
    def storage(self) -> str:
        """Either "on_the_fly" or "stored" with a dtype."""
        return self._matrix.storage

    def with_precision(self, precision: str | Precision, *, storage: str | None = None) -> KernelOperator:
        """The same operator, on the same points, on another rung; `storage` differs for that rung alone."""
        other = copy.copy(self)
        other._matrix = other._bind(Precision.resolve(precision), storage)
        return other

    def __matmul__(self, v: ArrayLike) -> Array:
        """K v for (n2,) or (n2, t), in the library, device and dtype of `v`.

        Sixteen-bit floats give float32, for a sum of them may be beyond their range; integers give float64.
        Columns whose products would leave the range of the format on the way are scaled by powers of two.
        """
        vectors = as_vectors(v, "V", self.shape[1], self.device, math.inf)
        values = vectors.values
        with torch.no_grad():
            scale = safe_scale(values, self.precision.vectors)
            if scale is None:
                return vectors.restore(self._matrix.matmul(values, self._extra_diagonal))
            scaled = (values.double() / scale).to(values.dtype)
            return vectors.restore(self._matrix.matmul(scaled, self._extra_diagonal).double() * scale)

    def dot(self, u: ArrayLike, v: ArrayLike) -> Array:
        """Inner products (t,) of the columns of `u` and `v` (n, t), summed in float64; NaN passes through."""
        left, right = self._summands(u, "U"), self._summands(v, "V")
        products = torch.linalg.vecdot(left.values.double().T, right.values.double().T)
        return right.restore(products, torch.float64)

    def gram(self, u: ArrayLike, v: ArrayLike) -> Array:
        """The matrix u' v (s, t) of `u` (n, s) and `v` (n, t), summed in float64; NaN passes through."""
        left, right = self._summands(u, "U"), self._summands(v, "V")
        # v' u, transposed: for long contiguous columns twice as fast as u' v.
        products = (right.values.double().T @ left.values.double()).T
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
        gradients, in_x1, in_x2 = self._matrix.bilinear_gradient(
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
        return self._like_points(self._diagonal(slice(None)).to(self.dtype))

    def rows(self, i: object) -> Array:
        """Dense rows (len(i), n2), noise included, in the library of `x1`; a single integer gives (n2,)."""
        indices, single = as_indices(i, self.shape[0], self.device)
        with torch.no_grad():
            dense = self._matrix.block(indices, None)
        if self._x2 is None:
            dense[torch.arange(len(indices)), indices] = self._diagonal(indices).to(dense.dtype)
        return self._like_points(dense[0] if single else dense)

    def to_dense(self) -> Array:
        """The whole matrix (n1, n2), noise included, in the library of `x1`."""
        return self.rows(slice(None))

    def _vectors(self, v: ArrayLike, name: str, rows: int) -> Vectors:
        return as_vectors(v, name, rows, self.device, self.precision.vectors.max)

    def _summands(self, v: ArrayLike, name: str) -> Vectors:
        """Vectors of any length; those of solvers stay as they lie, for a copy costs more than the sum."""
        if isinstance(v, Tensor) and v.ndim == 2 and v.dtype == torch.float64 and v.device == self.device:
            return Vectors(v.detach(), False, v.dtype)
        return as_vectors(v, name, None, self.device)

    def _diagonal(self, i: Tensor | slice) -> Tensor:
        """Entries of the diagonal, noise included, in float64."""
        with torch.no_grad():
            noise = self._noise[i] if self._noise.ndim else self._noise
            return self._kernel.diagonal(self._x1[i].to(torch.float64)) + noise

    def _require_square(self, what: str) -> None:
        if self._x2 is not None:
            raise InputError(f"{what} needs a square operator; got shape {self.shape} with an `x2`.")

    def _like_points(self, result: Tensor) -> Array:
        return result.numpy() if self._numpy else result

    def __repr__(self) -> str:
        return (
            f"KernelOperator({self._kernel!r}, shape={self.shape}, precision={self.precision.name!r},"
            f" backend={self.backend!r}, storage={self.storage!r})"
        )


def safe_scale(v: Tensor, fmt: Format) -> Tensor | None:
    """Powers of two (t,) that bring every column of v (n, t) to a largest entry near 1; None if all is well.

    Well is between the roots of the least and the largest number of the format: products with entries then
    keep their digits, and sums of them are finite.
    """
    if not v.numel():
        return None
    largest = v.abs().amax(dim=0).double()
    reach = math.sqrt(fmt.max)
    if bool(((largest == 0.0) | ((largest > 1.0 / reach) & (largest < reach))).all()):
        return None
    return binary_scale(v)


def check_range(kernel: Kernel, points: list[Tensor], precision: Precision) -> None:
    """Raise unless scaled features fit the format of inputs, and squared distances that of entries."""
    wide = precision.vectors  # what entries are computed in
    for leaf in kernel.program().leaves:
        features = [leaf.features(x) for x in points if len(x)]
        if not features:
            return
        low = torch.stack([f.amin(dim=0) for f in features]).amin(dim=0).double()
        high = torch.stack([f.amax(dim=0) for f in features]).amax(dim=0).double()
        reach = high - low if leaf.is_stationary else torch.maximum(high.abs(), low.abs())
        # A 32nd leaves room for the units and polynomials of the squared distance.
        limit = min(precision.inputs.max, math.sqrt(wide.max / reach.numel()) / 32.0)
        columns = leaf.columns or range(points[0].shape[1])
        check_reach(reach * leaf.scales.to(reach), columns, limit, precision.inputs.name)
    amplitude = kernel.amplitude(*points).item()
    if not wide.smallest_normal / wide.eps <= amplitude <= wide.max:  # with its digits below it
        raise OutOfRangeError(
            f"The variance of the kernel, {amplitude:.4g}, is out of the range of {wide.name}."
            " Rescale the points or the outputs, or use a wider `precision`."
        )
