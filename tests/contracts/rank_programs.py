"""What the ranks of a `Job` run: each of them the same function, in the same order."""

from __future__ import annotations

from typing import Any

import torch
from contracts.textbook import points, targets
from torch import Tensor

from halfgp import Matern, White, cg, lanczos, log_determinant
from halfgp.distributed.ranks import Ranks, ranks_here
from halfgp.hyperparameters import Hyperparameters
from halfgp.operators import Operator, ShardedKernel
from halfgp.problem import Problem
from halfgp.selftest.checks import random

KERNEL = 1.5 * Matern(1.5, [0.4, 0.7]) + White(0.02)


def here() -> Ranks:
    ranks = ranks_here()
    assert ranks is not None
    return ranks


def noise_of(n: int) -> Tensor:
    return torch.linspace(0.05, 0.2, n, dtype=torch.float64)


def problem(n: int, ranks: Ranks | None, **options: Any) -> Problem:
    x = points(n, 2)
    return Problem(x, targets(x), noise_of(n), ranks=ranks, **options)


def system(n: int, ranks: Ranks | None, precision: str = "single", **options: Any) -> Operator:
    return problem(n, ranks, **options).system(Hyperparameters(KERNEL, None, None), precision)


def sums(n: int) -> dict[str, Tensor]:
    """Every kind of meeting, with numbers that differ from rank to rank."""
    ranks = here()
    mine = random(n, 3, seed=ranks.index)
    held = ranks.held(n)
    return {
        "total": ranks.total(mine),
        "largest": ranks.largest(mine),
        "counts": ranks.total(torch.tensor([ranks.index + 1])),
        "number": ranks.total(torch.tensor(0.5)),
        "scattered": ranks.scattered(mine),
        "gathered": ranks.gathered(random(n, 3)[held], n),
        "vector": ranks.gathered(torch.arange(n)[held], n),
        "first": ranks.of_first(mine),
    }


def texts() -> list[str]:
    return here().texts("ä" * here().index)


def matrix(n: int, precision: str, backend: str) -> dict[str, Tensor]:
    """Everything that an operator is asked for."""
    operator = system(n, here(), precision, backend=backend)
    assert isinstance(operator, ShardedKernel)
    u, v = (random(n, 2, seed=s)[operator.held] for s in (1, 2))
    gradient, in_points, _ = operator.bilinear_gradient(u, v, inputs=True)
    before = operator.ranks.traffic.bytes_sent
    product = operator.matmul(v.T.contiguous().T)
    assert in_points is not None
    return {
        "product": product,
        "again": operator.matmul(v.T.contiguous().T),
        "rows": operator.rows(torch.tensor([0, n - 1, n // 2])),
        "diagonal": operator.diagonal(),
        "nugget": operator.nugget,
        "in_points": in_points,
        "sent": torch.tensor((operator.ranks.traffic.bytes_sent - before) // 2),
        **{f"gradient {name}": value for name, value in gradient.items()},
    }


def solved(n: int, recipe: object, options: dict[str, Any]) -> tuple[Tensor, Tensor, int, str]:
    operator = system(n, here())
    result = cg(operator, random(n, 2, seed=1)[operator.held], preconditioner=recipe, **options)
    return result.solution, result.residual_norms, result.iterations, str(result.status)


def tridiagonal(n: int) -> Tensor:
    operator = system(n, here(), "double")
    return lanczos(operator, random(n, 1, seed=1)[operator.held], steps=8, precision="double").diagonal


def preconditioned(n: int, recipe: Any) -> dict[str, Any]:
    operator = system(n, here(), "double")
    built = recipe.build(operator)
    v = random(n, 3, seed=1)[operator.held]
    return {
        "kind": type(built).__name__,
        "solve": built.solve(v),
        "whiten": built.whiten(v),
        "transposed": built.whiten(v, transposed=True),
        "matmul": built.matmul(v) if hasattr(built, "matmul") else None,
        "log_determinant": built.log_determinant(),
    }


def determinant(n: int, recipe: Any) -> float:
    return log_determinant(system(n, here(), "double"), preconditioner=recipe, precision="double").value
