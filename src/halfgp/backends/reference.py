"""The specification: kernel products in torch, on any device, in any format, chunk by chunk."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from halfgp.backends.base import empty_like
from halfgp.backends.chain_rule import parameter_gradient, pull_back
from halfgp.backends.conditionals import Conditionals, Neighbourhoods, reference_conditionals
from halfgp.backends.grouped_factor import GroupedRows, ReferenceGroupedFactor
from halfgp.backends.part import WHOLE, Part
from halfgp.backends.sparse_factor import ReferenceSparseFactor
from halfgp.backends.units import relative_units
from halfgp.kernels import Kernel, Leaf, Program
from halfgp.nearest import NearestSearch, nearest_by_looking
from halfgp.precision import Format, Precision
from halfgp.truncation import EXACT, Truncation

CHUNK_BYTES = 2**26  # of temporaries beside inputs and outputs


class NeighboursInTorch:
    """What backends know of neighbours, in torch on the device of the rows."""

    def conditionals(
        self,
        kernel: Kernel,
        of: Neighbourhoods,
        *,
        precision: Precision,
        threads: int | None,
        gradient: bool = False,
    ) -> Conditionals:
        """In float64, whatever the precision."""
        return reference_conditionals(kernel, of, gradient)

    def nearest(self, search: NearestSearch, k: int, *, threads: int | None) -> Tensor:
        """By every distance."""
        return nearest_by_looking(search, k)

    def sparse_factor(
        self, columns: Tensor, entries: Tensor, *, threads: int | None
    ) -> ReferenceSparseFactor:
        """In torch."""
        return ReferenceSparseFactor(columns, entries)

    def grouped_factor(
        self, kernel: Kernel, of: GroupedRows, *, entries_in: Format, threads: int | None
    ) -> ReferenceGroupedFactor:
        """In torch."""
        return ReferenceGroupedFactor(kernel, of, entries_in.dtype)


@dataclass(frozen=True)
class ReferenceBackend(NeighboursInTorch):
    """Torch, chunked over rows; `threads` is torch's own number."""

    name: str = "reference"

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
    ) -> ReferenceMatrix:
        """Scale and round the points; if `store`, also evaluate and round the entries."""
        return ReferenceMatrix(kernel, x1, x2, precision, store, truncation, part)


BACKEND = ReferenceBackend()


class ReferenceMatrix:
    """A kernel matrix evaluated by its program.

    Scaled features, relative to the mean of those of the columns, are rounded to `precision.inputs`; entries
    are computed in the format of `precision.vectors` and, if stored, rounded to `precision.entries`; a
    product sums in `precision.sums`. Zeros are computed like the others.
    """

    skipped = 0.0

    def __init__(
        self,
        kernel: Kernel,
        x1: Tensor,
        x2: Tensor | None,
        precision: Precision,
        store: bool,
        truncation: Truncation,
        part: Part = WHOLE,
    ) -> None:
        self.shape = (len(x1), len(x1 if x2 is None else x2))
        self.precision = precision
        self._part, self._rows = part, part.of(self.shape[0])  # of which its summand is made
        self._kernel = kernel.detached()
        self._points = (x1,) if x2 is None else (x1, x2)
        amplitude = self._kernel.amplitude(*self._points).item()
        # Sixteen bits hold K in units of powers of two: nothing overflows, and the digits are those of K.
        self._unit = 2.0 ** math.floor(math.log2(amplitude))
        self._units = relative_units(self._kernel, self._points)
        self._threshold = amplitude * truncation.vanishing(precision)
        self._program = self._kernel.program()
        scaled = (scaled_features(leaf, self._points) for leaf in self._program.leaves)
        self._features = [[self._rounded(z) for z in pair] for pair in scaled]
        self._diagonal = self._kernel.diagonal(x1.to(torch.float64)) if x2 is None else None
        self._stored: Tensor | None = None
        if store:
            self._stored = self._evaluate_all()

    @property
    def storage(self) -> str:
        """How the entries are held."""
        return "on_the_fly" if self._stored is None else f"stored {str(self._stored.dtype).split('.')[1]}"

    def stored_bytes(self, entry_bytes: int) -> int:
        """All entries, of a square matrix too."""
        return self.shape[0] * self.shape[1] * entry_bytes

    def dropped(self) -> float:
        """As if all entries were."""
        return self.shape[1] * self._threshold

    def matmul(self, v: Tensor, extra_diagonal: Tensor | None) -> Tensor:
        """K v + extra_diagonal * v (n1, t); O(n1 n2 (D + t)) time, chunks of CHUNK_BYTES in memory."""
        # Rounded as the precision says, then widened: products are exact, and sums are in the wide format.
        wide = v.to(self.precision.vectors.dtype).to(self.precision.sums.dtype)
        result = empty_like(v, self.shape[0]).zero_()
        diagonal = self._diagonal
        if diagonal is not None and extra_diagonal is not None:
            diagonal = diagonal + extra_diagonal
        for rows in self._chunks(self._rows):
            total = self._off_diagonal(rows).to(wide.dtype) @ wide
            if diagonal is not None:
                total += diagonal[rows, None] * wide[rows]
            result[rows] = total  # rounded once, to the dtype of v
        return result

    def within(self, v: Tensor, extra_diagonal: Tensor | None) -> None:
        """A part is of whole rows, each of which needs all columns."""

    def block(self, rows: Tensor | None, columns: Tensor | None) -> Tensor:
        """Dense entries (rows, columns) as the product uses them."""
        device = self._points[0].device
        rows = torch.arange(self.shape[0], device=device) if rows is None else rows
        columns = torch.arange(self.shape[1], device=device) if columns is None else columns
        result = torch.empty(len(rows), len(columns), dtype=self.precision.vectors.dtype, device=device)
        for chunk in self._chunks(slice(0, len(rows))):
            i = rows[chunk]
            if self._stored is None:
                pairs = [(z[0][i], z[-1][columns]) for z in self._features]
                result[chunk] = self._entries(self._program, pairs, self._pairwise(i, columns))
            else:
                result[chunk] = self._stored[i][:, columns].to(result.dtype) * self._held_in(i, columns)
            if self._diagonal is not None:
                same = i[:, None] == columns
                result[chunk] = torch.where(same, self._diagonal[i, None].to(result.dtype), result[chunk])
        return result

    def bilinear_gradient(
        self, u: Tensor, v: Tensor, inputs: bool
    ) -> tuple[dict[str, Tensor], Tensor | None, Tensor | None]:
        """By autograd in two stages: in chunks down to the program's tensors, then once to the parameters.

        O(n1 n2 (D + t)) time; chunks of CHUNK_BYTES and a few tensors of the size of the points in memory.
        """
        wide_u, wide_v = u.to(torch.float64), v.to(torch.float64)

        def backend(program: Program, points: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
            pairs = [scaled_features(leaf, points) for leaf in program.leaves]
            outputs = [*(z for pair in pairs for z in pair), *_tensors(program)]
            return outputs, self._program_gradient(program, outputs, wide_u, wide_v)

        weights = self._part.only((wide_u * wide_v).sum(dim=1)) if self._diagonal is not None else None
        return parameter_gradient(self._kernel, self._points, weights, inputs, backend)

    def _program_gradient(
        self, program: Program, sources: list[Tensor], u: Tensor, v: Tensor
    ) -> list[Tensor]:
        """The gradient in scaled features and in the tensors of the program, in float64, off the diagonal."""
        width, count = len(self._points), len(self._points) * len(program.leaves)
        rounded = [*map(self._rounded, sources[:count]), *(s.to(self._dtype) for s in sources[count:])]
        leaves = [r.detach().requires_grad_(s.requires_grad) for r, s in zip(rounded, sources, strict=True)]
        pairs = [leaves[k : k + width] for k in range(0, count, width)]
        working = _with_tensors(program, leaves[count:])
        totals = [torch.zeros_like(source, requires_grad=False) for source in sources]
        active = [k for k, leaf in enumerate(leaves) if leaf.requires_grad]
        for rows in self._chunks(self._rows if active else slice(0, 0)):
            weights = (u[rows] @ v.T).to(self._dtype)
            entries = self._entries(working, [(z[0][rows], z[-1]) for z in pairs], self._pairwise(rows))
            if self._diagonal is not None:
                weights[:, rows].fill_diagonal_(0.0)
            found = pull_back([entries], [weights], [leaves[k] for k in active])
            for k, gradient in zip(active, found, strict=True):
                totals[k] += gradient
        return totals

    @property
    def _dtype(self) -> torch.dtype:
        """What entries are computed in: 16-bit precisions round what they hold, not every operation."""
        return self.precision.vectors.dtype

    def _rounded(self, z: Tensor) -> Tensor:
        """Scaled features as the precision holds them, in the dtype that computes with them."""
        return z.detach().to(self.precision.inputs.dtype).to(self._dtype)

    def _chunks(self, rows: slice) -> Iterator[slice]:
        """Slices of these rows whose temporaries fit in CHUNK_BYTES."""
        per_row = 8 * max(self.shape[1], 1) * (2 + 4 * len(self._program.leaves))
        size = max(1, CHUNK_BYTES // per_row)
        for start in range(rows.start, rows.stop, size):
            yield slice(start, min(start + size, rows.stop))

    def _entries(
        self, program: Program, pairs: Sequence[tuple[Tensor, Tensor]], units: tuple[Tensor, Tensor]
    ) -> Tensor:
        """Entries between two sets of scaled features, zero where they vanish in the format.

        Args:
            program: the kernel's.
            pairs: features of rows and columns, by leaf.
            units: of rows (n, 1) and columns (m,): what vanishes depends on the pair.
        """
        values = [leaf.between(*pair) for leaf, pair in zip(program.leaves, pairs, strict=True)]
        entries = program.evaluate(values, (len(units[0]), len(units[1]))).to(self._dtype)
        if not self._threshold:
            return entries
        return torch.where(entries.abs() > self._threshold * units[0] * units[1], entries, 0.0)

    def _pairwise(self, rows: slice | Tensor, columns: slice | Tensor = slice(None)) -> tuple[Tensor, Tensor]:
        """Relative units of rows (n, 1) and columns (m,)."""
        return self._units[0][rows, None], self._units[-1][columns]

    def _held_in(self, rows: slice | Tensor, columns: slice | Tensor = slice(None)) -> Tensor | float:
        """The units (n, m) that stored entries are in."""
        if self.precision.entries.bytes != 2:
            return 1.0
        left, right = self._pairwise(rows, columns)
        return (self._unit * left * right).to(self._dtype)

    def _off_diagonal(self, rows: slice) -> Tensor:
        """Entries (rows, n2), with zeros on the diagonal of a square matrix."""
        if self._stored is not None:
            return self._stored[rows].to(self._dtype) * self._held_in(rows)
        pairs = [(z[0][rows], z[-1]) for z in self._features]
        # Contiguous because a program without leaves gives one number seen many times.
        entries = self._entries(self._program, pairs, self._pairwise(rows)).contiguous()
        if self._diagonal is not None:
            entries[:, rows].fill_diagonal_(0.0)
        return entries

    def _evaluate_all(self) -> Tensor:
        """All entries (n1, n2) off the diagonal, in units, rounded to the format they are held in."""
        dtype = self.precision.entries.dtype
        stored = torch.empty(self.shape, dtype=dtype, device=self._points[0].device)
        for rows in self._chunks(slice(0, self.shape[0])):
            stored[rows] = self._off_diagonal(rows) / self._held_in(rows)
        return stored


def scaled_features(leaf: Leaf, points: Sequence[Tensor]) -> list[Tensor]:
    """Scaled features (n, f) of each set of points in float64, differentiable.

    Those of a stationary leaf are relative to the mean of the last set: distances do not change, and fewer
    digits are lost where they are rounded.
    """
    wide = [x.to(torch.float64) for x in points]
    centre = leaf.centre(wide[-1])
    return [leaf.scaled(x, centre) for x in wide]


def _tensors(program: Program) -> list[Tensor]:
    """What a program depends on beside its features."""
    shapes = (leaf.shape for leaf in program.leaves if leaf.shape is not None)
    return [*program.constants, program.scale, *shapes]


def _with_tensors(program: Program, tensors: Iterable[Tensor]) -> Program:
    """The program with its `_tensors` exchanged."""
    rest = iter(tensors)
    constants = tuple(next(rest) for _ in program.constants)
    scale = next(rest)
    leaves = tuple(leaf if leaf.shape is None else replace(leaf, shape=next(rest)) for leaf in program.leaves)
    return replace(program, leaves=leaves, constants=constants, scale=scale)
