"""Matrices as a format sees them, against rounding one entry or one operation at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from halfgp import RBF, Constant, Linear, Matern, Periodic, RationalQuadratic
from halfgp.analysis import as_format, kernel_matrix
from halfgp.analysis.matrices import FORMATS
from halfgp.errors import InputError
from halfgp.precision import HALF

KERNELS = {
    "rbf": RBF(0.7),
    "matern12": 1.3 * Matern(0.5, 0.7),
    "matern32": Matern(1.5, [0.3, 0.5, 2.0]),
    "matern52": 0.3 * Matern(2.5, 2.0),
    "rational_quadratic": RationalQuadratic(1.5, 0.7),
    "periodic": Periodic(2.0, 0.7),
    "mixed": 2.0 * RBF() * Linear(0.5) + Constant(0.25),
}


def points(n: int = 50, d: int = 3) -> torch.Tensor:
    return torch.randn(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("rounding", ["entries", "inputs", "evaluation"])
def test_in_double_all_are_the_kernel(name, rounding):
    x = points()
    found = kernel_matrix(KERNELS[name], x, rounding=rounding)
    torch.testing.assert_close(found, KERNELS[name](x, x), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("fmt", ["half", "bfloat16", "single"])
@pytest.mark.parametrize("rounding", ["entries", "inputs", "evaluation"])
def test_matrices_are_symmetric_and_as_near_as_the_format_allows(name, fmt, rounding):
    x = points()
    exact, found = KERNELS[name](x, x), kernel_matrix(KERNELS[name], x, fmt, rounding=rounding)
    assert torch.equal(found, found.T)
    if rounding != "inputs":  # then they hold values of the format
        assert torch.equal(found, found.to(FORMATS[fmt].dtype).double())
    unit = FORMATS[fmt].unit_roundoff * float(exact.abs().max())
    error = float((found - exact).abs().max())
    # One rounding of an entry; of points some lengthscales long; of a few dozen operations on such.
    assert 0 < error <= {"entries": 1, "inputs": 40, "evaluation": 160}[rounding] * unit


def test_entries_are_rounded_once():
    x = points()
    expected = np.float16(np.exp(-0.5 * ((x[:, None] - x) ** 2).sum(dim=2).numpy()))
    found = kernel_matrix(RBF(), x, "half").numpy()
    # NumPy's exp and torch's may differ in the last bit of double, and then across a tie.
    assert np.mean(found == expected) > 0.999


def test_evaluation_is_operation_by_operation():
    x = np.float16(points(20, 1).numpy()[:, 0])
    squared = (x[:, None] - x) ** 2
    r = np.sqrt(squared)
    expected = np.exp(np.float16(np.float16(np.float16(-0.5) * r) * r))
    assert expected.dtype == np.float16
    found = kernel_matrix(
        RBF(), torch.from_numpy(x[:, None].astype(np.float64)), "half", rounding="evaluation"
    )
    # exp of half is computed in single by either: they may part across a tie.
    assert np.mean(found.numpy() == expected) > 0.98
    assert np.abs(found.numpy() - expected).max() <= 2.0**-11


def test_rounded_points_leave_the_matrix_positive_semidefinite_and_rounded_entries_do_not():
    x = points(200, 1)
    assert float(torch.linalg.eigvalsh(kernel_matrix(RBF(2.0), x, "half", rounding="inputs"))[0]) > -1e-12
    assert float(torch.linalg.eigvalsh(kernel_matrix(RBF(2.0), x, "half"))[0]) < -1e-4


def test_rounded_points_are_those_of_the_reference_backend():
    from halfgp import KernelOperator

    x, kernel = points(), Matern(1.5, 0.7)
    operator = KernelOperator(kernel, x, precision="half", backend="reference")
    found = kernel_matrix(kernel, x, "half", rounding="inputs")
    # The operator computes entries in single from the same points, and zeroes what half could not hold.
    torch.testing.assert_close(torch.as_tensor(operator.to_dense()).double(), found, rtol=1e-5, atol=2.0**-24)


def test_mistakes_are_named():
    with pytest.raises(InputError, match="`rounding`"):
        kernel_matrix(RBF(), points(), "half", rounding="both")
    with pytest.raises(InputError, match="overflows half"):
        kernel_matrix(1e5 * RBF(), points(), "half")
    with pytest.raises(InputError, match="overflows half"):
        kernel_matrix(Matern(1.5), 300.0 * points(), "half", rounding="evaluation")
    with pytest.raises(InputError, match="finite"):
        kernel_matrix(RBF(), [[np.inf]])
    with pytest.raises(InputError, match="quarter"):
        as_format("quarter")
    assert as_format("half") is HALF
    assert as_format(HALF) is HALF
