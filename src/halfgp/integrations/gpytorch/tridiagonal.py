"""Tridiagonal matrices of a batch of systems, in the shapes that linear_operator has them in."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from halfgp.precision import DOUBLE, SINGLE

Closure = Callable[[Tensor], Tensor]


def tridiagonals(multiply: Closure, start: Tensor, steps: int, solve: Closure | None = None) -> Tensor:
    """Lanczos from every column, re-orthogonalised; of P^-1 A in the inner product of P^-1 if there is a P.

    Args:
        multiply: by A, for (..., n, t).
        start: (..., n, t).
        steps: at most; one product each.
        solve: P^-1, or None for the identity.

    Returns:
        (t, ..., k, k) symmetric tridiagonal matrices. Where the space of a column is exhausted, what follows
        is the identity, as in linear_operator.
    """
    whiten = (lambda v: v) if solve is None else solve
    w, roundoff = start.double(), (DOUBLE if start.dtype == torch.float64 else SINGLE).eps
    vectors: list[Tensor] = []  # v, orthonormal in the inner product of P^-1
    duals: list[Tensor] = []  # P^-1 v
    diagonal: list[Tensor] = []
    off_diagonal: list[Tensor] = []
    size = torch.zeros_like(w[..., 0, :])  # of the matrix so far, for telling a remainder from round-off
    while len(diagonal) < min(steps, start.shape[-2]):
        z = whiten(w.to(start)).double()
        norm = (w * z).sum(dim=-2).clamp_min(0.0).sqrt()
        alive = norm > roundoff * size
        if not bool(alive.any()):
            break
        inverse = torch.where(alive, 1.0 / norm, 0.0).unsqueeze(-2)
        vectors.append(w * inverse)
        duals.append(z * inverse)
        if diagonal:
            off_diagonal.append(torch.where(alive, norm, 0.0))
        w = multiply(duals[-1].to(start)).double()
        alpha = (duals[-1] * w).sum(dim=-2)
        diagonal.append(torch.where(alive, alpha, 1.0))
        size = torch.maximum(size, alpha.abs())
        for _ in range(2):  # classical Gram-Schmidt is as good as modified, if done twice
            basis, dual = torch.stack(vectors), torch.stack(duals)
            w = w - (basis * (dual * w).sum(dim=-2, keepdim=True)).sum(dim=0)
    found = torch.diag_embed(torch.stack(diagonal, dim=-1))
    if off_diagonal:
        beside = torch.stack(off_diagonal, dim=-1)
        found = found + torch.diag_embed(beside, 1) + torch.diag_embed(beside, -1)
    return found.movedim(-3, 0).to(start).contiguous()
