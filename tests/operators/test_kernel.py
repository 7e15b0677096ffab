"""An operator is the matrix it stands for, in the library of whoever multiplies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import halfgp
from halfgp import RBF, Constant, KernelOperator, Linear, Matern, Periodic, White
from halfgp.backends import available
from halfgp.backends.reference import ReferenceBackend
from halfgp.errors import InputError
from halfgp.kernels import Kernel
from halfgp.precision import DOUBLE, SINGLE

RNG = np.random.default_rng(0)
X = RNG.standard_normal((12, 3))
Y = RNG.standard_normal((7, 3))
V = RNG.standard_normal((12, 2))
KERNEL = 2.0 * RBF([0.5, 1.0, 2.0]) + White(0.3)


def operator(*args: Any, **options: Any) -> halfgp.KernelOperator:
    return halfgp.KernelOperator(*args, **{"backend": "reference", "precision": "double"} | options)


def dense(kernel: Kernel, x: np.ndarray, noise: float | np.ndarray = 0.0) -> np.ndarray:
    points = torch.tensor(x, dtype=torch.float64)
    matrix = kernel(points, points).numpy().copy()
    matrix[np.diag_indices(len(x))] = kernel.diagonal(points).numpy() + noise
    return matrix


@pytest.mark.parametrize("noise", [0.0, 0.1, np.linspace(0.0, 1.0, 12)], ids=["none", "scalar", "vector"])
def test_products_rows_diagonal_and_dense_form_are_one_matrix_with_noise(noise: float | np.ndarray) -> None:
    op = operator(KERNEL, X, noise=noise)
    expected = dense(KERNEL, X, noise)
    np.testing.assert_allclose(op @ V, expected @ V, rtol=1e-12)
    np.testing.assert_allclose(op.to_dense(), expected, rtol=1e-12)
    np.testing.assert_allclose(op.diagonal(), expected.diagonal(), rtol=1e-14)
    np.testing.assert_allclose(op.rows([3, -1, 3]), expected[[3, -1, 3]], rtol=1e-12)
    np.testing.assert_allclose(op.rows(4), expected[4], rtol=1e-12)
    np.testing.assert_allclose(op.rows(slice(2, 9, 3)), expected[2:9:3], rtol=1e-12)


def test_rectangular_operators_know_neither_white_nor_a_diagonal() -> None:
    op = operator(KERNEL, X, Y)
    expected = KERNEL(torch.tensor(X), torch.tensor(Y)).numpy()
    assert op.shape == (12, 7)
    np.testing.assert_allclose(op.to_dense(), expected, rtol=1e-12)
    np.testing.assert_allclose(op @ V[:7], expected @ V[:7], rtol=1e-12)
    assert operator(White(), X, X).to_dense().any() == np.False_
    with pytest.raises(InputError, match=r"diagonal\(\) needs a square operator"):
        op.diagonal()


@pytest.mark.parametrize("kind", ["float16", "float32", "float64", "int8", "int64", ">f8"])
@pytest.mark.parametrize("shape", [(12,), (12, 1), (12, 3), (12, 0)])
def test_products_return_numpy_in_the_dtype_of_the_vectors(kind: str, shape: tuple[int, ...]) -> None:
    v = (3 * RNG.standard_normal(shape)).astype(kind)
    result = operator(RBF(), X, precision="single") @ v
    assert isinstance(result, np.ndarray)
    assert result.shape == shape
    wide = {"float16": "float32", "int8": "float64", "int64": "float64"}
    assert result.dtype == np.dtype(wide.get(kind, kind))
    np.testing.assert_allclose(result, dense(RBF(), X) @ v.astype(float), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32])
@pytest.mark.parametrize("shape", [(12,), (12, 3)])
def test_products_return_torch_in_the_dtype_of_the_vectors(
    dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    v = torch.ones(shape).to(dtype)
    result = operator(RBF(), X) @ v
    assert isinstance(result, Tensor)
    assert result.shape == shape
    wide = torch.promote_types(dtype, torch.float32) if dtype.is_floating_point else torch.float64
    assert result.dtype == wide


@pytest.mark.parametrize(
    "view",
    [lambda v: np.asfortranarray(v), lambda v: np.repeat(v, 2, axis=1)[:, ::2], lambda v: v[::-1][::-1]],
    ids=["fortran", "strided", "reversed"],
)
def test_memory_layout_does_not_matter(view: Callable[[np.ndarray], np.ndarray]) -> None:
    expected = operator(KERNEL, X) @ V
    np.testing.assert_allclose(operator(KERNEL, view(X)) @ view(V), expected, rtol=1e-13)
    torch_x, torch_v = (torch.tensor(a.T.copy()).T for a in (X, V))
    np.testing.assert_allclose((operator(KERNEL, torch_x) @ torch_v).numpy(), expected, rtol=1e-13)


def test_float32_and_float64_torch_vectors_reach_the_backend_as_they_are() -> None:
    seen: list[int] = []

    class Spy(ReferenceBackend):
        def bind(self, kernel: Kernel, x1: Tensor, x2: Tensor | None, **options: Any) -> Any:  # type: ignore[override]
            matrix = operator(kernel, x1).bound._matrix
            matrix.matmul = lambda v, extra: (seen.append(v.data_ptr()), v)[1]  # type: ignore[method-assign]
            return matrix

    for dtype in (torch.float32, torch.float64):
        v = torch.ones(12, 4, dtype=dtype)
        assert (operator(RBF(), X, backend=Spy()) @ v).data_ptr() == v.data_ptr()
        assert seen.pop() == v.data_ptr()


def test_dense_forms_come_in_the_library_of_the_points() -> None:
    assert isinstance(operator(RBF(), X).to_dense(), np.ndarray)
    assert isinstance(operator(RBF(), X.tolist()).rows([0]), np.ndarray)
    assert isinstance(operator(RBF(), torch.tensor(X)).diagonal(), Tensor)


@pytest.mark.parametrize(
    ("precision", "dtype"), [("half", "float32"), ("single", "float32"), ("double", "float64")]
)
def test_the_dtype_is_that_of_vectors_that_lose_nothing(precision: str, dtype: str) -> None:
    op = operator(RBF(), X, precision=precision)
    assert op.dtype == getattr(torch, dtype)
    assert op.to_dense().dtype == op.diagonal().dtype == getattr(np, dtype)


def test_what_was_chosen_is_reported() -> None:
    op = operator(KERNEL, X, noise=0.1, precision="half")
    assert (op.backend, op.storage, op.shape) == ("reference", "on_the_fly", (12, 12))
    assert op.kernel is KERNEL
    assert op.noise.item() == 0.1
    assert op.device == torch.device("cpu")
    assert op.precision.name == "half"
    assert op.precision.entries is SINGLE
    stored = operator(KERNEL, X, precision="half", storage="stored")
    assert stored.storage == "stored float16"
    assert stored.precision.entries.name == "half"
    assert operator(KERNEL, X, memory_limit=10**6).storage == "stored float64"
    assert "storage='stored float16'" in repr(stored)
    assert halfgp.KernelOperator(RBF(), X, backend="reference").precision.name == "single"


def test_another_precision_starts_from_the_points_as_given() -> None:
    x = X + 1e5  # differences of which single has lost three digits
    half = operator(RBF(), x, noise=0.1, precision="half")
    double = half.with_precision("double")
    np.testing.assert_allclose(double @ V, dense(RBF(), x, 0.1) @ V, rtol=1e-12)
    assert double.precision.entries is DOUBLE
    assert half.precision.name == "half"
    assert double.noise is half.noise


@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.parametrize("precision", ["half", "single", "double"])
@pytest.mark.parametrize("storage", ["on_the_fly", "stored", "auto"])
def test_empty_and_single_row_operators_work(n: int, precision: str, storage: str) -> None:
    op = operator(KERNEL, X[:n], noise=0.1, precision=precision, storage=storage, memory_limit=10**6)
    assert (op @ V[:n]).shape == (n, 2)
    assert op.to_dense().shape == (n, n)
    assert op.diagonal().tolist() == pytest.approx([2.4] * n)
    assert op.rows([]).shape == (0, n)
    assert all(np.isfinite(g).all() for g in op.bilinear_gradient(V[:n], V[:n]).values())


def test_inner_products_are_summed_in_double_in_the_library_of_the_vectors() -> None:
    op = operator(RBF(), X)
    u = V.astype(np.float32)
    np.testing.assert_allclose(op.dot(u, u), (u.astype(float) ** 2).sum(0), rtol=1e-15)
    np.testing.assert_allclose(op.gram(u[:, :1], u), u[:, :1].T.astype(float) @ u.astype(float), rtol=1e-15)
    tensor = torch.tensor(u)
    assert op.dot(tensor, tensor).dtype == op.gram(tensor, tensor).dtype == torch.float64
    assert op.dot(u[:, 0], u[:, 0]).shape == ()
    assert op.gram(u[:, 0], u[:, 0]).shape == (1, 1)
    assert np.isnan(op.dot(np.array([np.nan]), np.array([1.0])))


def test_inner_products_do_not_depend_on_how_the_vectors_lie_in_memory() -> None:
    op = operator(RBF(), X)
    rows = torch.tensor(V)
    columns = rows.T.contiguous().T
    for u, v in ((columns, columns), (rows, columns), (columns, rows)):
        torch.testing.assert_close(op.dot(u, v), (u * v).sum(dim=0), rtol=1e-14, atol=1e-14)
        torch.testing.assert_close(op.gram(u[:, :1], v), u[:, :1].T @ v, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("square", [True, False])
def test_the_bilinear_gradient_is_that_of_autograd(square: bool) -> None:
    kernel = 2.0 * RBF([0.5, 1.0, 2.0]) * Periodic() + 0.5 * Linear() + White(0.3) + Constant(0.2)
    other = None if square else Y
    v = V if square else V[:7]
    found = operator(kernel, X, other, noise=0.1 if square else 0.0).bilinear_gradient(V, v, inputs=True)
    leaf = kernel.detached(requires_grad=True)
    x1, x2 = (torch.tensor(a, requires_grad=True) for a in (X, Y))
    matrix = leaf(x1, x1 if square else x2)
    if square:
        matrix = matrix - torch.diag(matrix.diagonal()) + torch.diag(leaf.diagonal(x1))
    (torch.tensor(V) * (matrix @ torch.tensor(v))).sum().backward()
    wanted = {name: p.value.grad for name, p in leaf.named_parameters()} | {"x1": x1.grad}
    if not square:
        wanted["x2"] = x2.grad
    assert list(found) == list(wanted)
    for name, gradient in wanted.items():
        expected = np.zeros_like(found[name]) if gradient is None else gradient.numpy()
        np.testing.assert_allclose(found[name], expected, rtol=1e-10, atol=1e-10)


def test_gradients_come_in_the_library_of_the_vectors_without_the_points_unless_asked() -> None:
    op = operator(2.0 * Matern(), X)
    assert {type(g) for g in op.bilinear_gradient(V[:, 0], V[:, 0]).values()} == {np.ndarray}
    found = op.bilinear_gradient(torch.tensor(V).float(), torch.tensor(V))
    assert list(found) == ["outputscale", "lengthscale"]
    assert {g.dtype for g in found.values()} == {torch.float64}
    with pytest.raises(InputError, match="`U` must have as many columns as `V`, 2; got 1"):
        op.bilinear_gradient(V[:, 0], V)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((RBF(), X[:, 0]), {}, r"`x1` must have shape \(n, d\); got \(12,\)\. Use `x1\[:, None\]`"),
        ((RBF(), X, Y[:, :2]), {}, "`x2` must have 3 columns, as `x1` has; got 2"),
        (
            (RBF([1.0, 2.0]), X),
            {},
            "`lengthscale` must be a single number or one per active column, 3; got 2",
        ),
        ((RBF(), np.full((2, 1), np.nan)), {}, "`x1` must be finite; got nan in row 0, column 0"),
        ((RBF(), X), {"noise": -1.0}, "`noise` must be finite and not negative; got -1"),
        ((RBF(), X), {"noise": np.ones(5)}, r"`noise` must be a number or of shape \(12,\)"),
        ((RBF(), X, Y), {"noise": 0.1}, "`noise` belongs to the diagonal of a square operator"),
        ((RBF(), X), {"precision": "quarter"}, "`precision` must be one of"),
        ((RBF(), X), {"storage": "disk"}, "`storage` must be one of"),
        ((RBF(), X), {"backend": "abacus"}, "`backend` must be one of"),
        ((RBF(), X), {"threads": 0}, "`threads` must be at least 1"),
        (("rbf", X), {}, "`kernel` must be a kernel such as `RBF"),
        ((RBF(), torch.tensor(X), torch.tensor(Y, device="meta")), {}, "`x2` must be on cpu"),
    ],
)
def test_bad_arguments_are_refused_with_the_remedy(
    arguments: tuple[Any, ...], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        operator(*arguments, **options)


@pytest.mark.parametrize("v", [V[:5], np.ones((12, 2, 2)), np.full(12, np.inf), V > 0, V + 1j])
def test_bad_vectors_are_refused(v: np.ndarray) -> None:
    with pytest.raises(InputError, match="`V` must"):
        operator(RBF(), X) @ v


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("precision", ["half", "single", "double"])
@pytest.mark.parametrize("power", [-1000, -110, 123, 1000])
def test_vectors_are_scaled_where_the_format_would_lose_them(
    backend: str, precision: str, power: int
) -> None:
    """By powers of two, so that the digits are the same."""
    op = operator(RBF(), X, precision=precision, backend=backend)
    np.testing.assert_array_equal(op @ (V * 2.0**power), (op @ V) * 2.0**power)
    narrow = V.astype(np.float32)
    if abs(power) <= 126:
        scaled = op @ (narrow * np.float32(2.0**power))
        np.testing.assert_array_equal(scaled, (op @ narrow) * np.float32(2.0**power))


def test_a_product_with_many_sixteen_bit_numbers_does_not_overflow() -> None:
    result = operator(Constant(1.0), X) @ np.full(12, 6e4, dtype=np.float16)
    np.testing.assert_array_equal(result, np.full(12, 12 * np.float64(np.float16(6e4))))


def test_the_callers_arrays_may_change_afterwards() -> None:
    x, y, noise = X.copy(), Y.copy(), np.full(12, 0.1)
    square, cross = operator(RBF(), x, noise=noise), operator(RBF(), x, y)
    before = square @ V, square.to_dense(), square.diagonal(), cross.to_dense()
    x *= 2.0
    y *= 2.0
    noise *= 2.0
    after = square @ V, square.to_dense(), square.diagonal(), cross.to_dense()
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(old, new)
    np.testing.assert_array_equal(square.with_precision("double").to_dense(), before[1])


def test_auto_is_single_or_double_where_single_cannot_hold_it() -> None:
    def auto(kernel: Kernel, x: np.ndarray) -> halfgp.KernelOperator:
        return halfgp.KernelOperator(kernel, x)

    assert auto(RBF(), X).precision.name == "single"
    assert auto(1e-40 * RBF(), X).precision.name == "double"
    assert auto(RBF(), X * 1e30).precision.name == "double"
    with pytest.raises(InputError, match="out of the range of double"):
        auto(1e-300 * RBF(), X)
    with pytest.raises(InputError, match="out of the range of single"):
        operator(1e-40 * RBF(), X, precision="single")


def test_white_is_told_beside_a_large_variance() -> None:
    kernel = 1e4 * RBF() + White(1e-12)
    assert operator(kernel, X).nugget.item() == 1e-12
    product = (RBF() + White(1e-12)) * (1e4 * RBF() + White(1e-9))
    # 1e-12 * (1e4 + 1e-9) + 1 * 1e-9
    np.testing.assert_allclose(operator(product, X).nugget.item(), 1.1e-8, rtol=1e-10)


@pytest.mark.parametrize(
    ("precision", "value"), [("half", 1e5), ("bfloat16", 1e30), ("single", 1e30), ("double", 1e200)]
)
@pytest.mark.parametrize("kernel", [RBF(), Matern(2.5, active_dims=[2, 1]), Linear()], ids=repr)
def test_columns_that_overflow_are_named(kernel: Kernel, precision: str, value: float) -> None:
    x = X.copy()
    x[3, 1] = value
    with pytest.raises(InputError, match=rf"Column 1 of the points overflows {precision}.*Standardise"):
        operator(kernel, x, precision=precision)


def test_a_large_offset_or_a_large_lengthscale_does_not_overflow() -> None:
    operator(RBF(), X + 1e6, precision="half")
    operator(RBF(1e6), X * 1e6, precision="half")


def test_the_range_ends_where_the_squared_distance_would_overflow() -> None:
    x = np.array([[0.0], [5e17]])
    for nu in (0.5, 1.5, 2.5):
        assert (operator(Matern(nu), x, precision="single") @ np.ones(2)).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("outputscale", [1e39, 1e-36])
def test_variances_out_of_range_are_refused(outputscale: float) -> None:
    with pytest.raises(InputError, match=r"The variance of the kernel, .*, is out of the range of single"):
        operator(outputscale * RBF(), X, precision="single")
    operator(outputscale * RBF(), X)


def test_products_are_not_recorded() -> None:
    lengthscale = torch.tensor(1.0, requires_grad=True)
    op = operator(RBF(lengthscale), torch.tensor(X, requires_grad=True))
    assert not (op @ torch.tensor(V, requires_grad=True)).requires_grad
    assert not op.to_dense().requires_grad
    assert not op.diagonal().requires_grad


def test_the_nugget_is_noise_and_white() -> None:
    assert operator(RBF() + White(0.5), X, noise=0.25).nugget.item() == pytest.approx(0.75)
    noise = np.linspace(0.0, 1.0, len(X))
    assert operator(RBF(), X, noise=noise).nugget.tolist() == pytest.approx(noise.tolist())
    with pytest.raises(InputError, match="square"):
        _ = operator(RBF(), X, X).nugget


def test_the_transposed_operator_exchanges_the_points() -> None:
    kernel, x1, x2 = RBF(), torch.randn(7, 2).double(), torch.randn(5, 2).double()
    crossed = KernelOperator(kernel, x1, x2, precision="double")
    assert crossed.T.shape == (5, 7)
    torch.testing.assert_close(crossed.T.to_dense(), crossed.to_dense().T)
    v = torch.randn(7, 3).double()
    torch.testing.assert_close(crossed.T @ v, crossed.to_dense().T @ v)
    square = KernelOperator(kernel, x1, noise=0.1)
    assert torch.equal(square.T.to_dense(), square.to_dense())


@pytest.mark.parametrize("backend", available())
@pytest.mark.parametrize("square", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_product_keeps_the_layout_of_its_vectors(backend: str, square: bool, dtype: torch.dtype) -> None:
    """A solve, whose vectors are column-major, turns nothing over."""
    x = torch.randn(300, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    bound = KernelOperator(
        Matern(), x, None if square else x[:100], precision="single", backend=backend
    ).bound
    v = torch.randn(bound.shape[1], 4, generator=torch.Generator().manual_seed(1)).to(dtype)
    turned = v.T.contiguous().T
    found = bound.matmul(turned)
    assert bound.matmul(v).is_contiguous()
    assert found.T.is_contiguous()
    # Only torch's own products add up in an order that depends on the layout, and that in double.
    allowed = 300 * DOUBLE.eps * float(v.abs().sum(dim=0).max()) if backend == "reference" else 0.0
    torch.testing.assert_close(found, bound.matmul(v), rtol=0.0, atol=allowed)
    wide = torch.zeros(bound.shape[1], 9, dtype=dtype)
    wide[:, 1::2] = v
    torch.testing.assert_close(bound.matmul(wide[:, 1::2]), found, rtol=0.0, atol=allowed)
