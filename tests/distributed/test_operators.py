"""Operators, solvers and preconditioners over ranks of a process group give what one process does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from contracts import rank_programs as programs
from contracts.job import Job, job
from torch import Tensor

from halfgp import AutomaticPreconditioner, Nystrom, PivotedCholesky, SparseInverseCholesky, cg, lanczos
from halfgp import log_determinant as determinant_of
from halfgp.backends.part import shared_out
from halfgp.nearest import along_a_curve
from halfgp.operators import Operator
from halfgp.precision import DOUBLE, SINGLE
from halfgp.selftest.checks import random

N = 151  # no multiple of two, three or four


# Solvers know of ranks by operators alone: what these do with more ranks is seen by products, and by CG.
@pytest.fixture(scope="module", params=[2, 3], ids=lambda count: f"{count} ranks")
def ranks(request: pytest.FixtureRequest) -> Iterator[Job]:
    with job(request.param) as found:
        yield found


each_count = pytest.mark.parametrize("ranks", [2, 3, 4], indirect=True, ids=lambda count: f"{count} ranks")


def whole(n: int = N, precision: str = "single", **options: str) -> Operator:
    return programs.system(n, None, precision, **options)


def dense() -> Tensor:
    return whole(precision="double").rows(torch.arange(N))


def joined(parts: list[Tensor]) -> Tensor:
    return torch.cat(parts)


def placed(parts: list[Tensor]) -> Tensor:
    """Rows (n, ...) from those that each rank holds, wherever these lie."""
    whole = joined(parts)
    order = shared_out(along_a_curve(programs.problem(len(whole), None).x), len(parts))
    return whole[torch.argsort(order)]


def agree(found: Tensor, wanted: Tensor, tolerance: float) -> None:
    assert found.shape == wanted.shape
    assert float((found - wanted).abs().max()) <= tolerance * float(wanted.abs().max())


@each_count
@pytest.mark.parametrize("n", [1, 7, 20_000])
def test_meetings(ranks: Job, n: int) -> None:
    """Of fewer rows than ranks, of some, and of more numbers than are added up at once."""
    found = ranks.run(programs.sums, n)
    brought = [random(n, 3, seed=k) for k in range(len(found))]
    total = sum(brought[1:], brought[0])
    assert torch.equal(joined([f["scattered"] for f in found]), total)
    for f in found:
        assert torch.equal(f["total"], total)
        assert torch.equal(f["largest"], torch.stack(brought).amax(dim=0))
        assert torch.equal(f["gathered"], random(n, 3))
        assert torch.equal(f["vector"], torch.arange(n))
        assert torch.equal(f["first"], brought[0])
        assert int(f["counts"]) == len(found) * (len(found) + 1) // 2
        assert float(f["number"]) == len(found) / 2
        assert int(f["least"]) == 7 - (len(found) - 1)
    assert ranks.run(programs.texts) == [["ä" * k for k in range(len(found))]] * len(found)


@each_count
@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("precision", ["half", "single", "double"])
def test_products_gradients_and_rows(ranks: Job, backend: str, precision: str) -> None:
    found = ranks.run(programs.matrix, N, precision, backend)
    operator = whole(precision=precision, backend=backend)
    u, v = (random(N, 2, seed=s) for s in (1, 2))
    # Vectors are in double here, so that a summand is rounded as one sum of n products in the format is.
    eps = DOUBLE.eps if precision == "double" else SINGLE.eps
    limit = N * eps * (dense().abs() @ v.abs())
    product = placed([f["product"] for f in found])
    assert bool(((product - operator.matmul(v)).abs() <= limit).all())
    assert torch.equal(placed([f["again"] for f in found]), product)
    rows = torch.tensor([0, N - 1, N // 2])
    assert torch.equal(placed([f["rows"].T for f in found]).T, operator.rows(rows))
    assert torch.equal(placed([f["diagonal"] for f in found]), operator.diagonal())
    assert torch.equal(placed([f["nugget"] for f in found]), operator.nugget)
    wanted, in_points, _ = operator.bilinear_gradient(u, v, inputs=True)
    sizes, at_points, _ = operator.bilinear_gradient(u.abs(), v.abs(), inputs=True)
    for name, gradient in wanted.items():
        for f in found:
            assert torch.equal(f[f"gradient {name}"], found[0][f"gradient {name}"])
            room = 8 * N * eps * sizes[name].abs().max()
            assert bool(((f[f"gradient {name}"] - gradient).abs() <= room).all())
    moved = placed([f["in_points"] for f in found])
    assert bool(((moved - in_points).abs() <= 8 * N * eps * at_points.abs().max()).all())


@each_count
@pytest.mark.parametrize("precision", ["half", "single"])
def test_products_of_many_tiles(ranks: Job, precision: str) -> None:
    """Of which each rank has some within its own rows, and some between those of others."""
    n = 2000
    product = placed([f["product"] for f in ranks.run(programs.matrix, n, precision, "cpu")])
    operator, v = whole(n, precision), random(n, 2, seed=2)
    sizes = whole(n, "double").rows(torch.arange(n)).abs() @ v.abs()
    assert bool(((product - operator.matmul(v)).abs() <= n * SINGLE.eps * sizes).all())


@each_count
def test_own_tiles_are_multiplied_while_others_send_their_rows(ranks: Job) -> None:
    """The gather comes to its end while they are, and is not waited for before."""
    for done in ranks.run(programs.overlapped, N):
        assert done == ["gather", "own tiles", "wait", "other tiles"]


@each_count
def test_a_product_sends_its_vectors_twice(ranks: Job) -> None:
    """Each rank its own rows to all others, and to each other one that one's rows."""
    found = ranks.run(programs.matrix, N, "single", "cpu")
    most = -(-N // len(found))
    assert {int(f["sent"]) for f in found} == {2 * (len(found) - 1) * most * 2 * 8}


@pytest.mark.parametrize("ranks", [2], indirect=True, ids=["2 ranks"])
def test_points_are_on_a_rank_once(ranks: Job) -> None:
    """But for their packed form, of a few bytes a number."""
    assert ranks.run(programs.held_once, N) == [True, True]


# Every recipe, and both kinds of preconditioner with every number of ranks.
@pytest.mark.parametrize(
    ("ranks", "recipe"),
    [
        *((2, recipe) for recipe in (None, AutomaticPreconditioner())),
        *((count, PivotedCholesky(12)) for count in (3, 4)),
        *((count, SparseInverseCholesky(10, landmarks=8)) for count in (2, 3, 4)),
    ],
    indirect=["ranks"],
    ids=repr,
)
def test_cg(ranks: Job, recipe: object) -> None:
    """On its ladder with two ranks; more of them, who meet more slowly, are asked for less."""
    count = len(ranks.processes)
    options = {"tol": 1e-4 if count == 2 else 1e-2}
    one = cg(whole(), random(N, 2, seed=1), preconditioner=recipe, **options)
    found = ranks.run(programs.solved, N, recipe, options)
    if count == 3:  # the same bits again
        again = ranks.run(programs.solved, N, recipe, options)
        assert all(torch.equal(a[0], b[0]) for a, b in zip(found, again, strict=True))
    apart = placed([part[0] for part in found]) - one.solution
    residuals = (one.residual_norms + found[0][1]) * random(N, 2, seed=1).norm(dim=0)
    # |A^-1 r| is at most |r| over the least noise.
    assert bool((apart.norm(dim=0) <= residuals / whole().least_nugget).all())
    for part in found:
        assert torch.equal(part[1], found[0][1])
        assert part[3] == str(one.status) == "converged"
        assert part[2] == found[0][2]
        assert abs(part[2] - one.iterations) <= 2


@pytest.mark.parametrize(
    "recipe",
    [
        *(
            PivotedCholesky(12),
            Nystrom(12),
            SparseInverseCholesky(10),
            SparseInverseCholesky(10, landmarks=8),
        ),
        *(SparseInverseCholesky(0, landmarks=16), AutomaticPreconditioner()),
    ],
    ids=repr,
)
def test_preconditioners(ranks: Job, recipe: object) -> None:
    found = ranks.run(programs.preconditioned, N, recipe)
    one = recipe.build(whole(precision="double"))  # type: ignore[attr-defined]
    v = random(N, 3, seed=1)
    # Low rank comes from rows in single, and the automatic one holds its entries so: a solve multiplies such
    # a rounding by the condition.
    condition = float(torch.linalg.cond(dense()))
    eps = DOUBLE.eps if isinstance(recipe, SparseInverseCholesky) else SINGLE.eps
    tolerance = N * eps * condition
    agree(placed([f["solve"] for f in found]), one.solve(v), tolerance)
    lengths = placed([f["whiten"] for f in found]).square().sum(dim=0)
    agree(lengths, (v * one.solve(v)).sum(dim=0), tolerance)
    agree(placed([f["matmul"] for f in found]), one.matmul(v), tolerance)
    both = (placed([f["transposed"] for f in found]) * v).sum(dim=0)
    agree(both, (placed([f["whiten"] for f in found]) * v).sum(dim=0), tolerance)
    for f in found:
        assert f["log_determinant"] == pytest.approx(one.log_determinant(), rel=tolerance)


def test_lanczos_and_determinants(ranks: Job) -> None:
    one = lanczos(whole(precision="double"), random(N, 1, seed=1), steps=8, precision="double")
    for found in ranks.run(programs.tridiagonal, N):
        agree(found, one.diagonal, 1e-9)
    recipe = PivotedCholesky(12)
    value = determinant_of(whole(precision="double"), preconditioner=recipe, precision="double").value
    for number in ranks.run(programs.determinant, N, recipe):
        assert number == pytest.approx(value, rel=1e-4)
