"""Rows given a few others each: what every backend computes of a neighbourhood, and how torch does it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from halfgp.backends.chain_rule import parameter_gradient
from halfgp.kernels import Kernel
from halfgp.kernels.program import Program

CHUNK_BYTES = 2**26  # of the small matrices at a time


@dataclass(frozen=True)
class Neighbourhoods:
    """Rows and, for each, the points that it is conditioned on.

    Attributes:
        x: points (n, D), in whatever format they are held.
        rows: (r,) of the points, int64.
        members: (r, k) of the points, int64; -1 where a row has fewer. A row is not among its own.
        diagonal: (n,) variances of the points, noise included, float64.
        targets: (n, q), float64.
        explained: (n, r), float64, or None. Where some are given, the covariance of two points is less by the
            product of their rows: the points are conditioned on r landmarks first. There is no gradient then.
    """

    x: Tensor
    rows: Tensor
    members: Tensor
    diagonal: Tensor
    targets: Tensor
    explained: Tensor | None = None


@dataclass(frozen=True)
class Conditionals:
    """What neighbourhoods tell, in float64.

    The loss is Σ ½ t² + log(deviation), t being residuals over deviations: minus the logarithm of the product
    of the rows' densities, each given its members, but for a constant. A neighbourhood that is not positive
    definite has deviations that are not numbers.

    Attributes:
        residuals: (r, q) of the rows, over their deviations.
        deviations: (r,).
        factor: (r, k + 1) rows of the sparse inverse Cholesky factor, members first and the row itself last.
        gradient: of the loss in every parameter of the kernel, by name, or None where it was not wanted.
        by_diagonal: (n,) the gradient of the loss in `diagonal`, or None.
    """

    residuals: Tensor
    deviations: Tensor
    factor: Tensor
    gradient: dict[str, Tensor] | None = None
    by_diagonal: Tensor | None = None


def reference_conditionals(kernel: Kernel, of: Neighbourhoods, gradient: bool) -> Conditionals:
    """In torch, on any device, the gradient by autograd; O(r k² (k + f)) time, in chunks."""
    r, k = of.members.shape
    residuals = of.targets.new_empty(r, of.targets.shape[1])
    deviations, factor = of.targets.new_empty(r), of.targets.new_empty(r, k + 1)
    by_diagonal = torch.zeros_like(of.diagonal)
    total: dict[str, Tensor] = {}
    for some in _chunks(r, k):
        diagonal = of.diagonal.clone().requires_grad_(gradient)
        leaf = kernel.detached(requires_grad=gradient)
        with torch.set_grad_enabled(gradient):
            t, deviation, g = _chunk(leaf.program(), of, some, diagonal)
            loss = 0.5 * t.square().sum() + t.shape[1] * deviation.log().sum()
        residuals[some], deviations[some], factor[some] = t.detach(), deviation.detach(), g.detach()
        if gradient:
            named = dict(leaf.named_parameters())
            inputs = [diagonal, *(p.value for p in named.values())]
            found = torch.autograd.grad(loss, inputs, allow_unused=True)
            parts = [torch.zeros_like(x) if f is None else f for f, x in zip(found, inputs, strict=True)]
            by_diagonal += parts[0]
            for name, part in zip(named, parts[1:], strict=True):
                total[name] = total.get(name, torch.zeros_like(part)) + part
    if not gradient:
        return Conditionals(residuals, deviations, factor)
    # What of the diagonal is the kernel's.
    of_variances, _, _ = parameter_gradient(kernel, [of.x.double()], by_diagonal, False, lambda *_: ([], []))
    total = {name: total.get(name, torch.zeros_like(g)) + g for name, g in of_variances.items()}
    return Conditionals(residuals, deviations, factor, total, by_diagonal)


def _chunks(r: int, k: int) -> Iterator[slice]:
    size = max(1, CHUNK_BYTES // (8 * 8 * (k + 1) ** 2))
    return (slice(start, start + size) for start in range(0, r, size))


def _chunk(
    program: Program, of: Neighbourhoods, some: slice, diagonal: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Residuals over deviations (m, q), deviations (m,) and rows of the factor (m, k + 1) of some rows."""
    group = torch.cat([of.members[some], of.rows[some, None]], dim=1)
    present = group >= 0
    at = torch.where(present, group, 0)
    m, size = at.shape
    values = []
    for leaf in program.leaves:
        z = leaf.scaled(of.x[at.reshape(-1)].double())
        z = z.reshape(m, size, z.shape[1])
        values.append(leaf.between(z, z))
    matrix = program.evaluate(values, (m, size, size)) * (present[:, :, None] & present[:, None, :])
    own = torch.where(present, diagonal[at], 1.0)
    eye = torch.eye(size, dtype=torch.bool, device=matrix.device)
    matrix = torch.where(eye, own[:, :, None], matrix)
    if of.explained is not None:
        known = of.explained[at] * present[:, :, None]
        matrix = matrix - known @ known.mT
    lower, failed = torch.linalg.cholesky_ex(matrix)
    lower = torch.where((failed == 0)[:, None, None], lower, torch.nan)
    targets = of.targets[at] * present[:, :, None]
    white = torch.linalg.solve_triangular(lower, targets, upper=False)
    last = torch.zeros(m, size, 1, dtype=matrix.dtype, device=matrix.device)
    last[:, -1] = 1.0
    g = torch.linalg.solve_triangular(lower.mT, last, upper=True)[:, :, 0]
    return white[:, -1], lower[:, -1, -1], g
