"""Our operator under linear_operator's own test cases, and what those do not ask."""

from __future__ import annotations

import unittest

import pytest
import torch
from linear_operator.operators import DiagLinearOperator
from linear_operator.test.linear_operator_test_case import (
    LinearOperatorTestCase,
    RectangularLinearOperatorTestCase,
)

from halfgp.integrations.gpytorch import KernelCovariance
from halfgp.kernels import RBF

# linear_operator's own cases draw probes at random and build operators from lists.
pytestmark = pytest.mark.filterwarnings("ignore::linear_operator.utils.warnings.NumericalWarning")


def covariance(n1: int, n2: int | None, *batch: int) -> KernelCovariance:
    generator = torch.Generator().manual_seed(0)
    x1 = torch.randn(*batch, n1, 3, generator=generator)
    x2 = x1 if n2 is None else torch.randn(*batch, n2, 3, generator=generator)
    lengths = torch.rand(*batch, 3, generator=generator) + 0.5
    kernel = 1.0 * RBF(lengthscale=[1.0] * 3)
    scale = torch.rand(torch.Size(batch), generator=generator) + 0.5
    return KernelCovariance(x1, x2, scale, lengths, kernel=kernel)


def dense(op: KernelCovariance) -> torch.Tensor:
    """By the formula, in torch."""
    x1, x2, scale, lengths = op.representation()
    z1, z2 = x1 / lengths[..., None, :], x2 / lengths[..., None, :]
    squared = (z1[..., :, None, :] - z2[..., None, :, :]).square().sum(-1)
    return scale[..., None, None] * torch.exp(-0.5 * squared)


class TestSquare(LinearOperatorTestCase, unittest.TestCase):
    seed = 0
    should_call_lanczos = True
    should_call_cg = True

    def create_linear_op(self):
        return covariance(5, None).requires_grad_(True)

    def evaluate_linear_op(self, linear_op):
        return dense(linear_op)


class TestSquareBatch(LinearOperatorTestCase, unittest.TestCase):
    seed = 0

    def create_linear_op(self):
        return covariance(5, None, 2).requires_grad_(True)

    def evaluate_linear_op(self, linear_op):
        return dense(linear_op)


class TestRectangular(RectangularLinearOperatorTestCase, unittest.TestCase):
    seed = 0

    def create_linear_op(self):
        return covariance(5, 7).requires_grad_(True)

    def evaluate_linear_op(self, linear_op):
        return dense(linear_op)


class TestRectangularMultiBatch(RectangularLinearOperatorTestCase, unittest.TestCase):
    seed = 0

    def create_linear_op(self):
        return covariance(4, 6, 3, 2).requires_grad_(True)

    def evaluate_linear_op(self, linear_op):
        return dense(linear_op)


def test_a_diagonal_on_a_matrix_between_other_points_is_added_as_it_is():
    op = covariance(5, 5)
    noisy = op + DiagLinearOperator(torch.ones(5))
    torch.testing.assert_close(noisy.to_dense(), dense(op) + torch.eye(5))
    rhs = torch.ones(5, 1)
    torch.testing.assert_close(noisy @ rhs, (dense(op) + torch.eye(5)) @ rhs)


def test_products_of_half_precision_are_near():
    op = covariance(50, None)
    half = op.with_precision("half")
    v = torch.ones(50, 2)
    assert half.precision == "half"
    torch.testing.assert_close(half @ v, dense(op) @ v, rtol=5e-3, atol=5e-3)
    assert not torch.equal(half @ v, op @ v)
