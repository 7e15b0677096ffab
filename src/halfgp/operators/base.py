"""What solvers, preconditioners and likelihoods ask of a matrix: tensors in, tensors out, nothing checked."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from halfgp.data import binary_scale, peaks
from halfgp.errors import InputError
from halfgp.precision import Precision

UNKNOWN = torch.zeros((), dtype=torch.float64)


def rung_name(precision: Precision) -> str:
    """The name of a rung: a 16-bit one says whether its entries are 16 bits too, or only its inputs."""
    if not precision.is_sixteen_bit:
        return precision.name
    return f"{precision.name} {'entries' if precision.entries.bytes == 2 else 'inputs'}"


def column_major(v: Tensor) -> Tensor:
    """The same (n, t) with its columns contiguous: solvers work along columns."""
    return v.T.contiguous().T


class Operator(ABC):
    """A matrix on one rung of precision, whose rows, and those of its vectors, may be shared out.

    Whoever holds a share runs the same program on its rows. The matrix has n rows in all; vectors are (m, t)
    tensors of the m rows that are `held` here, in float64 or float32 whatever the rung: rounding them is the
    solver's decision, so that it can use the rounded vector everywhere. A product comes out in the layout of
    its vectors, which solvers keep column-major from the beginning to the end.

    No sum over rows is complete before `total`, and no largest number before `largest`: solvers take them
    from here (`dot`, `gram`, `at`, ...), so that every share comes to the same decisions. Where one process
    holds all rows, as it does unless a class says otherwise, they are what they look like.

    Arguments were checked and put into tensors at the public door (`KernelOperator`, `as_operator`, solvers).

    Attributes:
        shape: (n, n2) of the whole matrix.
        device: of the vectors.
        precision: what its product is computed in.
    """

    shape: tuple[int, int]
    device: torch.device
    precision: Precision

    @abstractmethod
    def matmul(self, v: Tensor) -> Tensor:
        """A v (m, t), in the dtype and the layout of v."""

    @abstractmethod
    def with_precision(self, precision: str | Precision) -> Operator:
        """The same matrix on another rung."""

    @property
    def T(self) -> Operator:
        """The transposed matrix: itself, for those that solvers are for."""
        return self

    @property
    def size(self) -> int:
        """The number n of all rows, held here or not."""
        return self.shape[0]

    def rungs(self) -> tuple[Precision, ...]:
        """Rungs that differ, cheapest first."""
        return tuple(Precision.resolve(name) for name in ("half", "single", "double"))

    @property
    def nugget(self) -> Tensor:
        """What of the diagonal is noise, () or (m,), where the matrix knows it; zero where not."""
        return UNKNOWN

    @property
    def least_nugget(self) -> float:
        """The least of it over all rows."""
        nugget = self.nugget.reshape(-1)
        return -float(self.largest(-nugget.min() if len(nugget) else nugget.new_tensor(-torch.inf)))

    @property
    def skipped(self) -> float:
        """Of all entries, the share that a product does not look at because they are zero."""
        return 0.0

    @property
    def has_rows(self) -> bool:
        """Whether `rows` and `diagonal` can be asked for."""
        return False

    def rows(self, i: Tensor) -> Tensor:
        """Rows i, numbered among all, in the columns that are held here: (len(i), m)."""
        raise InputError(
            "This matrix is known by its products only, and rows were asked for: pass `preconditioner=None`,"
            " one that is built, or the matrix itself."
        )

    def diagonal(self) -> Tensor:
        """The diagonal (m,), noise included."""
        return self.rows(self.numbers).diagonal()

    def bilinear_gradient(
        self, u: Tensor, v: Tensor, inputs: bool = False
    ) -> tuple[dict[str, Tensor], Tensor | None, Tensor | None]:
        """The gradient of sum_c u_c' A v_c in every hyperparameter, and in the points where wanted."""
        raise InputError("This matrix has no hyperparameters: a gradient is had from a `KernelOperator`.")

    # How shares come together.

    @property
    def is_shared(self) -> bool:
        """Whether rows are shared out; each of the following is then to be had from all shares at once."""
        return False

    @property
    def held(self) -> slice | Tensor:
        """Which of all rows are here: an index of anything that has all of them, ascending."""
        return slice(0, self.size)

    @property
    def numbers(self) -> Tensor:
        """Those of the rows that are here, among all (m,), ascending."""
        held = self.held
        return held if isinstance(held, Tensor) else torch.arange(held.start, held.stop, device=self.device)

    def here(self, i: Tensor) -> tuple[Tensor, Tensor]:
        """Which of the rows i, numbered among all, are here, and where: (k,) of i, and (k,) of those here."""
        numbers = self.numbers
        if not len(numbers):
            return i.new_empty(0), i.new_empty(0)
        places = torch.searchsorted(numbers, i).clamp_max(len(numbers) - 1)
        found = (numbers[places] == i).nonzero()[:, 0]
        return found, places[found]

    def total(self, partial: Tensor) -> Tensor:
        """A sum over all rows from one over the rows held here."""
        return partial

    def largest(self, partial: Tensor) -> Tensor:
        """The largest number of all rows from that of the rows held here."""
        return partial

    @property
    def rows_held(self) -> int:
        """The number m of rows here."""
        held = self.held
        return len(held) if isinstance(held, Tensor) else len(range(self.size)[held])

    @property
    def most_held(self) -> int:
        """The number of rows in the largest share: what every share may take for granted alike."""
        return self.rows_held

    def dot(self, u: Tensor, v: Tensor) -> Tensor:
        """Inner products (t,) of the columns of u and v (m, t), in float64."""
        products: Tensor = torch.linalg.vecdot(u.double().T, v.double().T)
        return self.total(products)

    def gram(self, u: Tensor, v: Tensor) -> Tensor:
        """The matrix u' v (s, t) of u (m, s) and v (m, t), in float64."""
        return self.total((v.double().T @ u.double()).T)  # for long contiguous columns twice as fast as u' v

    def binary_scale(self, v: Tensor) -> Tensor:
        """Powers of two (t,), float64, that bring the largest of each column of v (m, t) to [1/2, 1)."""
        return binary_scale(self.largest(peaks(v)))

    def finite(self, v: Tensor) -> Tensor:
        """Which columns (t,) of v (m, t) are finite in all rows."""
        return self.total((~v.isfinite()).sum(dim=0)) == 0

    def at(self, v: Tensor, i: Tensor) -> Tensor:
        """The rows i, numbered among all, of v (m, ...), wherever they are held: (len(i), ...)."""
        if not self.is_shared:
            return v[i]
        here, places = self.here(i)
        found = v.new_zeros(len(i), *v.shape[1:])
        found[here] = v[places]
        return self.total(found)

    def gathered(self, v: Tensor) -> Tensor:
        """All rows (n, ...) of v (m, ...)."""
        if not self.is_shared:
            return v
        found = v.new_zeros(self.size, *v.shape[1:])
        found[self.held] = v
        return self.total(found)
