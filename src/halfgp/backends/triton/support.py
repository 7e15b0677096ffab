"""How large entries between two boxes can be, as the kernels compute them, rounding included."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from halfgp.backends.triton.boxes import Boxes, LeafBoxes
from halfgp.backends.triton.description import Form, LeafForm
from halfgp.errors import BackendError
from halfgp.precision import SINGLE, Format

# Relative errors of what follows a squared distance (roots, logarithms, powers, sums and products) are below
# so many units of the last place.
SLACK = 64 * SINGLE.eps
# What is below the normal range is off by as much; an approximate power below its half is zero for sure.
LEAST = SINGLE.smallest_subnormal
LEAST_EXPONENT = SINGLE.vanishing_exponent - 1


@dataclass(frozen=True)
class Support:
    """Where entries of a program are zero.

    Attributes:
        form: of the program.
        numbers: of the program.
        vanishing: entries of at most this, in units, are zero; 0 where only those below the range of single.
        format: of the points' parts.
    """

    form: Form
    numbers: Sequence[float]
    vanishing: float
    format: Format

    @property
    def is_bounded(self) -> bool:
        """Whether distance alone makes entries vanish: not where a constant or an inner product is alone."""
        zero = torch.zeros((), dtype=torch.float64)
        values = [zero + (leaf.profile == "linear") for leaf in self.form.leaves]
        stationary = any(leaf.profile != "linear" for leaf in self.form.leaves)
        return stationary and self._root(values, zero + 1.0).item() == 0.0

    def reaches_everywhere(self, psi: Sequence[Sequence[Tensor]]) -> bool:
        """Whether no two boxes can be apart, by the box around all points: psi (n, f) by side and leaf."""
        if not all(len(z) for side in psi for z in side):
            return True
        values = []
        for k, leaf in enumerate(self.form.leaves):
            rows, columns = psi[0][k], psi[-1][k]
            across = torch.maximum(rows.amax(0) - columns.amin(0), columns.amax(0) - rows.amin(0))
            if leaf.profile == "linear":
                values.append(across.new_full((), LEAST))
            else:
                values.append(self._covariance(leaf, across.square().sum(), across.new_zeros(())))
        return not bool(self._is_zero(self._root(values, psi[0][0].new_ones(()))))

    def apart(self, rows: Boxes, columns: Boxes) -> Tensor:
        """Which pairs of tiles (r, c) have zeros alone, in products and in gradients."""
        near = rows.near[:, None] & columns.near
        values = []
        for leaf, a, b in zip(self.form.leaves, rows.leaves, columns.leaves, strict=True):
            if leaf.profile == "linear":
                values.append(_inner_product(leaf, a, b))
            else:
                squares = torch.where(near, a.squares[:, None] + b.squares, 0.0)
                values.append(self._covariance(leaf, _squared_distance(a, b), squares))
        return self._is_zero(self._root(values, rows.units[:, None] * columns.units))

    def _is_zero(self, bound: Tensor) -> Tensor:
        return bound <= self.vanishing * (1.0 - SLACK)

    def _root(self, leaves: Sequence[Tensor], units: Tensor) -> Tensor:
        """A bound of entries, in units, from bounds of leaves: what `entries` does, node by node."""
        values: list[Tensor] = []
        for node in self.form.nodes:
            if node.kind == "leaf":
                values.append(leaves[node.a])
            elif node.kind == "constant":
                values.append(units.new_full((), abs(self.numbers[node.a])))
            elif node.kind == "add":
                values.append((values[node.a] + values[node.b]) * (1.0 + SLACK))
            else:
                values.append(_grown(values[node.a] * values[node.b]))
        root = values[-1]
        if self.form.normalised:
            root = _grown(root * self.numbers[self.form.numbers - 1 - self.form.cut])
        return _grown(root * units) if self.form.units else root

    def _covariance(self, leaf: LeafForm, squared: Tensor, squares: Tensor) -> Tensor:
        """A bound of a stationary leaf.

        By differences its error is relative to the distance, by the expansion to the squares; there the
        product of what both points leave is lacking, too.

        Args:
            leaf: which.
            squared: distances of psi, squared.
            squares: |psi|² of both points together, where the expansion may serve, and otherwise 0.
        """
        q = ((leaf.features + 8) * SINGLE.eps - 0.5) * squared
        if leaf.expanded:
            error = (3 * leaf.features + 8) * SINGLE.eps + self.format.unit_roundoff**2
            q = torch.maximum(q, error * squares - 0.5 * squared)
        q = q.clamp_max(0.0)
        x = (self._power(leaf, q) * (1.0 - SLACK) + SLACK).clamp_max(0.0)
        value = (torch.exp2(x) + LEAST) * _polynomial(leaf.profile, -x * math.log(2.0)) * (1.0 + SLACK)
        return torch.where(x > LEAST_EXPONENT, value, 0.0)

    def _power(self, leaf: LeafForm, q: Tensor) -> Tensor:
        """The power of two that `profiles.profile` computes."""
        if leaf.profile == "rbf":
            return q
        if leaf.profile == "rational_quadratic":
            return -self.numbers[leaf.shape] * torch.log2(1.0 - q)
        if leaf.profile in ("matern12", "matern32", "matern52"):
            return -(-q).sqrt()
        raise BackendError(
            f"How far {leaf.profile!r} reaches is not known. Add it to backends/triton/support.py."
        )


def _polynomial(profile: str, b: Tensor) -> Tensor | float:
    """What the power exp(-b) is multiplied by."""
    if profile == "matern32":
        return 1.0 + b
    if profile == "matern52":
        return 1.0 + b * (1.0 + b / 3.0)
    return 1.0


def _grown(product: Tensor) -> Tensor:
    """With what rounding may add to a product; of a zero nothing."""
    return torch.where(product > 0.0, product * (1.0 + SLACK) + LEAST, 0.0)


def _squared_distance(a: LeafBoxes, b: LeafBoxes) -> Tensor:
    """The least (r, c) between points of two boxes."""
    squared = a.squares.new_zeros(len(a.low), len(b.low))
    for f in range(a.low.shape[1]):
        gap = torch.maximum(a.low[:, None, f] - b.high[:, f], b.low[:, f] - a.high[:, None, f])
        squared += gap.clamp_min(0.0).square()
    return squared


def _inner_product(leaf: LeafForm, a: LeafBoxes, b: LeafBoxes) -> Tensor:
    """Never zero: where points are at the origin, the slope in them is not."""
    largest = (a.squares[:, None] * b.squares).sqrt()
    return largest * (1.0 + leaf.features * SINGLE.eps + SLACK) + leaf.features * LEAST
