"""What a backend provides: a kernel bound to its points, ready to multiply."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from halfgp.backends.conditionals import Conditionals, Neighbourhoods
from halfgp.backends.grouped_factor import GroupedFactor, GroupedRows
from halfgp.backends.part import WHOLE, Part
from halfgp.backends.sparse_factor import SparseFactor
from halfgp.kernels import Kernel
from halfgp.nearest import NearestSearch
from halfgp.precision import Format, Precision
from halfgp.truncation import EXACT, Truncation


def empty_like(v: Tensor, rows: int) -> Tensor:
    """Room for a product (rows, t) with v (n, t): row-major where v is, otherwise column-major."""
    return v.new_empty(rows, v.shape[1]) if v.is_contiguous() else v.new_empty(v.shape[1], rows).T


class KernelMatrix(Protocol):
    """A kernel bound to its points by one backend.

    A square matrix (bound with `x2=None`) has `kernel.diagonal(x1)`, White included and unrounded, on its
    diagonal. Another entry is zero where |K_ij| / amplitude <= `truncation.vanishing(precision)`, in a 16-bit
    precision 2**vanishing_exponent of the inputs' format or more, with
    amplitude = `kernel.amplitude(x1, x2)`, whether entries are stored or not.

    One that was bound as a `Part` is a summand: products and gradients of all parts add up to those of the
    matrix, whose blocks, shape and zeros it knows. Of a product, what needs nothing but rows that the part
    holds may be had by itself.
    """

    @property
    def shape(self) -> tuple[int, int]:
        """(n1, n2)."""

    @property
    def storage(self) -> str:
        """Either "on_the_fly", or "stored float16", "stored bfloat16", "stored float32", "stored float64"."""

    @property
    def precision(self) -> Precision:
        """As used: `entries` is what they are really held in."""

    @property
    def skipped(self) -> float:
        """Of all entries, the share that products do not look at because they are zero."""

    def stored_bytes(self, entry_bytes: int) -> int:
        """The memory that its entries take, or would take, if they are stored in that size."""

    def dropped(self) -> float:
        """At least the largest sum over a row of |entries| that are taken for zero."""

    def matmul(self, v: Tensor, extra_diagonal: Tensor | None) -> Tensor:
        """K v, plus extra_diagonal * v on a square matrix; of a part, without what `within` has of it.

        Args:
            v: (n2, t), finite, float32 or float64, in any layout; t may be 0.
            extra_diagonal: (n1,) float64.

        Returns:
            (n1, t) of the dtype of `v`, and column-major where that is: see `empty_like`.
        """

    def within(self, v: Tensor, extra_diagonal: Tensor | None) -> Tensor | None:
        """Of a part's product, what comes of the rows that it holds, and goes to them: (m, t) of v (m, t).

        None where all of it is in `matmul`, as of any matrix that was not bound as a part with an `order`,
        and of any backend whose work is not cut by who holds what.
        """

    def bilinear_gradient(
        self, u: Tensor, v: Tensor, inputs: bool
    ) -> tuple[dict[str, Tensor], Tensor | None, Tensor | None]:
        """The gradient of sum_c u_c' K v_c.

        Args:
            u: (n1, t), contiguous, finite, float32 or float64.
            v: (n2, t), of the same dtype.
            inputs: whether the gradients in the points are wanted too.

        Returns:
            In the parameters, by the names of `kernel.named_parameters()`, of their shapes, float64; in `x1`
            (n1, D) and in `x2` (n2, D), float64, or None. A square matrix folds both into the first.
        """

    def block(self, rows: Tensor | None, columns: Tensor | None) -> Tensor:
        """The dense entries that the product uses, in the dtype of `precision.vectors`; None takes all."""


class Backend(Protocol):
    """A way to multiply with kernel matrices."""

    @property
    def name(self) -> str:
        """For `KernelOperator(backend=...)`."""

    def bind(
        self,
        kernel: Kernel,
        x1: Tensor,
        x2: Tensor | None,
        *,
        precision: Precision,
        store: bool,
        threads: int | None,
        truncation: Truncation = EXACT,
        part: Part = WHOLE,
    ) -> KernelMatrix:
        """Prepare the products of one kernel matrix.

        Args:
            kernel: already checked against the number of columns.
            x1: (n1, D), finite, float32 or float64, in range of the format; possibly not contiguous.
            x2: (n2, D), or None for a square matrix.
            precision: `entries` is the format to hold stored entries in.
            store: hold the entries in memory, in `precision.entries`, rather than compute them each time.
            threads: how many, or None for torch's own number.
            truncation: which entries are zero, and whether tiles of zeros may be passed by.
            part: of a square matrix, which summand is wanted; a backend that is only ever bound whole need
                not take it.
        """

    def conditionals(
        self,
        kernel: Kernel,
        of: Neighbourhoods,
        *,
        precision: Precision,
        threads: int | None,
        gradient: bool = False,
    ) -> Conditionals:
        """Rows given their neighbours, in the format of `precision.vectors` or a wider one."""

    def nearest(self, search: NearestSearch, k: int, *, threads: int | None) -> Tensor:
        """Neighbours (m, k) of the queries, exactly, nearest first; -1 where there are fewer."""

    def sparse_factor(self, columns: Tensor, entries: Tensor, *, threads: int | None) -> SparseFactor:
        """The lower triangular matrix of entries (n, k + 1), float64, in columns and on the diagonal."""

    def grouped_factor(
        self, kernel: Kernel, of: GroupedRows, *, entries_in: Format, threads: int | None
    ) -> GroupedFactor:
        """The sparse inverse factor of groups of rows, computed in double and held in a format."""
