from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import torch
from solvers.systems import columns, kernel_operator, with_spectrum

from halfgp.errors import InputError
from halfgp.operators.adapters import as_operator
from halfgp.operators.base import rung_name
from halfgp.precision import HALF


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_half_entries_are_rounded_relative_to_the_largest(scale):
    a = with_spectrum(torch.linspace(1, 2, 30)) * scale
    for matrix in (a, a.numpy(), scipy.sparse.csr_array(a.numpy())):
        rows = as_operator(matrix).with_precision("half").rows(torch.arange(30)).double()
        error = (rows - a).abs()
        assert float(error.max()) <= HALF.unit_roundoff * float(a.abs().max())
        assert float(error.max()) > 0


def test_rungs_of_an_operator_include_16_bit_entries_only_where_it_holds_them():
    names = [rung_name(rung) for rung in as_operator(kernel_operator()).rungs()]
    assert names == ["half inputs", "single", "double"]
    stored = kernel_operator(precision="half", storage="stored")
    assert rung_name(as_operator(stored).rungs()[0]) == "half entries"


def test_products_agree_on_all_rungs_within_their_format():
    op = kernel_operator()
    v = columns(200, 3)
    exact = op.with_precision("double").to_dense() @ v
    system = as_operator(op)
    for name, bound in (("half", 5e-3), ("single", 1e-5), ("double", 1e-12)):
        got = system.with_precision(name).matmul(v)
        assert float((got - exact).norm() / exact.norm()) < bound


def test_rows_of_a_callable_are_refused():
    with pytest.raises(InputError, match="products only"):
        as_operator((lambda v: v, 4)).rows(torch.tensor([0]))


def test_an_object_with_shape_and_matmul_is_enough():
    class Twice:
        shape = (3, 3)

        def __matmul__(self, v):
            return 2 * v

    v = columns(3, 2)
    torch.testing.assert_close(as_operator(Twice()).matmul(v), 2 * v)
    with pytest.raises(InputError, match="square"):
        as_operator(np.ones((2, 3)))
