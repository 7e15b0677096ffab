"""A kernel matrix bound to a backend, as solvers see it."""

from __future__ import annotations

import copy
import math
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from halfgp.backends import Backend, KernelMatrix
from halfgp.backends.part import WHOLE, Part
from halfgp.backends.storage import choose_storage, unrounded
from halfgp.data import binary_scale, check_reach, peaks
from halfgp.errors import OutOfRangeError
from halfgp.kernels import Kernel
from halfgp.operators.base import Operator
from halfgp.precision import SINGLE, Format, Precision
from halfgp.truncation import Truncation, TruncationReport, resolve_truncation


class BoundKernel(Operator):
    """K(x1, x2), or the square K(x1, x1) + diag(noise), by products that a backend computes.

    Args:
        kernel: the covariance.
        x1: points (n1, d).
        x2: points (n2, d), or None for a square matrix.
        noise: variances on the diagonal of a square matrix, () or (n1,), float64.
        backend: of the products.
        storage: as for `KernelOperator`.
        memory_limit: bytes for entries.
        threads: of the products; None follows torch.
        precision: the first rung.
        truncate: as for `KernelOperator`, on each rung.
        part: of a square matrix, which summand products and gradients are of.
    """

    def __init__(
        self,
        kernel: Kernel,
        x1: Tensor,
        x2: Tensor | None,
        noise: Tensor,
        *,
        backend: Backend,
        storage: str,
        memory_limit: int | None,
        threads: int | None,
        precision: Precision,
        truncate: bool | str | float,
        part: Part = WHOLE,
    ) -> None:
        self.kernel, self.x1, self.x2, self.noise = kernel, x1, x2, noise
        self.backend = backend
        self.threads = threads
        self._storage, self._memory_limit, self._truncate = storage, memory_limit, truncate
        # A backend that is bound whole need not know of parts.
        self._part: dict[str, Any] = {} if part.is_whole else {"part": part}
        self.device = x1.device
        noisy = bool((noise > 0).any())
        self._extra_diagonal = noise.detach().expand(len(x1)).contiguous() if noisy else None
        self._take(self._bind(precision, storage))

    def _take(self, matrix: KernelMatrix) -> None:
        self._matrix, self.shape, self.precision = matrix, matrix.shape, matrix.precision

    def _bind(self, precision: Precision, storage: str) -> KernelMatrix:
        """The matrix of the backend, once its scaled features are known to stay in range."""
        with torch.no_grad():
            check_range(self.kernel, [self.x1] if self.x2 is None else [self.x1, self.x2], precision)
            bind = partial(
                self.backend.bind,
                self.kernel,
                self.x1,
                self.x2,
                threads=self.threads,
                truncation=self._resolved_truncation(precision),
                **self._part,
            )
            # Which tiles are zero, and so what storing the others takes, is known once points are bound.
            plain = cache(lambda: bind(precision=unrounded(precision), store=False))
            chosen, store = choose_storage(
                self.kernel,
                self.x1,
                self.x2,
                self.noise,
                stored_bytes=lambda entry_bytes: plain().stored_bytes(entry_bytes),
                precision=precision,
                storage=storage,
                memory_limit=self._memory_limit,
            )
            return bind(precision=chosen, store=True) if store else plain()

    @property
    def storage(self) -> str:
        """Either "on_the_fly" or "stored" with a dtype."""
        return self._matrix.storage

    @property
    def skipped(self) -> float:
        """Of all entries, the share that a product does not look at because they are zero."""
        return self._matrix.skipped

    @property
    def truncation(self) -> TruncationReport:
        """With a proven bound of what it takes for zero, in O(n1 n2 / 65,536) time."""
        truncation = self._resolved_truncation(self.precision)
        error = self._matrix.dropped()
        noise = self.least_nugget if self.x2 is None else 0.0
        rho = error / noise if noise > 0.0 else (math.inf if error > 0.0 else 0.0)
        return TruncationReport(truncation.vanishing(self.precision), self.skipped, error, rho)

    def _resolved_truncation(self, precision: Precision) -> Truncation:
        columns = self.x1 if self.x2 is None else self.x2
        return resolve_truncation(self._truncate, self.kernel, len(columns), precision)

    @property
    def T(self) -> BoundKernel:
        """K(x2, x1), on the same rung."""
        if self.x2 is None:
            return self
        other = copy.copy(self)
        other.x1, other.x2 = self.x2, self.x1
        other._take(other._bind(self.precision, self._storage))
        return other

    def rebound(self, precision: Precision, storage: str | None = None) -> BoundKernel:
        """On another rung, stored as asked for; None as before."""
        other = copy.copy(self)
        other._take(other._bind(precision, storage or self._storage))
        return other

    def with_precision(self, precision: str | Precision) -> BoundKernel:
        """On another rung; in double on the fly, since holding entries would cost more than a few checks."""
        wanted = Precision.resolve(precision)
        if wanted == self.precision:
            return self
        stored_in_double = wanted.name == "double" and self.storage != "on_the_fly"
        return self.rebound(wanted, "on_the_fly" if stored_in_double else None)

    def rungs(self) -> tuple[Precision, ...]:
        """With 16-bit entries only where it holds such in memory."""
        half, single, double = super().rungs()
        unrounded = half.with_entries(SINGLE)
        return (half, unrounded, single, double) if self.precision == half else (unrounded, single, double)

    @torch.no_grad()
    def matmul(self, v: Tensor) -> Tensor:
        """K v, without what `within` has of it.

        Columns that would leave the range of the format on the way are scaled by powers of two.
        """
        scaled, scale = self._safe(v)
        return _undone(self._matrix.matmul(scaled, self._extra_diagonal), scale)

    @torch.no_grad()
    def within(self, v: Tensor) -> Tensor | None:
        """Of a part's K v what its rows (m, t) of v give to these: (m, t); None where that is not apart."""
        scaled, scale = self._safe(v)
        found = self._matrix.within(scaled, self._extra_diagonal)
        return None if found is None else _undone(found, scale)

    def _safe(self, v: Tensor) -> tuple[Tensor, Tensor | None]:
        """Columns in the range of the format, and what they were divided by."""
        scale = safe_scale(v, self.precision.vectors)
        return (v, None) if scale is None else ((v.double() / scale).to(v.dtype), scale)

    def bilinear_gradient(
        self, u: Tensor, v: Tensor, inputs: bool = False
    ) -> tuple[dict[str, Tensor], Tensor | None, Tensor | None]:
        """The gradient of sum_c u_c' K v_c in every hyperparameter, and in `x1` and `x2` where wanted."""
        return self._matrix.bilinear_gradient(u.contiguous(), v.contiguous(), inputs)

    @property
    def nugget(self) -> Tensor:
        """Noise and White, () or (n1,)."""
        with torch.no_grad():
            white = self.kernel.white(self.x1.to(torch.float64))
        return self.noise + (white[0] if len(white) and bool((white == white[0]).all()) else white)

    @property
    def has_rows(self) -> bool:
        """Yes."""
        return True

    @torch.no_grad()
    def rows(self, i: Tensor, columns: Tensor | None = None) -> Tensor:
        """Dense rows (len(i), n2), or some columns of them, noise included."""
        dense = self._matrix.block(i, columns)
        if self.x2 is None:
            at, j = torch.arange(len(i), device=i.device), i
            if columns is not None:
                at, j = (i[:, None] == columns).nonzero().unbind(1)
            dense[at, j] = self._diagonal(i[at]).to(dense.dtype)
        return dense

    def diagonal(self) -> Tensor:
        """The diagonal (n1,), noise included, in the format of the vectors."""
        return self.variances().to(self.precision.vectors.dtype)

    def variances(self) -> Tensor:
        """The diagonal (n1,), noise included, in float64 whatever the precision."""
        return self._diagonal(slice(None))

    @torch.no_grad()
    def _diagonal(self, i: Tensor | slice) -> Tensor:
        noise = self.noise[i] if self.noise.ndim else self.noise
        return self.kernel.diagonal(self.x1[i].to(torch.float64)) + noise


def _undone(product: Tensor, scale: Tensor | None) -> Tensor:
    return product if scale is None else (product.double() * scale).to(product.dtype)


def safe_scale(v: Tensor, fmt: Format) -> Tensor | None:
    """Powers of two (t,) that bring every column of v (n, t) to a largest entry near 1; None if all is well.

    Well is between the roots of the least and the largest number of the format: products with entries then
    keep their digits, and sums of them are finite.
    """
    if not v.numel():
        return None
    largest = peaks(v).double()
    reach = math.sqrt(fmt.max)
    if bool(((largest == 0.0) | ((largest > 1.0 / reach) & (largest < reach))).all()):
        return None
    return binary_scale(largest)


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
