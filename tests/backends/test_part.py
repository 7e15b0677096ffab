"""Parts of a kernel matrix add up to it, and are fair."""

from __future__ import annotations

import pytest
import torch
from contracts.backends import BACKENDS
from torch import Tensor

from halfgp import RBF, Linear, Matern, White
from halfgp.backends import cpu
from halfgp.backends.base import KernelMatrix
from halfgp.backends.part import WHOLE, Part
from halfgp.kernels import Kernel
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
    contestant: Contestant, kernel: Kernel, name: str, part: Part, n: int = N, skip: bool = True
) -> KernelMatrix:
    precision = Precision.resolve(name)
    return contestant.backend.bind(
        kernel,
        contestant.to(random(n, 2)),
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
