"""Predictive means from all rows and from those whose covariances are not zero in half: time and error."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from halfgp.backends.emulation import BLOCK as EMULATED_BLOCK
from halfgp.backends.emulation import Summation, column_scales, emulated_matmul
from halfgp.hyperparameters import Hyperparameters
from halfgp.kernels import RBF
from halfgp.parameters import positive
from halfgp.precision import HALF, Precision
from halfgp.preconditioners import PivotedCholesky
from halfgp.prediction.truncation import TruncatedMean
from halfgp.problem import Problem
from halfgp.solvers import cg

NOISE = 0.1
END = 27.5  # rows lie in [-27.5, 27.5]: of these a quarter has covariances above zero with [-1, 1]
TEST = 1000
GRID = 2.0**-12  # coordinates are multiples of it, so that sums of them are exact
SUMMATIONS: tuple[Summation, ...] = ("plain", "block_half", "block_single", "kahan")


@dataclass(frozen=True)
class Setting:
    """A one-dimensional problem of which new points see a quarter.

    Attributes:
        x: rows (n, 1), sorted.
        new: points (m, 1) in [-1, 1].
        weights: (K + noise)^-1 y, (n, 1).
        mean: takes blocks of rows within reach.
        kept: share of rows in these blocks.
    """

    x: Tensor
    new: Tensor
    weights: Tensor
    mean: TruncatedMean
    kept: float

    def full(self) -> Tensor:
        """K(new, x) w, (m, 1)."""
        operator = self.mean.problem.cross(self.mean.hyperparameters, self.new, self.mean.precision)
        return torch.as_tensor(operator @ self.weights)

    def truncated(self) -> Tensor:
        """The same from the rows within reach."""
        return self.mean(self.new, self.weights)


def setting(rows: int, seed: int, *, symmetric: bool = True, solved: bool = True) -> Setting:
    """Rows that are uniform on [-27.5, 27.5], targets that are a noisy sine, and the solve for weights.

    Args:
        rows: a multiple of two blocks.
        seed: of rows and targets.
        symmetric: for each row there is one at the opposite place. The engine takes points relative to the
            mean of the rows it sees, which is then the same for those within reach as for all: zero.
        solved: solve for weights; otherwise they are the targets, which a product does not take longer for.
    """
    generator = torch.Generator().manual_seed(seed)
    most = round(END / GRID)
    if symmetric:
        steps = torch.randint(1, most, (rows // 2,), generator=generator)
        steps = torch.cat([-steps, steps])
    else:
        steps = torch.randint(-most, most, (rows,), generator=generator)
    x = (GRID * steps.double()).sort().values[:, None]
    y = x.sin() + NOISE**0.5 * torch.randn(x.shape, dtype=torch.float64, generator=generator)
    new = 2.0 * torch.rand(TEST, 1, dtype=torch.float64, generator=generator) - 1.0
    new[:2] = torch.tensor([[-1.0], [1.0]])
    hyperparameters = Hyperparameters(RBF(), positive("noise", NOISE), None)
    problem = Problem(x, y)
    weights = y
    if solved:
        recipe: Any = PivotedCholesky(rank=100)
        found = cg(problem.operator(hyperparameters), y, preconditioner=recipe, tol=1e-3)
        weights = torch.as_tensor(found.solution)
    mean = TruncatedMean.build(problem, hyperparameters, Precision.resolve("half"))
    assert mean is not None  # one feature, and more than four blocks
    kept = len(mean.near(new)) / rows
    return Setting(x, new, weights, mean, kept)


def emulated_difference(case: Setting, summation: Summation, points: int = 64) -> float:
    """The largest difference of means that are computed in half, operation by operation, as the paper's are.

    Entries, weights, products and partial sums are rounded to half. Blocks of rows whose entries are all zero
    after rounding are left out; the others stay as they are, on the same scale.
    """
    new = case.new[:points]
    weights = case.weights / column_scales(case.weights)
    entries = RBF()(new, case.x).to(HALF.dtype)
    block = torch.arange(len(case.x)) // EMULATED_BLOCK
    near = torch.isin(block, block[(entries != 0).any(dim=0)])
    product = partial(emulated_matmul, RBF(), new, format=HALF, summation=summation, scale=False)
    whole, some = product(case.x, weights), product(case.x[near], weights[near])
    return float((whole - some).abs().max() / whole.abs().max())


def engine_difference(case: Setting) -> float:
    """The largest difference of the engine's means, relative to the largest mean."""
    whole, some = case.full(), case.truncated()
    return float((whole - some).abs().max() / whole.abs().max())
