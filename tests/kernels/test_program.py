"""A program computes what the kernel defines, with as few nodes as its structure needs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from halfgp import RBF, Constant, Linear, Matern, Periodic, RationalQuadratic, White
from halfgp.kernels import Kernel, Program

X = torch.randn(6, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = torch.randn(4, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def evaluate(program: Program) -> Tensor:
    values = [leaf.between(leaf.scaled(X), leaf.scaled(Y)) for leaf in program.leaves]
    return program.evaluate(values, (len(X), len(Y)))


def kinds(kernel: Kernel) -> list[str]:
    return [node.kind for node in kernel.program().nodes]


@pytest.mark.parametrize(
    "kernel",
    [
        RBF([0.5, 2.0]),
        Matern(2.5, 0.3, active_dims=[1]),
        3.0 * RationalQuadratic(0.4),
        Periodic([1.0, 2.0], [0.5, 0.7]),
        Constant(2.0),
        White(),
        Linear() * White(),
        Constant(2.0) * Constant(3.0) + 1.0,
        White() + 0.5 * Linear([1.0, 2.0]),
        2.0 * (RBF() + 3.0 * Matern(0.5) * Constant(0.1) + 1.0 + White()) * (Linear() + 4.0 * RBF(2.0)),
    ],
    ids=repr,
)
def test_a_program_computes_the_definition(kernel: Kernel) -> None:
    torch.testing.assert_close(evaluate(kernel.program()), kernel(X, Y), rtol=1e-12, atol=1e-14)


def test_nodes_refer_to_earlier_ones_only() -> None:
    program = ((RBF() + 2.0 * Matern()) * (Linear() + 1.0) + Periodic()).program()
    for position, node in enumerate(program.nodes):
        if node.kind in ("add", "multiply"):
            assert max(node.a, node.b) < position


def test_factors_reach_the_root() -> None:
    kernel = 2.0 * RBF() * Constant(3.0) * (0.5 * Matern())
    program = kernel.program()
    assert program.scale.item() == 3.0
    assert program.constants == ()
    assert kinds(kernel) == ["leaf", "leaf", "multiply"]


def test_factors_within_a_sum_become_constants_and_numbers_become_one() -> None:
    kernel = 1.0 + (RBF() + 2.0 * Matern() + Constant(0.5))
    assert kinds(kernel) == ["leaf", "leaf", "constant", "multiply", "add", "constant", "add"]
    assert [c.item() for c in kernel.program().constants] == [2.0, 1.5]
    assert kernel.program().scale.item() == 1.0


def test_white_leaves_no_trace() -> None:
    assert kinds(RBF() + White()) == ["leaf"]
    assert kinds(White()) == kinds(RBF() * White()) == ["constant"]
    assert White().program().constants[0].item() == 0.0
    assert (RBF() * White()).program().leaves == ()


def test_leaves_know_their_columns() -> None:
    assert RBF(active_dims=[1, 0]).program().leaves[0].columns == (1, 0)
    assert RBF().program().leaves[0].columns is None


def test_a_program_is_differentiable_in_every_parameter_and_in_the_points() -> None:
    kernel = 2.0 * (RationalQuadratic(0.7) + 0.5 * Periodic(1.3) + Constant(0.2)) * Linear([1.0, 2.0])
    leaf = kernel.detached(requires_grad=True)
    parameters = [p.value for _, p in leaf.named_parameters()]
    found = torch.autograd.grad(evaluate(leaf.program()).square().sum(), parameters)
    wanted = torch.autograd.grad(leaf(X, Y).square().sum(), parameters)
    for g, w in zip(found, wanted, strict=True):
        torch.testing.assert_close(g, w, rtol=1e-10, atol=1e-10)
