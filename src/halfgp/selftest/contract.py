"""The contract of a backend: what each function here asks must hold for every kernel in every format.

Each takes a `Contestant` and raises an `AssertionError` where it is further from the definition than the
formats allow. The tests run them on every backend of the CPU, `halfgp doctor --selftest` on a user's device.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from halfgp.kernels import (
    RBF,
    Constant,
    Kernel,
    Linear,
    Matern,
    Periodic,
    RationalQuadratic,
    White,
)
from halfgp.precision import Precision
from halfgp.selftest.bounds import gradient_tolerance
from halfgp.selftest.checks import (
    assert_product_is_right,
    assert_same,
    bind,
    bounds,
    clusters,
    definition,
    random,
)
from halfgp.selftest.contestant import Contestant
from halfgp.truncation import Truncation

# On three columns: every profile, and every way to put kernels together.
KERNELS: dict[str, Kernel] = {
    "rbf": RBF(lengthscale=[0.8, 1.5, 2.0]),
    "matern12": Matern(0.5, lengthscale=1.3),
    "matern32": Matern(1.5, lengthscale=[1.0, 2.0], active_dims=[2, 0]),
    "matern52": Matern(2.5, lengthscale=0.7),
    "rational_quadratic": RationalQuadratic(alpha=0.6, lengthscale=1.1),
    "periodic": Periodic(period=[1.5, 2.0, 3.0], lengthscale=2.0),
    "linear": Linear(variance=[0.3, 1.0, 2.0]),
    "constant": Constant(0.7),
    "white": White(0.5),
    "scaled": 300.0 * RBF(lengthscale=1.2),
    "sum": 0.5 * RBF() + 3.0 * Matern(1.5, active_dims=[0]) + White(0.2) + 0.1,
    "product": 2.0 * Linear() * Periodic() * RationalQuadratic(),
    "nested": (RBF() + 0.5 * Linear(active_dims=[1]))
    * (Matern(2.5) + 2.0 * (Matern(0.5) * Constant(0.3) + 1.0)),
    "noise in a product": RBF() * White(2.0) + Matern(0.5),
}


def check_square_product(contestant: Contestant, kernel: Kernel, name: str, store: bool) -> None:
    """K v of a square matrix with noise."""
    x = random(67, 3)
    matrix = bind(contestant, kernel, x, None, name, store)
    assert_product_is_right(contestant, matrix, kernel, x, None, random(67, 5, seed=1))


def check_rectangular_product(contestant: Contestant, kernel: Kernel, name: str, store: bool) -> None:
    """K v between two sets of points, of single vectors."""
    x1, x2 = random(35, 3), random(51, 3, seed=2)
    matrix = bind(contestant, kernel, x1, x2, name, store)
    assert_product_is_right(contestant, matrix, kernel, x1, x2, random(51, 3, seed=1).float())


def check_block(contestant: Contestant, kernel: Kernel, name: str, store: bool) -> None:
    """Dense entries, with exact variances on the diagonal."""
    x = random(40, 3)
    matrix = bind(contestant, kernel, x, None, name, store)
    rows, columns = torch.tensor([3, 0, 39]), torch.tensor([7, 3, 20, 39])
    exact, limit = definition(kernel, x, None), bounds(contestant, kernel, x, None, matrix)
    i, j = contestant.to(rows), contestant.to(columns)
    whole_rows, whole_columns = matrix.block(i, None).cpu(), matrix.block(None, j).cpu()
    for block in (matrix.block(i, j).cpu(), whole_rows[:, columns], whole_columns[rows]):
        assert block.dtype == matrix.precision.vectors.dtype
        error = (block.double() - exact[rows][:, columns]).abs()
        assert bool((error <= limit[rows][:, columns]).all())


def check_gradient(contestant: Contestant, kernel: Kernel, name: str, square: bool) -> None:
    """The gradient of a bilinear form, against autograd through the definition in double."""
    x1, x2, u, v = gradient_problem(square)
    matrix = bind(contestant, kernel, x1, x2, name)
    gradients, in_x1, in_x2 = matrix.bilinear_gradient(contestant.to(u), contestant.to(v), True)
    assert list(gradients) == [key for key, _ in kernel.named_parameters()]
    assert (in_x2 is None) == square
    computed = [*gradients.values(), *(g for g in (in_x1, in_x2) if g is not None)]
    exact, magnitudes = gradients_by_definition(kernel, square)
    # No point is so far from all others that what 16 bits round to zero were more than the rest's last digit.
    precision, expansion = matrix.precision, contestant.expands(matrix.precision, gradient=True)
    if contestant.single_gradients and precision.is_sixteen_bit:
        precision, expansion = Precision.resolve("single"), False
    tolerance = gradient_tolerance(kernel, x1, x2, precision, expansion=expansion, run=contestant.run)
    for found, wanted, magnitude in zip(computed, exact, magnitudes, strict=True):
        assert found.dtype == torch.float64
        assert found.shape == wanted.shape
        assert bool(((found.cpu() - wanted).abs() <= tolerance * magnitude).all()), "gradients differ"


def check_zeros(contestant: Contestant, kernel: Kernel, name: str, store: bool) -> None:
    """Tiles of zeros change no bit, whether they are passed by or not."""
    x = clusters(256, 3, count=2)
    whole, cut = (
        bind(contestant, kernel, x, None, name, store, Truncation(skip=skip)) for skip in (False, True)
    )
    assert whole.skipped == 0.0
    assert_same(whole, cut, contestant, inputs=True)


def gradient_problem(square: bool) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
    """Points of both sides, u and v."""
    x1, x2 = random(12, 3), None if square else random(9, 3, seed=2)
    return x1, x2, random(12, 2, seed=3), random(12 if square else 9, 2, seed=4)


@functools.cache
def gradients_by_definition(kernel: Kernel, square: bool) -> tuple[list[Tensor], list[Tensor]]:
    """Gradients of sum_ij (u v')_ij K_ij by autograd, entry by entry, and these sums without their signs."""
    x1, x2, u, v = gradient_problem(square)
    leaf = kernel.detached(requires_grad=True)
    points = [x.clone().requires_grad_() for x in (x1, x2) if x is not None]
    inputs = [*(parameter.value for _, parameter in leaf.named_parameters()), *points]
    dense = definition(leaf, points[0], points[1] if len(points) > 1 else None)
    totals, magnitudes = ([torch.zeros_like(x) for x in inputs] for _ in range(2))
    for entry, weight in zip(dense.flatten(), (u @ v.T).flatten(), strict=True):
        if not entry.requires_grad:
            continue
        found = torch.autograd.grad(entry, inputs, retain_graph=True, allow_unused=True)
        for k, gradient in enumerate(found):
            if gradient is not None:
                totals[k] += weight * gradient
                magnitudes[k] += (weight * gradient).abs()
    return totals, magnitudes
