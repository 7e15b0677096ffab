from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from solvers.systems import columns

from halfgp.operators import as_operator
from halfgp.precision import DOUBLE, HALF, SINGLE
from halfgp.solvers.inner_products import Direct, Log

SYSTEM = as_operator(torch.eye(4, dtype=torch.float64))


@given(st.integers(1, 200), st.integers(-20, 15), st.integers(-20, 15))
def test_log_products_agree_with_plain_ones_at_any_scale(n, left, right):
    u, v = columns(n, 3, 1) * 10.0**left, columns(n, 3, 2) * 10.0**right
    log = Log(SYSTEM, SINGLE)
    expected = (u * v).sum(0)
    magnitude = (u * v).abs().sum(0)
    got = log.value(log(u, v))
    assert bool(((got - expected).abs() <= 64 * SINGLE.eps * magnitude).all())


def test_log_products_have_signs_and_zeros():
    log = Log(SYSTEM, DOUBLE)
    u = torch.tensor([[1.0, 1.0, 0.0], [2.0, -1.0, 0.0]], dtype=torch.float64)
    v = torch.tensor([[-1.0, 1.0, 1.0], [-1.0, 1.0, 1.0]], dtype=torch.float64)
    torch.testing.assert_close(log.value(log(u, v)), torch.tensor([-3.0, 0.0, 0.0], dtype=torch.float64))


def test_log_ratios_survive_where_values_overflow():
    log = Log(SYSTEM, SINGLE)
    u = torch.full((10, 1), 1e25, dtype=torch.float64)
    product = log(u, u)
    assert log.ratio(product, product).item() == pytest.approx(1.0)


def test_direct_products_in_half_overflow_as_half_does():
    direct = Direct(SYSTEM, HALF)
    u = torch.full((1000, 1), 10.0, dtype=torch.float64)
    assert torch.isinf(direct(u, u)).all()
    assert not torch.isinf(Direct(SYSTEM, DOUBLE)(u, u)).any()
    tiny = torch.full((10, 1), 1e-5, dtype=torch.float64)
    assert direct(tiny, tiny).item() == 0.0
