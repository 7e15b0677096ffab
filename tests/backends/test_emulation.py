"""The emulator rounds as the hardware does, and shows what each way of summing costs."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from halfgp import RBF, Constant, White
from halfgp.backends.emulation import Arithmetic, column_scales, emulated_matmul, round_to
from halfgp.errors import InputError
from halfgp.precision import BFLOAT16, DOUBLE, HALF, SINGLE, Format

each_sixteen = pytest.mark.parametrize("fmt", [HALF, BFLOAT16], ids=lambda f: f.name)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def every_number(fmt: Format) -> Tensor:
    """All finite numbers of a 16-bit format, in float64."""
    bits = torch.arange(-(2**15), 2**15).to(torch.int16)
    numbers = bits.view(fmt.dtype).double()
    return numbers[numbers.isfinite()]


@each_sixteen
def test_every_number_of_the_format_rounds_to_itself(fmt: Format) -> None:
    numbers = every_number(fmt)
    assert torch.equal(round_to(numbers, fmt), numbers)
    assert torch.equal(round_to(numbers, fmt, rounding="stochastic", generator=generator()), numbers)


@each_sixteen
def test_rounding_to_nearest_is_that_of_torch_from_single(fmt: Format) -> None:
    # Random bit patterns, then halfway cases: every number of the format plus half a step.
    x = torch.randint(-(2**31), 2**31, (20000,), generator=generator()).to(torch.int32).view(torch.float32)
    numbers = every_number(fmt).float()
    x = torch.cat([x[x.isfinite()], (numbers[1:] + numbers[:-1]) / 2])
    x = x[x.isfinite()]
    assert torch.equal(round_to(x.double(), fmt), x.to(fmt.dtype).double())


def test_rounding_goes_once_from_double_where_torch_goes_twice() -> None:
    # Just above the middle between 1 and the next number of half: single cannot tell it from the middle.
    x = torch.tensor([1.0 + 2.0**-11 + 2.0**-40], dtype=torch.float64)
    assert round_to(x, HALF).item() == 1.0 + 2.0**-10


@each_sixteen
@given(value=st.floats(-6e4, 6e4), seed=st.integers(0, 10**6))
def test_stochastic_rounding_takes_one_of_the_neighbours_and_is_unbiased(
    fmt: Format, value: float, seed: int
) -> None:
    count = 4000
    x = torch.full((count,), value, dtype=torch.float64)
    rounded = round_to(x, fmt, rounding="stochastic", generator=generator(seed))
    nearest = round_to(x[:1], fmt).item()
    low, high = rounded.min().item(), rounded.max().item()
    step = max(abs(value) * fmt.eps, fmt.smallest_subnormal)
    assert low <= value <= high or low == high == nearest
    assert high - low <= step
    # Six standard deviations of a mean of `count` steps of at most that size.
    assert abs(rounded.mean().item() - value) <= 6 * step / 2 / math.sqrt(count)


def test_stochastic_rounding_reaches_the_subnormals_without_bias() -> None:
    x = torch.full((20000,), HALF.smallest_subnormal / 4, dtype=torch.float64)
    rounded = round_to(x, HALF, rounding="stochastic", generator=generator())
    assert set(rounded.tolist()) == {0.0, HALF.smallest_subnormal}
    assert rounded.mean().item() == pytest.approx(x[0].item(), rel=0.1)


@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
def test_beyond_the_largest_number_lies_infinity(rounding: str) -> None:
    x = torch.tensor([65504.0, 7e4, -7e4, math.inf, math.nan], dtype=torch.float64)
    rounded = round_to(x, HALF, rounding=rounding, generator=generator())  # type: ignore[arg-type]
    assert rounded[:4].tolist() == [65504.0, math.inf, -math.inf, math.inf]
    assert rounded[4].isnan()


@each_sixteen
def test_every_operation_is_rounded_once(fmt: Format) -> None:
    numbers = every_number(fmt)
    a, b = (numbers[torch.randint(len(numbers), (20000,), generator=generator(s))] for s in (1, 2))
    arithmetic = Arithmetic(fmt)
    for operation, exact in [
        (arithmetic.add, a + b),
        (arithmetic.subtract, a - b),
        (arithmetic.multiply, a * b),
    ]:
        result = operation(a.to(fmt.dtype), b.to(fmt.dtype)).double()
        assert torch.equal(result, round_to(exact, fmt))


@pytest.fixture(scope="module")
def fig4() -> dict[str, float]:
    """Relative errors of a few rows of a product with N = 4000 in half, by way of summing."""
    x = torch.randn(4_000, 3, generator=generator(), dtype=torch.float64)
    v = torch.rand(4_000, 2, generator=generator(1))
    kernel = RBF(2.0)
    exact = kernel(x[:4], x) @ v.double()
    return {
        summation: (
            (emulated_matmul(kernel, x[:4], x, v, format=HALF, summation=summation) - exact).norm()
            / exact.norm()
        ).item()
        for summation in ("plain", "block_half", "block_single", "kahan")
    }


def test_plain_sums_in_half_are_ten_times_worse_than_blocks_in_single_or_kahan(
    fig4: dict[str, float],
) -> None:
    assert fig4["plain"] > 10 * fig4["block_single"]
    assert fig4["plain"] > 10 * fig4["kahan"]


def test_blocks_in_half_lie_between(fig4: dict[str, float]) -> None:
    assert fig4["block_single"] < fig4["block_half"] < fig4["plain"]


def test_blocks_in_single_and_kahan_err_by_less_than_a_tenth_of_a_percent(fig4: dict[str, float]) -> None:
    assert max(fig4["block_single"], fig4["kahan"]) < 1e-3


def test_a_plain_sum_in_half_stagnates_at_two_thousand_ones() -> None:
    ones = torch.ones(3000, 1)
    summed = {
        summation: emulated_matmul(
            Constant(1.0), ones[:1], ones, ones, format=HALF, summation=summation, scale=False
        ).item()
        for summation in ("plain", "block_half", "block_single", "kahan")
    }
    assert summed == {"plain": 2048.0, "block_half": 3000.0, "block_single": 3000.0, "kahan": 3000.0}


def test_stochastic_rounding_does_not_stagnate() -> None:
    ones = torch.ones(401, 1)
    v = ones.clone()
    v[0] = 2048.0
    options = {"format": HALF, "scale": False, "rounding": "stochastic", "generator": generator()}
    total = emulated_matmul(Constant(1.0), ones[:20], ones, v, **options)  # type: ignore[arg-type]
    # Beyond 2048 each of the 400 ones counts 2 or 0: a standard deviation of sqrt(400) = 20 a row.
    assert total.mean().item() == pytest.approx(2448.0, abs=5 * 20 / math.sqrt(20))


def test_stochastic_rounding_is_reproducible() -> None:
    x, v = torch.randn(20, 2, generator=generator()), torch.randn(20, 2, generator=generator(1))
    first, second, third = (
        emulated_matmul(RBF(), x, None, v, format=BFLOAT16, rounding="stochastic", generator=generator(seed))
        for seed in (0, 0, 1)
    )
    assert torch.equal(first, second)
    assert not torch.equal(first, third)


def test_scaling_keeps_large_vectors_from_overflowing() -> None:
    x, v = torch.zeros(100, 1), torch.full((100, 1), 1e4)
    options = {"format": HALF, "summation": "kahan"}
    unscaled = emulated_matmul(RBF(), x, x, v, scale=False, **options)  # type: ignore[arg-type]
    assert not unscaled.isfinite().any()
    assert emulated_matmul(RBF(), x, x, v, **options)[0, 0].item() == pytest.approx(1e6, rel=1e-3)  # type: ignore[arg-type]


def test_dividing_before_the_cast_keeps_the_digits_that_casting_first_loses() -> None:
    # Cast first, 1e-6 keeps four bits and, divided by sqrt(N), none.
    x, v = torch.zeros(1000, 1), torch.full((1000, 1), 1e-6)
    result = emulated_matmul(RBF(), x[:1], x, v, format=HALF, summation="kahan")
    assert result.item() == pytest.approx(1e-3, rel=2e-3)


@given(magnitude=st.floats(1e-30, 1e30), n=st.integers(1, 50))
def test_column_scales_are_powers_of_two_just_above_the_bound(magnitude: float, n: int) -> None:
    v = magnitude * torch.randn(n, 2, generator=generator(), dtype=torch.float64)
    v[:, 1] = 0.0
    scale, of_zero = column_scales(v).tolist()
    bound = math.sqrt(n) * v.abs().max().item()
    assert math.log2(scale).is_integer()
    assert bound <= scale <= 2 * bound
    assert of_zero == 1.0


@pytest.mark.parametrize("summation", ["plain", "block_half", "block_single", "kahan"])
@pytest.mark.parametrize(("n", "m", "t"), [(0, 4, 2), (4, 0, 2), (3, 5, 0), (1, 1, 1), (3, 400, 2)])
def test_any_shape_works_in_double(summation: str, n: int, m: int, t: int) -> None:
    x1, x2 = torch.randn(n, 2, generator=generator()), torch.randn(m, 2, generator=generator(1))
    v = torch.randn(m, t, generator=generator(2))
    result = emulated_matmul(RBF(), x1, x2, v, format=DOUBLE, summation=summation)  # type: ignore[arg-type]
    tolerance = 400 * SINGLE.unit_roundoff  # vectors are divided, and blocks summed, in single
    torch.testing.assert_close(
        result, RBF()(x1.double(), x2.double()) @ v.double(), rtol=tolerance, atol=tolerance
    )


def test_the_square_matrix_has_white_on_its_diagonal() -> None:
    x = torch.tensor([[0.0], [1.0]])
    result = emulated_matmul(White(0.5), x, None, torch.eye(2), format=HALF)
    assert torch.equal(result, 0.5 * torch.eye(2, dtype=torch.float64))


def test_inputs_are_rounded_when_asked() -> None:
    x = torch.tensor([[1.0 + 2.0**-12]])
    far = torch.tensor([[1.0]])
    entry = {
        flag: emulated_matmul(RBF(2.0**-13), x, far, torch.ones(1, 1), format=HALF, round_inputs=flag).item()
        for flag in (False, True)
    }
    assert entry[True] == 1.0
    assert entry[False] == pytest.approx(math.exp(-2.0), rel=1e-3)


@pytest.mark.parametrize(
    ("option", "value"),
    [("summation", "pairwise"), ("rounding", "up"), ("format", SINGLE), ("format", DOUBLE)],
)
def test_unknown_options_are_refused(option: str, value: object) -> None:
    options = {"format": HALF, "rounding": "stochastic"} | {option: value}
    with pytest.raises(InputError):
        emulated_matmul(RBF(), torch.zeros(1, 1), None, torch.ones(1, 1), **options)  # type: ignore[arg-type]
