"""Parts of a kernel matrix add up to it, and are fair."""

from __future__ import annotations

import pytest
import torch
from contracts.backends import BACKENDS
from torch import Tensor

from halfgp import RBF, Linear, Matern, White
from halfgp.backends import cpu
from halfgp.backends.base import KernelMatrix
from halfgp.backends.part import WHOLE, Part, shared_out
from halfgp.kernels import Kernel
from halfgp.nearest import along_a_curve
from halfgp.precision import DOUBLE, SINGLE, Precision
from halfgp.selftest.checks import random
from halfgp.selftest.contestant import Contestant
from halfgp.truncation import EXACT, Truncation

KERNELS = {"matern": 2.0 * Matern(1.5, [0.3, 0.5]) + White(0.1), "linear": RBF(0.4) + 0.3 * Linear()}
N = 700  # three blocks of the engine, six tiles of a GPU's
# Tiles are shared out before any instruction set has a say: one native engine and one emulated will do.
NAMES = ("reference", "triton", "cpu scalar", "qemu neon")
each_contestant = pytest.mark.parametrize("contestant", [place for place in BACKENDS if place.id in NAMES])
each_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)


def bound(
    contestant: Contestant,
    kernel: Kernel,
    name: str,
    part: Part,
    n: int = N,
    skip: bool = True,
    x: Tensor | None = None,
) -> KernelMatrix:
    precision = Precision.resolve(name)
    return contestant.backend.bind(
        kernel,
        contestant.to(random(n, 2) if x is None else x),
        None,
        precision=precision.with_entries(SINGLE) if precision.is_sixteen_bit else precision,
        store=False,
        threads=2,
        truncation=EXACT if skip else Truncation(0.0, skip=False),
        part=part,
    )


def parts(
    contestant: Contestant, kernel: Kernel, name: str, count: int, **options: int
) -> list[KernelMatrix]:
    return [bound(contestant, kernel, name, Part(i, count), **options) for i in range(count)]


def holders(contestant: Contestant, x: Tensor, count: int) -> list[Part]:
    """Parts that hold rows near one another, each of them some."""
    order = contestant.to(shared_out(along_a_curve(x), count))
    return [Part(i, count, order) for i in range(count)]


def multiplied(matrix: KernelMatrix, part: Part, v: Tensor, extra: Tensor | None) -> Tensor:
    """A part's whole summand, of what its own rows give to each other and of all else."""
    held = part.held(len(v))
    product, within = matrix.matmul(v, extra), matrix.within(v[held], extra)
    if within is not None:
        product[held] += within
    return product


def agree(found: Tensor, wanted: Tensor, size: Tensor, name: str, terms: int) -> None:
    """To the rounding of each summand, and of as many sums, in the format of vectors."""
    eps = SINGLE.eps if name != "double" else DOUBLE.eps
    assert bool(((found - wanted).abs() <= terms * eps * size).all())


@each_contestant
@each_kernel
@pytest.mark.parametrize("name", ["half", "single", "double"])
def test_products_add_up(contestant: Contestant, kernel: Kernel, name: str) -> None:
    v = contestant.to(random(N, 3, seed=1))
    noise = contestant.to(torch.linspace(0.1, 0.3, N, dtype=torch.float64))
    whole = bound(contestant, kernel, name, WHOLE)
    entries = whole.block(None, None).double().abs()
    found = sum(part.matmul(v, noise) for part in parts(contestant, kernel, name, 4))
    size = entries @ v.abs() + noise[:, None] * v.abs()
    agree(found, whole.matmul(v, noise), size, name, terms=N)


@each_contestant
@each_kernel
def test_gradients_add_up(contestant: Contestant, kernel: Kernel) -> None:
    u, v = (contestant.to(random(N, 2, seed=s)) for s in (1, 2))
    wanted, in_points, _ = bound(contestant, kernel, "single", WHOLE).bilinear_gradient(u, v, True)
    found = [p.bilinear_gradient(u, v, True) for p in parts(contestant, kernel, "single", 3)]
    # Signs cancel in sums, so that all that is added up is what rounding is relative to.
    ones = bound(contestant, kernel, "double", WHOLE).bilinear_gradient(u.abs(), v.abs(), True)
    for name, gradient in wanted.items():
        size = ones[0][name].abs().max() * torch.ones_like(gradient)
        agree(sum(f[0][name] for f in found), gradient, 8 * size, "single", terms=N)
    size = ones[1].abs().max() * torch.ones_like(in_points)
    agree(sum(f[1] for f in found), in_points, 8 * size, "single", terms=N)


@each_contestant
def test_a_part_knows_the_whole(contestant: Contestant) -> None:
    kernel = KERNELS["matern"]
    whole, part = (bound(contestant, kernel, "single", p) for p in (WHOLE, Part(1, 3)))
    rows = contestant.to(torch.tensor([5, 699, 300]))
    assert torch.equal(part.block(rows, None), whole.block(rows, None))
    assert part.shape == whole.shape
    assert part.skipped == whole.skipped
    assert part.dropped() == whole.dropped()


@each_contestant
@pytest.mark.parametrize("n", [0, 1, 5])
def test_more_parts_than_there_is_work(contestant: Contestant, n: int) -> None:
    v = contestant.to(random(n, 2, seed=1))
    some = parts(contestant, KERNELS["matern"], "double", 4, n=n)
    wanted = bound(contestant, KERNELS["matern"], "double", WHOLE, n=n).matmul(v, None)
    found = sum((part.matmul(v, None) for part in some), torch.zeros_like(wanted))
    assert torch.allclose(found, wanted, rtol=8 * DOUBLE.eps, atol=0)


@each_contestant
@each_kernel
@pytest.mark.parametrize("name", ["half", "single", "double"])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_products_of_parts_that_hold_rows_add_up(
    contestant: Contestant, kernel: Kernel, name: str, count: int
) -> None:
    x = random(N, 2)
    x[::3] = x[7]  # a third of all rows is one
    v = contestant.to(random(N, 3, seed=1))
    noise = contestant.to(torch.linspace(0.1, 0.3, N, dtype=torch.float64))
    whole = bound(contestant, kernel, name, WHOLE, x=x)
    size = whole.block(None, None).double().abs() @ v.abs() + noise[:, None] * v.abs()
    found = torch.zeros_like(v)
    for part in holders(contestant, x, count):
        matrix = bound(contestant, kernel, name, part, x=x)
        found += multiplied(matrix, part, v, noise)
        assert torch.equal(multiplied(matrix, part, v, noise), multiplied(matrix, part, v, noise))
    agree(found, whole.matmul(v, noise), size, name, terms=N)


@each_contestant
def test_gradients_of_parts_that_hold_rows_add_up(contestant: Contestant) -> None:
    kernel, x = KERNELS["matern"], random(N, 2)
    u, v = (contestant.to(random(N, 2, seed=s)) for s in (1, 2))
    wanted, in_points, _ = bound(contestant, kernel, "double", WHOLE).bilinear_gradient(u, v, True)
    sizes = bound(contestant, kernel, "double", WHOLE).bilinear_gradient(u.abs(), v.abs(), True)
    found = [
        bound(contestant, kernel, "double", part).bilinear_gradient(u, v, True)
        for part in holders(contestant, x, 3)
    ]
    name = "double" if contestant.backend.name != "triton" else "single"
    for parameter, gradient in wanted.items():
        size = 8 * sizes[0][parameter].abs().max() * torch.ones_like(gradient)
        agree(sum(f[0][parameter] for f in found), gradient, size, name, terms=N)
    agree(sum(f[1] for f in found), in_points, 8 * sizes[1].abs().max(), name, terms=N)


@each_contestant
@pytest.mark.parametrize("n", [0, 1, 5, 300])
def test_more_parts_than_rows_or_tiles(contestant: Contestant, n: int) -> None:
    x, v = random(n, 2), contestant.to(random(n, 2, seed=1))
    wanted = bound(contestant, KERNELS["matern"], "double", WHOLE, n=n)
    found, size = torch.zeros_like(v), wanted.block(None, None).abs() @ v.abs()
    for part in holders(contestant, x, 7):
        found += multiplied(bound(contestant, KERNELS["matern"], "double", part, n=n), part, v, None)
    agree(found, wanted.matmul(v, None), size, "double", terms=max(n, 8))


@pytest.mark.parametrize(("n", "count"), [(0, 3), (2, 3), (1001, 4)])
def test_rows_are_held_by_one_part_each_and_lie_together(n: int, count: int) -> None:
    x = random(n, 2)
    held = [part.held(n) for part in holders(Contestant("cpu", cpu.BACKEND), x, count)]
    assert torch.equal(torch.cat(held).sort().values, torch.arange(n))
    assert all(torch.equal(rows, rows.sort().values) for rows in held)
    assert max(map(len, held)) - min(map(len, held)) <= 1
    if n > count:  # whoever holds all of a half in one feature is narrower in it than all rows are
        spread = torch.stack([x[rows].std(dim=0) for rows in held])
        assert bool((spread.amin(dim=1) < 0.8 * x.std(dim=0).amin()).all())


@pytest.mark.parametrize("count", [2, 3, 7])
@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("crowded", [False, True])
def test_the_engine_is_fair_to_who_holds_rows(count: int, skip: bool, crowded: bool) -> None:
    """By what tiles cost: whoever has more within its own rows than a fair share leaves some to others."""
    x = random(6000, 2)
    if crowded:  # rows of one place, all of whose tiles have entries, and others that are far from each other
        x = torch.cat([0.05 * random(4000, 2), 40.0 * random(2000, 2, seed=3)])
    kernel, truncation = RBF(0.1), EXACT if skip else Truncation(0.0, skip=False)
    order = shared_out(along_a_curve(x), count)
    some = [Part(i, count, order) for i in range(count)]
    bind = {"precision": Precision.resolve("single"), "store": False, "threads": 1, "truncation": truncation}
    matrices = [cpu.BACKEND.bind(kernel, x, None, **bind, part=part) for part in some]
    tiles = [matrix.stored_bytes(1) // cpu.RUN**2 for matrix in matrices]
    blocks = [-(-len(part.held(len(x))) // cpu.RUN) for part in some]
    if not skip:
        assert sum(tiles) == sum(blocks) * (sum(blocks) + 1) // 2
    assert max(tiles) <= 1.2 * sum(tiles) / count
    assert all(matrix.skipped == matrices[0].skipped for matrix in matrices)
    for part, matrix in zip(some, matrices, strict=True):  # everybody has something to begin with
        ones = torch.ones(len(part.held(len(x))), 1, dtype=torch.float64)
        alone, diagonal = matrix.within(ones, None), kernel.diagonal(x)[part.held(len(x)), None]
        assert bool((alone > diagonal).any())


def test_the_engine_stores_tiles_within_and_others() -> None:
    x, v = random(N, 2), random(N, 2, seed=1)
    for part in holders(Contestant("cpu", cpu.BACKEND), x, 3):
        bind = {"precision": Precision.resolve("double"), "threads": 2, "part": part}
        plain, stored = (cpu.BACKEND.bind(RBF(0.4), x, None, store=s, **bind) for s in (False, True))
        for one, other in zip(
            (plain.matmul(v, None), plain.within(v[part.held(N)], None)),
            (stored.matmul(v, None), stored.within(v[part.held(N)], None)),
            strict=True,
        ):
            assert torch.equal(one, other)


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("count", [2, 3, 7])
def test_the_engine_shares_tiles_out_fairly(count: int, skip: bool) -> None:
    """By what they cost: neither rows nor tiles are alike where most of the matrix is zero."""
    x = torch.cat([random(4000, 2), 40.0 + 0.3 * random(4000, 2, seed=3)])
    kernel, precision = RBF(0.1), Precision.resolve("single")
    truncation = EXACT if skip else Truncation(0.0, skip=False)
    bind = {"precision": precision, "store": False, "threads": 1, "truncation": truncation}
    whole = cpu.BACKEND.bind(kernel, x, None, **bind)
    tiles = [
        cpu.BACKEND.bind(kernel, x, None, **bind, part=Part(i, count)).stored_bytes(1) // cpu.RUN**2
        for i in range(count)
    ]
    assert sum(tiles) == whole.stored_bytes(1) // cpu.RUN**2
    if not skip:
        assert max(tiles) - min(tiles) <= 2  # but for the last block, which is smaller than others
    assert min(tiles) > 0


def test_results_do_not_depend_on_threads() -> None:
    kernel, x, v = KERNELS["matern"], random(3000, 2), random(3000, 2, seed=1)
    bind = {"precision": Precision.resolve("single"), "store": False, "part": Part(1, 3)}
    one, two = (cpu.BACKEND.bind(kernel, x, None, threads=t, **bind).matmul(v, None) for t in (1, 2))
    assert torch.equal(one, two)
    bind["part"] = part = Part(1, 3, shared_out(along_a_curve(x), 3))
    one, two = (
        cpu.BACKEND.bind(kernel, x, None, threads=t, **bind).within(v[part.held(3000)], None) for t in (1, 2)
    )
    assert torch.equal(one, two)
