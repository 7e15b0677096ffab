"""Solves, fits and predictions on a device: nothing of the size of the rows comes back, and answers agree."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from contracts.device import RemoteDevice, on_device
from contracts.textbook import points, targets
from torch import Tensor

from halfgp import RBF, ExactGP, KernelOperator, PivotedCholesky, SparseInverseCholesky, cg

N = 400


@pytest.fixture
def rows() -> tuple[Tensor, Tensor]:
    x = points(N)
    return x, targets(x)[:, 0]


@pytest.mark.parametrize(
    "recipe", [None, PivotedCholesky(rank=20), SparseInverseCholesky(neighbours=8, landmarks=20)], ids=repr
)
def test_a_solve_moves_nothing_of_the_size_of_the_rows(rows: tuple[Tensor, Tensor], recipe: object) -> None:
    x, b = rows
    wanted = cg(
        KernelOperator(RBF(0.9), x, noise=0.1, backend="reference"), b, preconditioner=recipe, tol=0.01
    )
    with RemoteDevice() as device:
        operator = KernelOperator(RBF(0.9), on_device(x), noise=0.1)
        found = cg(operator, on_device(b), preconditioner=recipe, tol=0.01)
        assert found.solution.device == operator.device
        assert found.converged
    # What the device holds is what the CPU computes, bit by bit: the stand-in has the CPU's arithmetic.
    assert torch.equal(found.solution.held, wanted.solution)
    assert device.largest["to host"] < N


FITS: dict[str, dict[str, Any]] = {
    "by a factor": {"method": "cholesky"},
    "by steps": {"method": "cg", "training__subset": 0, "training__steps": 2, "variances__method": "local"},
}


@pytest.mark.parametrize("case", FITS)
def test_a_fit_on_the_device_predicts_the_same(rows: tuple[Tensor, Tensor], case: str) -> None:
    x, y = rows
    new, options = points(30, seed=7), FITS[case]
    asked = {"return_std": True, "return_error": True}
    wanted = ExactGP(backend="reference", **options).fit(x, y).predict(new, **asked)
    with RemoteDevice() as device:
        model = ExactGP(backend="reference", **options).fit(on_device(x), on_device(y))
        found = model.predict(new, **asked)  # points come to where the rows are
    # With steps, SciPy still solves with the sparse factor of neighbours, on the CPU.
    assert case == "by steps" or device.largest["to host"] < N
    torch.testing.assert_close(torch.tensor(found.mean), torch.tensor(wanted.mean))
    torch.testing.assert_close(torch.tensor(found.std), torch.tensor(wanted.std))
