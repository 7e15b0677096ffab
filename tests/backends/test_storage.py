"""What is stored follows from the arguments."""

from __future__ import annotations

import math

import pytest
import torch

from halfgp import RBF, White
from halfgp.backends.storage import choose_storage, rounding_to_noise
from halfgp.errors import InputError
from halfgp.precision import BFLOAT16, HALF, Format, Precision

X = torch.randn(100, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
QUIET, NOISY = torch.tensor(1e-3, dtype=torch.float64), torch.tensor(1.0, dtype=torch.float64)
COUNT = 100 * 100


def choose(
    name: str, storage: str, limit: int | None, noise: torch.Tensor = NOISY, **x2: torch.Tensor
) -> object:
    precision, store = choose_storage(
        RBF(),
        X,
        x2.get("x2"),
        noise,
        stored_bytes=lambda size: COUNT * size,
        precision=Precision.resolve(name),
        storage=storage,
        memory_limit=limit,
    )
    return (precision.entries.name, store)


def test_auto_stores_nothing_without_a_limit() -> None:
    assert choose("single", "auto", None) == ("single", False)


def test_on_the_fly_leaves_sixteen_bit_entries_unrounded() -> None:
    assert choose("half", "on_the_fly", 10**9) == ("single", False)
    assert choose("bfloat16", "auto", None) == ("single", False)


@pytest.mark.parametrize(("name", "size"), [("single", 4), ("double", 8)])
def test_auto_stores_what_fits(name: str, size: int) -> None:
    assert choose(name, "auto", COUNT * size) == (name, True)
    assert choose(name, "auto", COUNT * size - 1) == (name, False)


def test_auto_stores_in_half_where_rounding_is_far_below_the_noise() -> None:
    assert choose("half", "auto", COUNT * 2) == ("half", True)
    assert choose("half", "auto", COUNT * 2, QUIET) == ("single", False)
    assert choose("half", "auto", COUNT * 4, QUIET) == ("single", True)


def test_auto_does_not_round_rectangular_entries() -> None:
    assert choose("half", "auto", COUNT * 4, x2=X.clone()) == ("single", True)


def test_stored_is_in_the_format_of_the_entries_and_within_the_limit() -> None:
    assert choose("half", "stored", None, QUIET) == ("half", True)
    with pytest.raises(InputError, match=r"needs 20,000 bytes and `memory_limit` is 19,999"):
        choose("half", "stored", COUNT * 2 - 1)


def test_unknown_storages_are_refused() -> None:
    with pytest.raises(
        InputError, match=r'`storage` must be one of "auto", "on_the_fly", "stored"; got \'disk\''
    ):
        choose("half", "disk", None)


@pytest.mark.parametrize("fmt", [HALF, BFLOAT16], ids=lambda f: f.name)
@pytest.mark.parametrize("lengthscale", [0.3, 3.0])
def test_the_estimate_is_the_norm_of_the_rounding_errors_within_a_small_factor(
    fmt: Format, lengthscale: float
) -> None:
    x = torch.randn(150, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    kernel = 3.0 * RBF(lengthscale)
    entries = kernel(x, x) / 3.0
    norm = torch.linalg.eigvalsh(entries.to(fmt.dtype).double() - entries).abs().max().item()
    # Independent errors of u/sqrt(3) to u/sqrt(12) of an entry make a norm of 0.6 to 1.2 times the estimate,
    # which takes the errors of nearby entries for independent.
    assert norm / 2 <= rounding_to_noise(kernel, x, 3.0 * NOISY, fmt) <= 3 * norm


def test_white_counts_as_noise_and_its_absence_makes_rounding_fatal() -> None:
    nothing = torch.zeros((), dtype=torch.float64)
    assert rounding_to_noise(RBF(), X, nothing, HALF) == math.inf
    white = rounding_to_noise(RBF() + White(0.5), X, nothing, HALF)
    assert white == pytest.approx(rounding_to_noise(RBF(), X, NOISY / 2, HALF))


@pytest.mark.parametrize("n", [0, 1, 2])
def test_the_estimate_exists_for_few_points(n: int) -> None:
    assert rounding_to_noise(RBF(), X[:n], NOISY, HALF) < 1.0
