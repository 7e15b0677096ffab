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
    contestant: Contestant, kernel: Kernel, x1: Tensor, x2: Tensor | None, name: str, store: bool = False
) -> KernelMatrix:
    """The matrix of the contestant's backend, in a precision by its name."""
    precision = Precision.resolve(name)
    if precision.is_sixteen_bit and not store:
        precision = precision.with_entries(SINGLE)
    points = [None if x is None else contestant.to(x) for x in (x1, x2)]
    return contestant.backend.bind(kernel, *points, precision=precision, store=store, threads=1)  # type: ignore[arg-type]


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
