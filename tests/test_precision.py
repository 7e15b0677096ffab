"""Formats have the constants of the hardware, and precisions say what they hold."""

from __future__ import annotations

import pytest
import torch

from halfgp import Precision
from halfgp.errors import InputError
from halfgp.precision import BFLOAT16, DOUBLE, HALF, SINGLE, Format

each_format = pytest.mark.parametrize("fmt", [HALF, BFLOAT16, SINGLE, DOUBLE], ids=lambda f: f.name)


@each_format
def test_constants_are_those_of_torch(fmt: Format) -> None:
    info = torch.finfo(fmt.dtype)
    assert (fmt.eps, fmt.max, fmt.smallest_normal) == (info.eps, info.max, info.tiny)
    assert fmt.bytes * 8 == info.bits


@each_format
def test_the_smallest_subnormal_is_the_least_positive_number(fmt: Format) -> None:
    least = torch.tensor(fmt.smallest_subnormal, dtype=fmt.dtype)
    assert least > 0
    assert least.double().item() == fmt.smallest_subnormal
    assert (least / 2).item() == 0.0


@pytest.mark.parametrize(
    ("fmt", "exponent"),
    [(HALF, -25), (BFLOAT16, -134), (SINGLE, -150), (DOUBLE, -1075)],
    ids=lambda x: str(x)[:20],
)
def test_numbers_vanish_up_to_half_the_smallest_subnormal(fmt: Format, exponent: int) -> None:
    assert fmt.vanishing_exponent == exponent
    if fmt is DOUBLE:
        return  # nothing wider is there to round from
    # From single to 16 bits, and from double to single, so that torch rounds once.
    wide = torch.float64 if fmt is SINGLE else torch.float32
    edge = torch.tensor(2.0**exponent, dtype=wide)
    assert edge.to(fmt.dtype).item() == 0.0
    assert (edge * 1.0625).to(fmt.dtype).double().item() == fmt.smallest_subnormal


def test_half_is_not_the_format_that_the_paper_prints() -> None:
    assert (HALF.max, HALF.smallest_normal, HALF.unit_roundoff) == (65504.0, 2.0**-14, 2.0**-11)


@pytest.mark.parametrize("name", ["half", "bfloat16", "single", "double"])
def test_presets_resolve_by_name_and_to_themselves(name: str) -> None:
    precision = Precision.resolve(name)
    assert precision.name == precision.inputs.name == precision.entries.name == name
    assert precision.sums is DOUBLE
    assert Precision.resolve(precision) is precision
    assert precision.is_sixteen_bit == (name in ("half", "bfloat16"))


def test_auto_is_single() -> None:
    assert Precision.resolve("auto") == Precision.resolve("single")


def test_entries_can_be_held_in_another_format_without_leaving_sixteen_bits() -> None:
    precision = Precision.resolve("half").with_entries(SINGLE)
    assert precision.entries is SINGLE
    assert precision.is_sixteen_bit


@pytest.mark.parametrize("name", ["float16", "", 16])
def test_unknown_names_are_refused_with_the_known_ones(name: object) -> None:
    with pytest.raises(InputError, match=r'"half", "bfloat16", "single", "double", "auto"'):
        Precision.resolve(name)  # type: ignore[arg-type]
