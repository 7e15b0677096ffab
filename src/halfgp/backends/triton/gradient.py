"""What a gradient pass sums up, and how the sums become the gradient in a program's tensors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from halfgp.backends.triton.description import Form, factor_of, siblings
from halfgp.backends.triton.gradient_kernel import gradient_kernel
from halfgp.backends.triton.live_tiles import LiveTiles
from halfgp.backends.triton.points import PADDING, Packed
from halfgp.backends.triton.runs import PARTIAL_BYTES, RUN, Region, Runs, add_runs
from halfgp.backends.triton.tiles import CHOICES, Tile, gradient_tiles, launch_time, tile_key
from halfgp.backends.triton.vectors import MOST_COLUMNS, pack_vectors, peak_units
from halfgp.kernels.program import Leaf, Program
from halfgp.precision import Format

TUNING_TILES = 16  # rows of tiles that a tile size is timed on


class LeafSums(NamedTuple):
    """Which sums are those of a leaf; A is the derivative in q, d the difference of psi.

    Attributes:
        scales: the first of Σ A d² for each feature, or if `shared` the only one, Σ A q.
        shared: whether one scale serves all features.
        points: the first of Σ A d for each feature, or -1.
        shape: that of the derivative in the shape, or -1.
        siblings: see `description.siblings`.
    """

    scales: int
    shared: bool
    points: int
    shape: int
    siblings: tuple[int, ...]


class Sums(NamedTuple):
    """The sums of a pass: first that of the form itself, then one for each constant, then those of leaves.

    Attributes:
        number: how many there are.
        constants: siblings of each.
        leaves: those of each.
    """

    number: int
    constants: tuple[tuple[int, ...], ...]
    leaves: tuple[LeafSums, ...]


def sums_of(form: Form, program: Program, inputs: bool) -> Sums:
    """All that the gradient needs; in the points too if `inputs`."""
    constants = tuple(siblings(form, k) for k, node in enumerate(form.nodes) if node.kind == "constant")
    count = 1 + len(constants)
    leaves = []
    for k, (leaf, leaf_form) in enumerate(zip(program.leaves, form.leaves, strict=True)):
        node = next(n for n, node in enumerate(form.nodes) if node.kind == "leaf" and node.a == k)
        shared = len(leaf.scales) == 1
        scales, count = count, count + (1 if shared else leaf_form.features)
        points, shape = -1, -1
        if inputs or leaf.feature_parameters:
            points, count = count, count + leaf_form.features
        if leaf.shape is not None:
            shape, count = count, count + 1
        leaves.append(LeafSums(scales, shared, points, shape, siblings(form, node)))
    return Sums(count, constants, tuple(leaves))


@dataclass(frozen=True)
class Gradients:
    """What is launched for the gradient of one matrix.

    Attributes:
        form: of the program.
        numbers: of the program.
        left: the rows.
        right: the columns; the same object where the matrix is square.
        rows: places of the rows whose terms are added up.
        format: of the vectors, as they meet.
        terms: how many numbers each of the vectors is the sum of.
        live: the tiles that are looked at; None for all.
    """

    form: Form
    numbers: Tensor
    left: Packed
    right: Packed
    rows: range
    format: Format
    terms: int
    live: LiveTiles | None = None

    @property
    def square(self) -> bool:
        """Whether rows and columns are the same points."""
        return self.left is self.right

    def by_program(
        self, program: Program, points: list[Tensor], u: Tensor, v: Tensor, inputs: bool
    ) -> tuple[list[Tensor], list[Tensor]]:
        """The program's tensors and the gradient in each, off the diagonal, in float64."""
        sums = sums_of(self.form, program, inputs)
        needs_points = any(leaf.points >= 0 for leaf in sums.leaves)
        scaled = u * program.scale.item()
        if self.square and needs_points:
            # Both u v' and v u', so that a row has what it is due as a column; each counts half elsewhere.
            totals, rows = self._pass(sums, torch.cat([scaled, v], 1), torch.cat([v, scaled], 1))
            totals = [0.5 * total for total in totals]
            sides = [rows]
        else:
            totals, rows = self._pass(sums, scaled, v)
            sides = [rows]
            if needs_points:
                sides.append(self._turned()._pass(sums, v, scaled)[1])
        return self._in_tensors(program, points, sums, [t.to(program.scale.device) for t in totals], sides)

    def _turned(self) -> Gradients:
        """Those of the transposed matrix, which is no part of one."""
        live = None if self.live is None else self.live.turned()
        return replace(self, left=self.right, right=self.left, rows=range(self.right.total), live=live)

    def _in_tensors(
        self,
        program: Program,
        points: list[Tensor],
        sums: Sums,
        totals: list[Tensor],
        sides: list[list[Tensor | None]],
    ) -> tuple[list[Tensor], list[Tensor]]:
        outputs = [program.scale, *program.constants]
        gradients = [totals[0] / program.scale.detach(), *totals[1 : 1 + len(program.constants)]]
        for k, (leaf, leaf_sums) in enumerate(zip(program.leaves, sums.leaves, strict=True)):
            outputs.append(leaf.scales)
            features = 1 if leaf_sums.shared else self.form.leaves[k].features
            own = torch.stack(totals[leaf_sums.scales : leaf_sums.scales + features])
            gradients.append(own * _by_logarithm(leaf, leaf_sums.shared) / leaf.scales.detach())
            if leaf.shape is not None:
                outputs.append(leaf.shape)
                gradients.append(totals[leaf_sums.shape])
            if leaf_sums.points >= 0:
                sign = -factor_of(leaf) if leaf.is_stationary else 1.0
                for x, side in zip(points, sides, strict=True):
                    moved = side[k]
                    assert moved is not None
                    outputs.append(leaf.features(x))
                    gradients.append(moved * (sign * leaf.scales.detach()).to(moved))
        return outputs, gradients

    def _pass(self, sums: Sums, u: Tensor, v: Tensor) -> tuple[list[Tensor], list[Tensor | None]]:
        """Every sum over all entries, and for each leaf Σ A d (n, f) of the rows where it is wanted."""
        rows: list[Tensor | None] = [None for _ in sums.leaves]
        totals = u.new_zeros(sums.number)
        places = u.new_zeros(sum(_wanted(sums, self.form)), self.left.total)
        for first in range(0, u.shape[1], MOST_COLUMNS):
            some = slice(first, first + MOST_COLUMNS)
            for region, found in self._launches(sums, *self._weighted(u[:, some], v[:, some])):
                totals += found.sum(dim=1)
                wanted = [
                    found[leaf.points : leaf.points + count]
                    for leaf, count in zip(sums.leaves, _wanted(sums, self.form), strict=True)
                    if count
                ]
                if wanted:
                    span = slice(region.rows.start, region.rows.stop)
                    places[:, span] += torch.cat(wanted)
        first = 0
        for k, count in enumerate(_wanted(sums, self.form)):
            if count:
                rows[k] = places[first : first + count, self.left.place].T
            first += count
        return list(totals.unbind()), rows

    def _weighted(self, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Both packed, and the power of two that u v' is in units of."""
        by_column = peak_units(v, self.format)
        right = pack_vectors(v / by_column, self.right, self.format, self.terms)
        u = u * by_column
        unit = peak_units(u, self.format).amax() if u.shape[1] else by_column.new_ones(())
        return pack_vectors(u / unit, self.left, self.format, self.terms), right, unit

    def _launches(self, sums: Sums, us: Tensor, vs: Tensor, unit: Tensor) -> Iterator[tuple[Region, Tensor]]:
        """Sums (sums, rows), float64, of one batch of rows after the other."""
        most = max(PARTIAL_BYTES // (4 * sums.number) // PADDING, 1) * PADDING
        for start in range(0, len(self.rows), most):
            rows = self.rows[start : start + most]
            region = Region(rows, range(self.right.total), True)
            tile = self._tile(sums, region, us, vs)
            found = us.new_zeros(sums.number, len(rows), dtype=torch.float64)
            for runs in Runs.of(region, tile, self.live).batches(found.numel()):
                add_runs(found, self._launch(sums, region, tile, us, vs, runs))
            yield region, found * unit

    def _tile(self, sums: Sums, region: Region, us: Tensor, vs: Tensor) -> Tile:
        candidates = gradient_tiles(self.form)
        if len(candidates) == 1:
            return candidates[0]
        sample = Region(region.rows[: TUNING_TILES * PADDING], region.columns[:RUN], True)

        def milliseconds(tile: Tile) -> float:
            runs = Runs(sample.columns, len(sample.columns), 1)
            return launch_time(lambda: self._launch(sums, sample, tile, us, vs, runs))

        form = (self.form, sums, self.terms, self.square, us.shape[2], self.format.name)
        key = tile_key(us.device, sample.rows, sample.columns, "gradient", *form)
        return CHOICES.best(key, candidates, milliseconds)

    def _launch(self, sums: Sums, region: Region, tile: Tile, us: Tensor, vs: Tensor, runs: Runs) -> Tensor:
        """Sums (runs, sums, rows) in float32."""
        height = len(region.rows)
        out = torch.zeros(runs.count, sums.number, height, device=us.device)
        gradient_kernel[(height // tile.rows, runs.count)](
            self.left.side,
            self.right.side,
            self.numbers,
            us,
            vs,
            out,
            *runs.arguments(self.numbers),
            region.rows.start,
            height,
            FORM=self.form,
            SUMS=sums,
            TERMS=self.terms,
            SQUARE=self.square,
            LISTED=runs.listed,
            I=tile.rows,
            J=tile.columns,
            T=us.shape[2],
            num_warps=tile.warps,
            enable_fp_fusion=True,
        )
        return out


def _wanted(sums: Sums, form: Form) -> list[int]:
    """How many features of each leaf have sums by row."""
    return [
        leaf_form.features if leaf.points >= 0 else 0
        for leaf, leaf_form in zip(sums.leaves, form.leaves, strict=True)
    ]


def _by_logarithm(leaf: Leaf, shared: bool) -> float:
    """What a sum of `LeafSums.scales` is multiplied by for the gradient in the logarithm of a scale."""
    if not leaf.is_stationary:
        return 2.0
    return 2.0 if shared else -1.0  # q = -d²/2 goes with the square of the scale
