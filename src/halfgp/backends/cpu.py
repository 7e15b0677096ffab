"""The CPU engine: packs the points, describes the kernel, and leaves the rest to C++."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from halfgp import _cpu
from halfgp.backends.base import empty_like
from halfgp.backends.chain_rule import parameter_gradient
from halfgp.backends.conditionals import Conditionals, Neighbourhoods
from halfgp.backends.cpu_conditionals import engine_conditionals
from halfgp.backends.cpu_grouped_factor import CpuGroupedFactor
from halfgp.backends.cpu_sparse_factor import CpuSparseFactor
from halfgp.backends.grouped_factor import GroupedRows
from halfgp.backends.part import WHOLE, Part
from halfgp.backends.paths import describe_nodes, plan_leaf
from halfgp.backends.units import relative_units
from halfgp.errors import InputError
from halfgp.kernels import Kernel
from halfgp.kernels.profiles import INNER_PRODUCT
from halfgp.kernels.program import Leaf, Program
from halfgp.nearest import NearestSearch
from halfgp.precision import BFLOAT16, HALF, SINGLE, Format, Precision
from halfgp.truncation import EXACT, Truncation

STORED = {HALF: _cpu.Stored.float16, BFLOAT16: _cpu.Stored.bfloat16}  # by the format of entries
RUN = _cpu.BLOCK  # products that are added in single; sums of more are in double
FORCED = "HALFGP_INSTRUCTION_SET"  # in the environment: what serves where no caller names one


def instruction_sets() -> list[str]:
    """What this machine and this build can run, the best last."""
    return _cpu.instruction_sets()


def chosen_instruction_set(named: str | None = None) -> str:
    """The one named by the caller, or else by the environment, or else the best."""
    names, forced = instruction_sets(), os.environ.get(FORCED)
    chosen = named or forced or names[-1]
    if chosen not in names:
        argument = "instruction_set" if named else FORCED
        raise InputError(f"`{argument}` must be one of {names} on this machine; got {chosen!r}.")
    return chosen


def peak_multiply_adds(
    instruction_set: str | None = None, threads: int | None = None, seconds: float = 0.2
) -> float:
    """Single-precision multiply-adds per second of that many threads at once, measured."""
    name = chosen_instruction_set(instruction_set)
    rates: list[float] = []
    workers = [
        threading.Thread(target=lambda: rates.append(_cpu.peak_multiply_adds(name, seconds)))
        for _ in range(threads or torch.get_num_threads())
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(rates)


@dataclass(frozen=True)
class CpuBackend:
    """The compiled engine.

    Attributes:
        instruction_set: one of `instruction_sets()`; None for that of HALFGP_INSTRUCTION_SET, or the best.
    """

    instruction_set: str | None = None
    name: str = "cpu"

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
    ) -> CpuMatrix:
        """Pack the points, O(n d log n); if `store`, also evaluate and round the entries, O(n1 n2 d)."""
        chosen = chosen_instruction_set(self.instruction_set)
        if precision.entries is not precision.vectors and not (
            precision.vectors is SINGLE and precision.entries in STORED
        ):
            raise InputError(
                f"The CPU backend holds entries in the format of the vectors, {precision.vectors.name}, or in"
                f" 16 bits beside single vectors; got {precision.entries.name}. Use a named precision."
            )
        return CpuMatrix(kernel, x1, x2, precision, store, threads, chosen, truncation, part)

    def conditionals(
        self,
        kernel: Kernel,
        of: Neighbourhoods,
        *,
        precision: Precision,
        threads: int | None,
        gradient: bool = False,
    ) -> Conditionals:
        """In the engine, a lane for each row; O(r k² (k + f)) time, invariant to the number of threads."""
        return engine_conditionals(
            kernel,
            of,
            chosen_instruction_set(self.instruction_set),
            precision.vectors is SINGLE,
            threads or torch.get_num_threads(),
            gradient,
        )

    def nearest(self, search: NearestSearch, k: int, *, threads: int | None) -> Tensor:
        """By a tree of boxes: in few dimensions most of them are passed by, in many all are looked at."""
        found = torch.empty(len(search.queries), k, dtype=torch.long)
        positions = None if search.positions is None else search.positions.contiguous()
        _cpu.nearest(
            chosen_instruction_set(self.instruction_set),
            search.points.contiguous(),
            positions,
            search.queries.contiguous(),
            search.own.contiguous(),
            found,
            threads or torch.get_num_threads(),
        )
        return found

    def sparse_factor(self, columns: Tensor, entries: Tensor, *, threads: int | None) -> CpuSparseFactor:
        """Held by rows and by columns."""
        return CpuSparseFactor(columns, entries, threads or torch.get_num_threads())

    def grouped_factor(
        self, kernel: Kernel, of: GroupedRows, *, entries_in: Format, threads: int | None
    ) -> CpuGroupedFactor:
        """Threads take groups in turn; invariant to their number."""
        chosen = chosen_instruction_set(self.instruction_set)
        return CpuGroupedFactor(kernel, of, entries_in.dtype, chosen, threads or torch.get_num_threads())


BACKEND = CpuBackend()


class CpuMatrix:
    """A kernel bound to packed points.

    Sums are in float32 (float64 in "double") within a block of columns and in float64 across blocks. For one
    instruction set results depend neither on the number of threads nor on the zeros that are skipped.
    """

    def __init__(
        self,
        kernel: Kernel,
        x1: Tensor,
        x2: Tensor | None,
        precision: Precision,
        store: bool,
        threads: int | None,
        instruction_set: str,
        truncation: Truncation,
        part: Part,
    ) -> None:
        self.shape = (len(x1), len(x1 if x2 is None else x2))
        self.precision = precision
        self.instruction_set = instruction_set
        self._kernel = kernel.detached()
        self._points = (x1,) if x2 is None else (x1, x2)
        self._threads = threads
        self._part = part
        # Rows that others hold too are no reason to do anything by itself.
        self._held = None if part.order is None or part.is_whole else part.order[part.of(len(x1))]
        self._program = self._kernel.program()
        self._single = precision.vectors is SINGLE
        self._vanishing = truncation.vanishing(precision)
        self._asked: tuple[Tensor, _cpu.Points] | None = None  # columns of the last block, packed
        self._describe()
        self._matrix = self._bind(*self._sides) if x2 is not None else self._bind(self._sides[0], None)
        self._diagonal = self._kernel.diagonal(x1.double()) if x2 is None else torch.empty(0).double()
        self._matrix.choose_tiles(truncation.skip, part.index, part.count, self.threads)
        self.skipped = self._matrix.share_skipped
        self.storage = "on_the_fly"
        if store:
            self._matrix.store(STORED.get(precision.entries, _cpu.Stored.native), self.threads)
            self.storage = f"stored {str(precision.entries.dtype).split('.')[1]}"

    @property
    def threads(self) -> int:
        """How many work at a product."""
        return self._threads or torch.get_num_threads()

    def stored_bytes(self, entry_bytes: int) -> int:
        """Whole tiles of its part that are not zero, of a square matrix on and above the diagonal only."""
        return self._matrix.tiles * _cpu.BLOCK**2 * entry_bytes

    def dropped(self) -> float:
        """By the distances of blocks: O(n1 n2 / BLOCK²) time."""
        return self._matrix.dropped(self.threads) * abs(self._scale)

    def matmul(self, v: Tensor, extra_diagonal: Tensor | None) -> Tensor:
        """K v + extra_diagonal * v, O(n1 n2 (f + t)) time; beside the result, float64 sums (n1, t)."""
        diagonal = None
        if self._held is None:
            diagonal = self._part.only(self._with(extra_diagonal, slice(None)))
        return self._in_units(self._matrix.product, v, diagonal, slice(None))

    def within(self, v: Tensor, extra_diagonal: Tensor | None) -> Tensor | None:
        """By tiles of the rows that are held, and their diagonal; O(m² (f + t)) time at most."""
        if self._held is None:
            return None
        diagonal = self._with(extra_diagonal, self._held)
        return self._in_units(self._matrix.product_within, v, diagonal, self._held)

    def _with(self, extra: Tensor | None, rows: Tensor | slice) -> Tensor:
        """The diagonal of some rows, with what is added to it."""
        return self._diagonal[rows] if extra is None else self._diagonal[rows] + extra[rows]

    def _in_units(
        self, product: Callable[..., None], v: Tensor, diagonal: Tensor | None, some: Tensor | slice
    ) -> Tensor:
        """A product of the engine's with v, and with a diagonal, whose points are all or some."""
        out = empty_like(v, self.shape[0] if isinstance(some, slice) else len(v))
        if self._units is None:
            product(v, diagonal, out, self.threads)
            return out
        rows, columns = self._units[0][some], self._units[-1][some]
        if diagonal is not None and len(diagonal):
            diagonal = diagonal / rows.square()
        product((v * columns[:, None]).to(v.dtype), diagonal, out, self.threads)
        return out.mul_(rows[:, None])

    def block(self, rows: Tensor | None, columns: Tensor | None) -> Tensor:
        """Dense entries (rows, columns) as the product uses them."""
        n, m = (self.shape[k] if i is None else len(i) for k, i in enumerate((rows, columns)))
        out = torch.empty(n, m, dtype=self.precision.vectors.dtype)
        self._bind(self._side(0, rows), self._side(-1, columns)).block(out, self.threads)
        if self.storage != "on_the_fly":
            out = out.to(self.precision.entries.dtype).to(out.dtype)  # as they were stored
        out *= self._scale
        if self._units is not None:
            left, right = self._units[0], self._units[-1]
            out *= (left if rows is None else left[rows])[:, None]
            out *= right if columns is None else right[columns]
        if len(self._points) == 1:
            i = torch.arange(n) if rows is None else rows
            at, j = (torch.arange(n), i) if columns is None else (i[:, None] == columns).nonzero().unbind(1)
            out[at, j] = self._diagonal[i[at]].to(out.dtype)
        return out

    def bilinear_gradient(
        self, u: Tensor, v: Tensor, inputs: bool
    ) -> tuple[dict[str, Tensor], Tensor | None, Tensor | None]:
        """One fused pass to the program's tensors, then the chain rule; as much as two or three products."""
        weights = self._part.only((u.double() * v).sum(dim=1)) if len(self._points) == 1 else None
        if self._units is not None:
            u = (u * self._units[0][:, None]).to(u.dtype)
            v = (v * self._units[-1][:, None]).to(v.dtype)
        return parameter_gradient(
            self._kernel,
            self._points,
            weights,
            inputs,
            lambda program, points: self._program_gradient(program, points, u, v, inputs),
        )

    def _program_gradient(
        self, program: Program, points: list[Tensor], u: Tensor, v: Tensor, inputs: bool
    ) -> tuple[list[Tensor], list[Tensor]]:
        """The program's tensors and the gradient in each, off the diagonal, in float64."""
        features = [
            [leaf.features(x) for x in points] if inputs or leaf.feature_parameters else []
            for leaf in program.leaves
        ]
        tables = [[torch.zeros_like(f, requires_grad=False) for f in pair] for pair in features]
        others: list[list[Tensor]] = [[] for _ in self._leaves[len(tables) :]]
        root, constants, shapes, scales = self._matrix.gradient(
            u,
            v,
            [table[0] if table else None for table in tables + others],
            [table[1] if len(table) == 2 else None for table in tables + others],
            self.threads,
        )
        outputs = [program.scale, *program.constants]
        gradients = [
            _float64(root * self._normalisation),
            *map(_float64, constants[: len(program.constants)]),
        ]
        for k, leaf in enumerate(program.leaves):
            outputs.append(leaf.scales)
            gradients.append(_float64(scales[k]) / leaf.scales.detach())  # the engine's is by the logarithm
            if leaf.shape is not None:
                outputs.append(leaf.shape)
                gradients.append(_float64(shapes[k]))
            outputs += features[k]
            gradients += [table * leaf.scales.detach() for table in tables[k]]
        return outputs, gradients

    def _describe(self) -> None:
        """Plan every leaf, put the program into the extension's terms, and pack the points.

        A 16-bit format sees covariances divided by the amplitude, unless they are one stationary leaf, whose
        amplitude is 1: then neither overflows, and what is negligible is zero. Where variances differ, they
        are also divided by the units of both points, which a linear leaf of one feature does; so they are in
        any format that takes small covariances for zero.
        """
        program, precision = self._program, self.precision
        self._leaves = list(program.leaves)
        self._units: list[Tensor] | None = None
        sixteen_bit = precision.is_sixteen_bit or precision.entries in STORED
        if (sixteen_bit or self._vanishing > 0.0) and not all(leaf.is_stationary for leaf in program.leaves):
            units = relative_units(self._kernel, self._points)
            if any(bool((w != 1.0).any()) for w in units):
                self._units = units
                self._leaves.append(Leaf(INNER_PRODUCT, lambda x: x, torch.ones(1, dtype=torch.float64)))
        sides = [self._scaled(side, None) for side in range(len(self._points))]
        alone = [node.kind for node in program.nodes] == ["leaf"] and program.leaves[0].is_stationary
        in_leaf = self._vanishing if alone else 0.0
        fixed_point = _cpu.has_fixed_point(self.instruction_set)
        self._plans = [
            plan_leaf(leaf, z, precision, fixed_point=fixed_point, vanishing=in_leaf)
            for leaf, z in zip(self._leaves, zip(*sides, strict=True), strict=True)
        ]
        nodes = describe_nodes(program)
        constants = [constant.item() for constant in program.constants]
        self._normalisation, negligible = 1.0, 0.0
        if not alone and (sixteen_bit or self._vanishing > 0.0):
            largest = self._kernel.amplitude(*self._points).item() / program.scale.item()
            negligible = self._vanishing * largest
        if not alone and (sixteen_bit or self._units is not None):
            self._normalisation, negligible = largest, self._vanishing
            constants.append(1.0 / self._normalisation)
            nodes.append(_cpu.Node(_cpu.NodeKind.constant, len(constants) - 1))
            nodes.append(_cpu.Node(_cpu.NodeKind.multiply, len(nodes) - 2, len(nodes) - 1))
        if self._units is not None:
            nodes.append(_cpu.Node(_cpu.NodeKind.leaf, len(self._leaves) - 1))
            nodes.append(_cpu.Node(_cpu.NodeKind.multiply, len(nodes) - 2, len(nodes) - 1))
        self._scale = program.scale.item() * self._normalisation
        leaves = [plan.describe(leaf) for plan, leaf in zip(self._plans, self._leaves, strict=True)]
        self._description = _cpu.Program(leaves, nodes, constants, self._scale, negligible)
        self._sides = [self._pack(z, len(x), self._part) for z, x in zip(sides, self._points, strict=True)]

    def _pack(self, scaled: list[Tensor], count: int, part: Part = WHOLE) -> _cpu.Points:
        """Points in the engine's layout, those that every leaf finds near its centre first.

        Where parts hold rows no block has any of two: tiles of those of one need nobody else.
        """
        near = functools.reduce(
            torch.logical_and,
            (plan.near(z) for plan, z in zip(self._plans, scaled, strict=True)),
            torch.ones(count, dtype=torch.bool),
        )
        runs = 1 if part.order is None else part.count
        return _cpu.pack(self._description, self._single, near.to(torch.uint8), scaled, part.order, runs)

    def _side(self, side: int, indices: Tensor | None) -> _cpu.Points:
        """The points of one side, or some of them, on the same plans."""
        if indices is None:
            return self._sides[side]
        # A rank asks for row after row of a preconditioner, always in the columns that are its own.
        if side == -1 and self._asked is not None and torch.equal(self._asked[0], indices):
            return self._asked[1]
        packed = self._pack(self._scaled(side, indices), len(indices))
        if side == -1:
            self._asked = indices.clone(), packed  # which the caller may change in place
        return packed

    def _scaled(self, side: int, indices: Tensor | None) -> list[Tensor]:
        """Scaled features (n, f) of one side, or of some of its points, by leaf, float64 and contiguous."""
        points = self._points[side] if indices is None else self._points[side][indices]
        scaled = [leaf.coordinates(points) for leaf in self._program.leaves]
        if self._units is not None:
            units = self._units[side] if indices is None else self._units[side][indices]
            scaled.append((1.0 / units)[:, None])
        return scaled

    def _bind(self, rows: _cpu.Points, columns: _cpu.Points | None) -> _cpu.Matrix:
        return _cpu.Matrix(self.instruction_set, self._single, self._description, rows, columns)


def _float64(value: float | list[float]) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)
