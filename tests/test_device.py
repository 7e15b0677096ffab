"""Solves, fits and predictions on a device: nothing of the size of the rows comes back, and answers agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from contracts.device import Launched, RemoteDevice, on_device
from contracts.textbook import points, targets
from torch import Tensor

from halfgp import RBF, ExactGP, KernelOperator, PivotedCholesky, SparseInverseCholesky, cg
from halfgp.model.trend import LinearTrend

pytestmark = pytest.mark.elsewhere  # a GPU, by a stand-in
N = 300


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


def predictions(model: ExactGP) -> tuple[Tensor, Tensor]:
    found = model.predict(points(30, seed=7), return_std=True, return_error=True)  # points come to the rows
    return torch.tensor(found.mean), torch.tensor(found.std)


def test_a_fit_by_a_factor_moves_nothing_of_the_size_of_the_rows_and_predicts_the_same(
    rows: tuple[Tensor, Tensor],
) -> None:
    x, y = rows
    wanted = predictions(ExactGP(backend="reference", method="cholesky").fit(x, y))
    with RemoteDevice() as device:
        found = predictions(ExactGP(backend="reference", method="cholesky").fit(on_device(x), on_device(y)))
    assert device.largest["to host"] < N
    torch.testing.assert_close(found, wanted)


BY_PRODUCTS: dict[str, dict[str, Any]] = {
    "of a subset": {"training__subset": 100, "training__subset_iterations": 2},
    "of all rows": {"training__subset": 0, "training__steps": 1},
}


@pytest.mark.parametrize("options", BY_PRODUCTS.values(), ids=BY_PRODUCTS.keys())
def test_a_fit_by_products_moves_nothing_of_the_size_of_the_rows_and_predicts_the_same(
    rows: tuple[Tensor, Tensor], options: dict[str, Any]
) -> None:
    x, y = rows
    more = {"backend": "reference", "method": "cg", "variances__method": "local", **options}
    wanted = predictions(ExactGP(**more).fit(x, y))
    with RemoteDevice() as device:
        found = predictions(ExactGP(**more).fit(on_device(x), on_device(y)))
    assert device.largest["to host"] < N
    torch.testing.assert_close(found, wanted)


ANSWERS: dict[str, Callable[[ExactGP], Any]] = {
    "covariance": lambda model: model.predict(points(5, seed=7), return_cov=True).cov,
    "interval": lambda model: model.predict_interval(points(5, seed=7)).upper,
    "sample": lambda model: model.sample(points(5, seed=7), 2),
    "gradient": lambda model: model.predict_gradient(points(5, seed=7))[1],
    "leave one out": lambda model: model.leave_one_out().mean,
    "likelihood": lambda model: model.log_marginal_likelihood_at(model.theta)[1],
}


@pytest.mark.parametrize("mean", ["linear", lambda x: x[:, 0]], ids=["linear", "a function"])
def test_whatever_a_model_on_the_device_is_asked_it_answers_the_same(
    rows: tuple[Tensor, Tensor], mean: Any
) -> None:
    x, y = rows[0][:100], rows[1][:100]
    options: dict[str, Any] = {"backend": "reference", "mean": mean}
    model = ExactGP(**options).fit(x, y)
    wanted = {name: ask(model) for name, ask in ANSWERS.items()}
    with RemoteDevice():
        model = ExactGP(**options).fit(on_device(x), on_device(y))
        for name, ask in ANSWERS.items():
            torch.testing.assert_close(torch.tensor(ask(model)), torch.tensor(wanted[name]), msg=name)


def test_a_plane_through_rows_on_the_device_is_found_there(rows: tuple[Tensor, Tensor]) -> None:
    x, y = rows[0], rows[1][:, None]
    wanted = LinearTrend.through(x, y)
    with RemoteDevice() as device:
        found = LinearTrend.through(on_device(x), on_device(y))
    assert device.largest["to host"] == 9  # a triangle
    torch.testing.assert_close(found.slopes.held, wanted.slopes)  # type: ignore[attr-defined]


@pytest.fixture
def triton(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The backend of a GPU, its kernels interpreted, on the stand-in."""
    pytest.importorskip("triton")
    from halfgp.backends.triton import BACKEND, gradient, product, runs

    for module, name in (
        (product, "product_kernel"),
        (product, "block_kernel"),
        (gradient, "gradient_kernel"),
        (runs, "add_kernel"),
    ):
        monkeypatch.setattr(module, name, Launched(getattr(module, name)))
    return BACKEND


def test_the_kernels_of_a_gpu_move_nothing_of_the_size_of_the_rows_and_pass_zeros_by(
    rows: tuple[Tensor, Tensor], triton: Any
) -> None:
    """A solve and a gradient in half, on rows most of which are far apart."""
    x, b = 20.0 * rows[0][:, :1], rows[1]
    wanted = cg(KernelOperator(RBF(0.9), x, noise=1.0, backend="reference", precision="single"), b, tol=1e-2)
    with RemoteDevice() as device:
        operator = KernelOperator(RBF(0.9), on_device(x), noise=1.0, backend=triton, precision="half")
        assert operator.skipped > 0.1
        found = cg(operator, on_device(b), tol=1e-2)
        gradient = operator.bilinear_gradient(found.solution, found.solution)
    assert device.largest["to host"] < N
    assert set(gradient) == {"lengthscale"}
    # Both residuals are below the tolerance, and no eigenvalue is below the noise.
    error = (found.solution.held.double() - wanted.solution.double()).norm()
    assert error <= 2 * 1e-2 * b.norm() / 1.0


def test_a_fit_on_a_gpu_moves_nothing_of_the_size_of_the_rows(
    rows: tuple[Tensor, Tensor], triton: Any
) -> None:
    x, y = rows[0][:260], rows[1][:260]  # more than the 16 x 16 covariances of pivots, which the CPU factors
    options: dict[str, Any] = {
        "method": "cg",
        "precision": "half",
        "variances__method": "local",
        "training__subset": 0,
        "training__steps": 1,
        "training__probes": 2,
    }
    with RemoteDevice() as device:
        model = ExactGP(backend=triton, **options).fit(on_device(x), on_device(y))
        found = model.predict(points(5, seed=7), return_std=True)
    assert model.posterior.operator.backend.name == "triton"
    assert device.largest["to host"] < len(x)
    assert torch.isfinite(torch.tensor(found.mean)).all()
