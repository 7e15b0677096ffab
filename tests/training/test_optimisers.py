from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from halfgp.training.optimisers import LBFGS, Adam, make_optimiser


def quadratic(condition=100.0, p=6):
    """The gradient of a quadratic, and its minimum (p,)."""
    generator = torch.Generator().manual_seed(0)
    q = torch.linalg.qr(torch.randn(p, p, generator=generator, dtype=torch.float64))[0]
    hessian = (
        q @ torch.diag(torch.logspace(0, -torch.tensor(condition).log10(), p, dtype=torch.float64)) @ q.T
    )
    minimum = torch.randn(p, generator=generator, dtype=torch.float64)
    return (lambda x: hessian @ (x - minimum)), minimum


def rosenbrock_gradient(x):
    """Of 5 (y - x²)² + (1 - x)²: a bent valley, with its minimum at (1, 1)."""
    a, b = x
    return torch.stack([-20.0 * a * (b - a * a) - 2.0 * (1.0 - a), 10.0 * (b - a * a)])


def walk(optimiser, gradient, start, steps):
    path = [start]
    for _ in range(steps):
        path.append(optimiser.step(path[-1], gradient(path[-1])))
    return path


def test_adam_is_that_of_torch():
    gradient, _ = quadratic()
    start = torch.zeros(6, dtype=torch.float64)
    leaf = start.clone().requires_grad_(True)
    reference = torch.optim.Adam([leaf], lr=0.05)
    path = walk(Adam(0.05), gradient, start, 40)
    for vector in path[1:]:
        leaf.grad = gradient(leaf.detach())
        reference.step()
        torch.testing.assert_close(vector, leaf.detach(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("condition", [1.0, 10.0, 1e3])
def test_lbfgs_finds_the_minimum_of_a_quadratic(condition):
    gradient, minimum = quadratic(condition)
    path = walk(LBFGS(), gradient, torch.zeros(6, dtype=torch.float64), 60)
    torch.testing.assert_close(path[-1], minimum, rtol=0, atol=1e-6)


@pytest.mark.parametrize("start", [[-1.2, 1.0], [0.0, 3.0], [2.0, -2.0]])
def test_lbfgs_follows_a_bent_valley(start):
    path = walk(LBFGS(), rosenbrock_gradient, torch.tensor(start, dtype=torch.float64), 120)
    torch.testing.assert_close(path[-1], torch.ones(2, dtype=torch.float64), rtol=0, atol=1e-5)


def test_no_step_of_lbfgs_is_longer_than_it_may_be():
    path = walk(LBFGS(longest=0.3), rosenbrock_gradient, torch.tensor([-1.2, 1.0], dtype=torch.float64), 30)
    for a, b in pairwise(path):
        assert float((b - a).abs().max()) <= 0.3 * (1 + 1e-12)


def test_curvature_that_is_negative_is_not_learned():
    """On a hilltop the gradient points down either side; the step still goes down."""
    optimiser = LBFGS()
    path = walk(optimiser, lambda x: -x, torch.tensor([0.1, -0.2], dtype=torch.float64), 5)
    assert not optimiser.moves
    norms = [float(x.norm()) for x in path]
    assert norms == sorted(norms)


def test_lbfgs_keeps_the_latest_pairs():
    gradient, _ = quadratic()
    optimiser = LBFGS(pairs=3)
    path = walk(optimiser, gradient, torch.zeros(6, dtype=torch.float64), 7)
    assert len(optimiser.moves) == 3
    assert torch.equal(optimiser.moves[-1], path[6] - path[5])


@pytest.mark.parametrize("name", ["adam", "lbfgs"])
@pytest.mark.parametrize("after", [0, 1, 2, 9])
def test_a_restored_state_goes_on_with_the_same_bits(name, after):
    gradient, _ = quadratic()
    start = torch.full((6,), 0.3, dtype=torch.float64)
    whole = walk(make_optimiser(name, 0.05), gradient, start, after + 6)
    first = make_optimiser(name, 0.05)
    path = walk(first, gradient, start, after)
    state = {key: tensor.clone() for key, tensor in first.state().items()}
    second = make_optimiser(name, 0.05)
    second.restore(state)
    for a, b in zip(walk(second, gradient, path[-1], 6), whole[after:], strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("name", ["adam", "lbfgs"])
def test_a_gradient_of_zero_moves_nothing(name):
    start = torch.ones(3, dtype=torch.float64)
    for vector in walk(make_optimiser(name, 0.05), torch.zeros_like, start, 3):
        assert torch.equal(vector, start)
