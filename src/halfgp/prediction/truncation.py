"""Predictive means from the blocks of rows within a kernel's support: the others are zero in the format."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from halfgp.hyperparameters import Hyperparameters
from halfgp.precision import Precision
from halfgp.problem import Problem

BLOCK = 256  # rows of a tile in the engine
LARGEST_DIMENSION = 4  # beyond it every block reaches every other


@dataclass(frozen=True)
class TruncatedMean:
    """K(x, rows) w, with whole blocks of rows left out whose covariances with x vanish in the format.

    What is left out is zero in every product, to the last bit. The rest is computed about a centre of its
    own, which is nearer: rounding differs from that of the whole product, and is no larger.

    Attributes:
        problem: rows in an order in which neighbours are together.
        hyperparameters: where.
        precision: of the products; its inputs' format decides what vanishes.
        order: (n,) rows as they were numbered, in the new order.
        low: (blocks, f) corners of the blocks, scaled.
        high: (blocks, f).
        reach: scaled distance at which the covariance vanishes.
    """

    problem: Problem
    hyperparameters: Hyperparameters
    precision: Precision
    order: Tensor
    low: Tensor
    high: Tensor
    reach: float

    @classmethod
    @torch.no_grad()
    def build(
        cls, problem: Problem, hyperparameters: Hyperparameters, precision: Precision
    ) -> TruncatedMean | None:
        """None where nothing could be left out: many features, or a kernel without a support."""
        program = hyperparameters.kernel.program()
        leaves = program.leaves
        if len(leaves) != 1 or not leaves[0].is_stationary:
            return None
        if any(node.kind == "add" for node in program.nodes):
            return None  # of one leaf and a constant, which vanishes nowhere
        z = leaves[0].scaled(problem.x)
        if z.shape[1] > LARGEST_DIMENSION or problem.rows < 4 * BLOCK:
            return None
        # A covariance may exceed the tie at which it vanishes by the rounding of the distance.
        inputs = precision.inputs
        reach = leaves[0].stationary.reach(inputs.vanishing_fall, leaves[0].shape_value) * (
            1 + 8 * inputs.eps
        )
        if reach >= float((z.amax(dim=0) - z.amin(dim=0)).norm()):
            return None  # every row is within reach of every other
        order = space_filling_order(z)
        z = z[order]
        blocks = range(0, problem.rows, BLOCK)
        low = torch.stack([z[b : b + BLOCK].amin(dim=0) for b in blocks])
        high = torch.stack([z[b : b + BLOCK].amax(dim=0) for b in blocks])
        return cls(problem.taken(order), hyperparameters, precision, order, low, high, reach)

    @torch.no_grad()
    def __call__(self, x: Tensor, w: Tensor) -> Tensor:
        """K(x, rows) w (m, t) for points (m, d) and weights (n, t) in the first order; float64."""
        leaf = self.hyperparameters.kernel.program().leaves[0]
        z, ordered = leaf.scaled(x), w[self.order]
        result = torch.zeros(len(x), w.shape[1], dtype=torch.float64)
        places = space_filling_order(z)
        for start in range(0, len(x), 4 * BLOCK):
            some = places[start : start + 4 * BLOCK]
            rows = self.near(z[some])
            if len(rows):
                operator = self.problem.cross(self.hyperparameters, x[some], self.precision, rows)
                result[some] = torch.as_tensor(operator @ ordered[rows])
        return result

    def near(self, z: Tensor) -> Tensor:
        """Rows of all blocks that come within reach of the box around scaled points (m, f)."""
        low, high = z.amin(dim=0), z.amax(dim=0)
        apart = torch.maximum(self.low - high, low - self.high).clamp_min(0.0)
        within = apart.square().sum(dim=1).sqrt() <= self.reach
        rows: Tensor = within.repeat_interleave(BLOCK)[: self.problem.rows].nonzero()[:, 0]
        return rows


def space_filling_order(z: Tensor) -> Tensor:
    """Points (n, f) along a Morton curve: the bits of their coordinates, interleaved."""
    code = torch.zeros(len(z), dtype=torch.long)
    if not len(z):
        return code
    bits = min(62 // z.shape[1], 20)
    low, high = z.amin(dim=0), z.amax(dim=0)
    spread = torch.where(high > low, high - low, 1.0)
    cells = ((z - low) / spread * (2**bits - 1)).long()
    for bit in range(bits):
        for axis in range(z.shape[1]):
            code |= ((cells[:, axis] >> bit) & 1) << (bit * z.shape[1] + axis)
    return torch.argsort(code, stable=True)
