"""A kernel matrix on a GPU: points packed once, products and gradients by kernels, the rest in torch."""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager

import torch
from torch import Tensor

from halfgp.backends.base import empty_like
from halfgp.backends.chain_rule import parameter_gradient
from halfgp.backends.part import WHOLE, Part
from halfgp.backends.triton.box_order import pays
from halfgp.backends.triton.description import describe, factor_of, numbers_of, reach_of
from halfgp.backends.triton.gradient import Gradients
from halfgp.backends.triton.live_tiles import LiveTiles
from halfgp.backends.triton.points import Packed, pack
from halfgp.backends.triton.product import Products, Terms
from halfgp.backends.triton.support import Support
from halfgp.backends.triton.tiles import INTERPRETED
from halfgp.backends.triton.vectors import MOST_COLUMNS, pack_vectors, peak_units
from halfgp.backends.units import relative_units
from halfgp.kernels import Kernel
from halfgp.precision import BFLOAT16, HALF, SINGLE, Precision
from halfgp.truncation import EXACT, Truncation

# Two numbers of half have 22 digits, and three of bfloat16 all 24 of single.
TERMS = {HALF: Terms(2, 2, 2), BFLOAT16: Terms(2, 3, 3), SINGLE: Terms(1, 1, 1)}
FAST_TERMS = {HALF: Terms(2, 1, 2), BFLOAT16: Terms(2, 1, 2), SINGLE: Terms(1, 1, 1)}


class TritonMatrix:
    """A kernel matrix whose entries are computed where they are used.

    A 16-bit format sees covariances divided by the amplitude, unless they are one stationary leaf, whose
    amplitude is 1: so what the format rounds to zero is zero. Where variances differ, they are also divided
    by the units of both points.
    """

    storage = "on_the_fly"

    def __init__(
        self,
        kernel: Kernel,
        x1: Tensor,
        x2: Tensor | None,
        precision: Precision,
        truncation: Truncation,
        fast: bool,
        part: Part = WHOLE,
    ) -> None:
        self.shape = (len(x1), len(x1 if x2 is None else x2))
        self.precision = precision
        self._part = part
        self._format = precision.inputs if precision.is_sixteen_bit else SINGLE
        self._terms = (FAST_TERMS if fast else TERMS)[self._format]
        self._kernel = kernel.detached()
        self._points = (x1,) if x2 is None else (x1, x2)
        self._program = self._kernel.program()
        self._diagonal = self._kernel.diagonal(x1.double()) if x2 is None else None
        self._describe(truncation)

    @property
    def skipped(self) -> float:
        """The share of entries in tiles that are passed by, in products and in gradients."""
        return 0.0 if self._live is None else self._live.skipped

    def stored_bytes(self, entry_bytes: int) -> int:
        """All entries, of a square matrix too."""
        return self.shape[0] * self.shape[1] * entry_bytes

    def dropped(self) -> float:
        """As if all entries were."""
        return self.shape[1] * self._threshold

    def matmul(self, v: Tensor, extra_diagonal: Tensor | None) -> Tensor:
        """K v + extra_diagonal * v; O(n1 n2 (f + t)) time, and a few numbers for each of v in memory."""
        out = empty_like(v, self.shape[0])
        wide = v.double()
        with self._device():
            for first in range(0, v.shape[1] if self.shape[0] else 0, MOST_COLUMNS):
                some = slice(first, first + MOST_COLUMNS)
                out[:, some] = self._off_diagonal(wide[:, some])
        if self._diagonal is not None:
            diagonal = self._diagonal if extra_diagonal is None else self._diagonal + extra_diagonal
            out += self._part.only(diagonal)[:, None] * wide
        return out

    def within(self, v: Tensor, extra_diagonal: Tensor | None) -> None:
        """A part is of whole rows of tiles, each of which needs all columns."""

    def block(self, rows: Tensor | None, columns: Tensor | None) -> Tensor:
        """Dense entries (rows, columns), their distances by differences, rounded as in products."""
        left, right = self._sides[0].taken(rows), self._sides[-1].taken(columns)
        products = self._launched(left, right, range(left.total), square=False)
        n, m = len(left.place), len(right.place)
        with self._device():
            out = products.block()[:n, :m].double() * self._scale
        i = torch.arange(n, device=out.device) if rows is None else rows
        j = torch.arange(m, device=out.device) if columns is None else columns
        out *= self._units[0][i, None] * self._units[-1][j]
        if self._diagonal is not None:
            out = torch.where(i[:, None] == j, self._diagonal[i, None], out)
        return out.to(self.precision.vectors.dtype)

    def bilinear_gradient(
        self, u: Tensor, v: Tensor, inputs: bool
    ) -> tuple[dict[str, Tensor], Tensor | None, Tensor | None]:
        """One fused pass, by differences in float32; with the gradient in two sets of points two passes."""
        wide_u, wide_v = u.double(), v.double()
        weights = self._part.only((wide_u * wide_v).sum(dim=1)) if self._diagonal is not None else None
        left, right = self._sides[0], self._sides[-1]
        gradients = Gradients(
            self._form,
            self._numbers,
            left,
            right,
            self._rows,
            self._format,
            self._terms.vectors,
            self._live,
        )
        with self._device():
            return parameter_gradient(
                self._kernel,
                self._points,
                weights,
                inputs,
                lambda program, points: gradients.by_program(program, points, wide_u, wide_v, inputs),
            )

    def _device(self) -> AbstractContextManager[None]:
        """While it is entered, the device of the points is torch's current one, to which launches go."""
        # Which does nothing where that is no GPU.
        return torch.cuda.device_of(self._numbers)  # type: ignore[no-untyped-call]

    def _off_diagonal(self, v: Tensor) -> Tensor:
        """The product without the diagonal, in float64."""
        columns = self._sides[-1]
        v = v * self._units[-1][:, None]
        peaks = peak_units(v, self._format)
        vectors = pack_vectors(v / peaks, columns, self._format, self._terms.vectors)
        square = len(self._points) == 1
        products = self._launched(self._sides[0], columns, self._rows, square, self._live)
        sums = products.multiply(vectors)[self._sides[0].place, : v.shape[1]]
        return sums * (peaks * self._scale) * self._units[0][:, None]

    def _launched(
        self, left: Packed, right: Packed, rows: range, square: bool, live: LiveTiles | None = None
    ) -> Products:
        dtype = self._format.dtype
        return Products(self._form, self._numbers, left, right, square, rows, self._terms, dtype, live)

    def _describe(self, truncation: Truncation) -> None:
        """Put the program into the terms of the kernels, pack the points, and find tiles of zeros."""
        program, sixteen_bit = self._program, self.precision.is_sixteen_bit
        leaves = program.leaves
        alone = len(program.nodes) == 1 and program.nodes[0].kind == "leaf" and leaves[0].is_stationary
        self._scale, normalisation = program.scale.item(), None
        self._units = [torch.ones(len(x), dtype=torch.float64, device=x.device) for x in self._points]
        amplitude = self._kernel.amplitude(*self._points).item()
        self._threshold = amplitude * truncation.vanishing(self.precision)
        vanishing = truncation.vanishing(self.precision)
        cut = vanishing > 0.0
        if cut and not alone:
            normalisation, self._scale = self._scale / amplitude, amplitude
            if not all(leaf.is_stationary for leaf in leaves):
                self._units = relative_units(self._kernel, self._points)
        # Below the normal range the interpreter's numbers of bfloat16 are others than a device's.
        rounds_wrongly = INTERPRETED and self._format is BFLOAT16
        psi = self._features()
        self._form = describe(
            program,
            [z.shape[1] for z in psi[0]],
            expand=sixteen_bit,
            normalised=normalisation is not None,
            cut=cut,
            rounded=vanishing == EXACT.vanishing(self.precision) and not rounds_wrongly,
            units=any(bool((w != 1.0).any()) for w in self._units),
        )
        numbers = numbers_of(program, normalisation, vanishing if cut else None)
        self._numbers = torch.tensor(  # of which a pointer to none would be none
            numbers or (0.0,), dtype=torch.float32, device=self._points[0].device
        )
        support = Support(self._form, numbers, vanishing, self._format)
        apart = support.is_bounded and not support.reaches_everywhere(psi)
        self._sides = [
            pack(
                self._form,
                z,
                self._near(z, len(w)),
                w,
                self._format.dtype,
                self._terms.points,
                ordered=apart and pays(self.shape, square=len(psi) == 1),
            )
            for z, w in zip(psi, self._units, strict=True)
        ]
        left, right = self._sides[0], self._sides[-1]
        self._live = LiveTiles.find(support, left, right, self._part) if apart and truncation.skip else None
        self._rows = left.share(self._part) if self._live is None else self._live.rows

    def _features(self) -> list[list[Tensor]]:
        """Psi (n, f) in float64, by side and leaf, of a stationary leaf relative to the columns' mean."""
        wide = [x.double() for x in self._points]
        centres = [leaf.centre(wide[-1]) for leaf in self._program.leaves]
        return [
            [
                leaf.scaled(x, centre) * factor_of(leaf)
                for leaf, centre in zip(self._program.leaves, centres, strict=True)
            ]
            for x in wide
        ]

    def _near(self, psi: list[Tensor], n: int) -> Tensor:
        """Which points (n,) are near enough to the centre for the expansion, of every leaf that takes it."""
        near = [
            torch.linalg.vector_norm(z, dim=1) <= reach_of(leaf, self._format.unit_roundoff)
            for leaf, form, z in zip(self._program.leaves, self._form.leaves, psi, strict=True)
            if form.expanded
        ]
        everywhere = torch.ones(n, dtype=torch.bool, device=self._numbers.device)
        return functools.reduce(torch.logical_and, near, everywhere)
