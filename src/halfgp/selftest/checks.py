"""What the parts of the contract share: points, matrices, and the comparison with the definition."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from halfgp.backends.base import KernelMatrix
from halfgp.kernels import Kernel
from halfgp.precision import SINGLE, Precision
from halfgp.selftest.bounds import entry_bound, product_bound
from halfgp.selftest.contestant import Contestant
from halfgp.truncation import EXACT, Truncation

Found = TypeVar("Found")


def remembered(function: Callable[..., Found]) -> Callable[..., Found]:
    """With the latest results kept: what has nothing to do with a backend is found once for all of them."""
    latest: OrderedDict[object, Found] = OrderedDict()

    @functools.wraps(function)
    def recall(*arguments: object) -> Found:
        key = tuple(map(_by_value, arguments))
        if key not in latest:
            latest[key] = function(*arguments)
            if len(latest) > 8:
                latest.popitem(last=False)
        return latest[key]

    return recall


def _by_value(argument: object) -> object:
    """Tensors by their numbers: they may be changed."""
    if isinstance(argument, Tensor):
        numbers = argument.detach().numpy().tobytes()
        return numbers, argument.shape, argument.dtype, argument.requires_grad
    return argument


def random(*shape: int, seed: int = 0) -> Tensor:
    """Normal numbers, float64."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def bind(
    contestant: Contestant,
    kernel: Kernel,
    x1: Tensor,
    x2: Tensor | None,
    name: str,
    store: bool = False,
    truncation: Truncation = EXACT,
) -> KernelMatrix:
    """The matrix of the contestant's backend, in a precision by its name."""
    precision = Precision.resolve(name)
    if precision.is_sixteen_bit and not store:
        precision = precision.with_entries(SINGLE)
    rows, columns = contestant.to(x1), None if x2 is None else contestant.to(x2)
    return contestant.backend.bind(
        kernel, rows, columns, precision=precision, store=store, threads=1, truncation=truncation
    )


@remembered
def definition(kernel: Kernel, x1: Tensor, x2: Tensor | None) -> Tensor:
    """The dense matrix in float64, with the variances, White included, on the diagonal of a square one."""
    dense = kernel(x1.double(), (x1 if x2 is None else x2).double()).clone()
    if x2 is None:
        dense.diagonal().copy_(kernel.diagonal(x1.double()))
    return dense


def bounds(
    contestant: Contestant, kernel: Kernel, x1: Tensor, x2: Tensor | None, matrix: KernelMatrix
) -> Tensor:
    """How far each entry may be off."""
    inputs = contestant.inputs
    if matrix.storage != "on_the_fly":
        inputs = contestant.stored_inputs or inputs
    return _bounds(kernel, x1, x2, matrix.precision, inputs, contestant.expands(matrix.precision))


@remembered
def _bounds(
    kernel: Kernel, x1: Tensor, x2: Tensor | None, precision: Precision, inputs: str, expansion: bool
) -> Tensor:
    bound = entry_bound(kernel, x1, x2, precision, inputs=inputs, expansion=expansion)
    if x2 is None:
        bound.diagonal().copy_(kernel.diagonal(x1.double()).abs() * 2 * precision.vectors.unit_roundoff)
    return bound


def assert_product_is_right(
    contestant: Contestant, matrix: KernelMatrix, kernel: Kernel, x1: Tensor, x2: Tensor | None, v: Tensor
) -> None:
    """Compare K v, with noise on a square matrix, with the definition."""
    exact = definition(kernel, x1, x2)
    entries = bounds(contestant, kernel, x1, x2, matrix)
    noise = torch.linspace(0.1, 0.3, len(x1), dtype=torch.float64) if x2 is None else None
    result = matrix.matmul(contestant.to(v), None if noise is None else contestant.to(noise)).cpu()
    if noise is not None:
        exact = exact + torch.diag(noise)
    assert result.dtype == v.dtype
    assert result.shape == (len(x1), v.shape[1])
    error = (result.double() - exact @ v.double()).abs()
    limit = product_bound(exact, entries, v, matrix.precision, contestant.run)
    assert bool((error <= limit).all()), f"{(error / limit).max().item():.3g} times the bound"


def with_outliers(n: int, d: int, seed: int = 0) -> Tensor:
    """Normal points, some of which lie far out: alone, in a cluster, and twice at the same place."""
    x = random(n, d, seed=seed)
    x[n // 3 : n // 3 + n // 50] *= 40.0
    x[n // 2 : n // 2 + n // 50] += 60.0
    x[n - n // 100 :] = x[n // 2]
    return x


def clusters(n: int, d: int, apart: float = 4000.0, seed: int = 0, count: int = 3) -> Tensor:
    """Clusters far apart, as many rows of each, mixed up, some of them repeated."""
    x = random(n, d, seed=seed)
    x[1 : n // 6 : 2] = x[: n // 6 - 1 : 2]
    x[:, 0] += apart * (torch.arange(n) * count // n)
    return x[torch.randperm(n, generator=torch.Generator().manual_seed(seed + 1))]


def assert_same(one: KernelMatrix, two: KernelMatrix, contestant: Contestant, inputs: bool = False) -> None:
    """Products and gradients of both are the same, to the bit."""
    u, v = (contestant.to(random(size, 2, seed=size)) for size in one.shape)
    assert torch.equal(one.matmul(v, None), two.matmul(v, None)), "products differ"
    (by_name, *points), (other, *others) = (matrix.bilinear_gradient(u, v, inputs) for matrix in (one, two))
    for name in by_name:
        assert torch.equal(by_name[name], other[name]), f"gradients in {name} differ"
    for a, b in zip(points, others, strict=True):
        assert (a is None and b is None) or (a is not None and b is not None and torch.equal(a, b)), (
            "gradients in points differ"
        )
