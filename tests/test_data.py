"""Whatever holds real numbers becomes a tensor; everything else is refused with a remedy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from halfgp.data import as_indices, as_noise, as_points, as_vectors
from halfgp.errors import InputError

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    "x",
    [
        np.ones((3, 2)),
        np.ones((3, 2), dtype=np.float32),
        torch.ones(3, 2),
        torch.ones(3, 2, dtype=torch.float64),
    ],
    ids=lambda x: f"{type(x).__module__}-{x.dtype}",
)
def test_wide_floats_share_their_memory(x: np.ndarray | torch.Tensor) -> None:
    points = as_points(x, "X")
    x[1, 1] = 7.0
    assert points[1, 1] == 7.0


@pytest.mark.parametrize("kind", ["float16", "int8", "int64", "uint8", ">f8", ">f4", "longdouble"])
def test_other_numpy_numbers_are_converted(kind: str) -> None:
    points = as_points(np.arange(6).reshape(3, 2).astype(kind), "X")
    assert points.dtype in (torch.float32, torch.float64)
    assert points.tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int32, torch.uint8])
def test_other_torch_numbers_are_converted(dtype: torch.dtype) -> None:
    points = as_points(torch.arange(6).reshape(3, 2).to(dtype), "X")
    assert points.dtype == (torch.float32 if dtype.is_floating_point else torch.float64)
    assert points.tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]


def test_lists_strides_and_read_only_memory_work() -> None:
    x = np.arange(12.0).reshape(4, 3)
    read_only = x.copy()
    read_only.flags.writeable = False
    for variant, expected in [
        (x.tolist(), x),
        (x[::-1, ::2], x[::-1, ::2]),
        (x.T, x.T),
        (read_only, x),
        (torch.from_numpy(x).T, x.T),
    ]:
        assert np.array_equal(as_points(variant, "X").numpy(), expected)


@pytest.mark.parametrize("n", [0, 1])
def test_empty_and_single_rows_are_points(n: int) -> None:
    assert as_points(np.zeros((n, 2)), "X").shape == (n, 2)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.ones(5), r"`X` must have shape \(n, d\); got \(5,\)\. Use `X\[:, None\]`\."),
        (np.ones((2, 2, 2)), r"`X` must have shape \(n, d\)"),
        (np.ones((3, 0)), "at least one column"),
        (np.ones((2, 2), dtype=bool), "real numbers; got dtype bool"),
        (np.ones((2, 2), dtype=complex), "real numbers; got dtype complex128"),
        (np.array([["a", "b"]]), "real numbers"),
        (np.array([[1, None]], dtype=object), "real numbers; got dtype object"),
        (torch.ones(2, 2, dtype=torch.bool), "real numbers; got torch.bool"),
        (torch.ones(2, 2, dtype=torch.complex64), "real numbers; got torch.complex64"),
        (torch.eye(2).to_sparse(), "dense"),
        ([[1.0], [1.0, 2.0]], "rectangular"),
        (np.array([[1.0, 2.0], [3.0, np.nan]]), "`X` must be finite; got nan in row 1, column 1"),
        (torch.tensor([[1.0, float("-inf")]]), "`X` must be finite; got -inf in row 0, column 1"),
    ],
)
def test_bad_points_are_refused_with_the_reason(x: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        as_points(x, "X")  # type: ignore[arg-type]


def test_points_elsewhere_are_refused() -> None:
    with pytest.raises(InputError, match="`V` must be on cpu, as the points are; got meta"):
        as_vectors(torch.ones(3, device="meta"), "V", 3, CPU)


def test_contiguous_wide_vectors_pass_through_untouched() -> None:
    v = torch.randn(5, 3)
    assert as_vectors(v, "V", 5, CPU, 1e30).values.data_ptr() == v.data_ptr()


def test_vectors_remember_what_they_came_as() -> None:
    for v in (
        np.ones(4, dtype=np.float64),
        np.ones((4, 2), dtype=np.float32),
        torch.ones(4, dtype=torch.float32),
    ):
        back = as_vectors(v, "V", 4, CPU).restore(as_vectors(v, "V", 4, CPU).values)
        assert type(back) is type(v)
        assert back.dtype == v.dtype
        assert back.shape == v.shape
    assert as_vectors(np.ones(4, dtype=np.float16), "V", 4, CPU).dtype == np.float32
    assert as_vectors(torch.ones(4, dtype=torch.bfloat16), "V", 4, CPU).dtype == torch.float32
    assert as_vectors([1, 2], "V", 2, CPU).dtype == np.float64
    assert as_vectors(torch.tensor([1, 2]), "V", 2, CPU).dtype == torch.float64


@pytest.mark.parametrize(
    ("v", "message"),
    [
        (np.ones(3), r"`V` must have shape \(4,\) or \(4, t\); got \(3,\)"),
        (np.ones((4, 1, 1)), r"\(4, t\)"),
        (np.array(1.0), r"\(4, t\)"),
        (np.array([1.0, np.nan, 0.0, 0.0]), "`V` must be finite; got nan in row 1"),
        (np.full(4, 1e39), "must not exceed 1e"),
    ],
)
def test_bad_vectors_are_refused_with_the_reason(v: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        as_vectors(v, "V", 4, CPU, 1e38)  # type: ignore[arg-type]


def test_noise_is_a_number_or_one_per_row() -> None:
    assert as_noise(0.5, 3, CPU).shape == ()
    assert as_noise([0.5, 0.0, 1.0], 3, CPU).tolist() == [0.5, 0.0, 1.0]
    for noise in (-0.1, float("nan"), [0.1, float("inf"), 0.1]):
        with pytest.raises(InputError, match="`noise` must be finite and not negative; got"):
            as_noise(noise, 3, CPU)
    with pytest.raises(InputError, match=r"`noise` must be a number or of shape \(3,\)"):
        as_noise([0.1, 0.2], 3, CPU)


@pytest.mark.parametrize(
    ("i", "expected"),
    [
        (2, [2]),
        (-1, [4]),
        (np.int32(3), [3]),
        ([], []),
        ([0, -2], [0, 3]),
        (slice(1, 4, 2), [1, 3]),
        (torch.tensor([4, 4]), [4, 4]),
        (np.array([1], dtype=np.uint8), [1]),
        (range(2), [0, 1]),
    ],
)
def test_indices_are_integers_slices_or_lists_of_them(i: object, expected: list[int]) -> None:
    indices, single = as_indices(i, 5, CPU)
    assert indices.tolist() == expected
    assert single == isinstance(i, int | np.integer)


@pytest.mark.parametrize("i", [5, -6, [0, 9], 1.0, [True, False], "a", [[1]]])
def test_bad_indices_are_refused(i: object) -> None:
    with pytest.raises(InputError, match="Row indices must be"):
        as_indices(i, 5, CPU)


@pytest.mark.parametrize("make", [np.array, torch.tensor], ids=["numpy", "torch"])
def test_integers_that_would_be_rounded_are_refused(make):
    assert as_points(make([[2**60], [-(2**53)]]), "X").tolist() == [[2.0**60], [-(2.0**53)]]
    for value in (2**53 + 1, -(2**53) - 1, 2**63 - 1):
        with pytest.raises(InputError, match=f"`X` must hold numbers that float64 has; got {value}"):
            as_points(make([[1], [value]]), "X")
