"""The contract on one device, case by case."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch

from halfgp.backends import get_backend
from halfgp.precision import PRESETS
from halfgp.selftest.contestant import Contestant
from halfgp.selftest.contract import (
    KERNELS,
    check_block,
    check_gradient,
    check_rectangular_product,
    check_square_product,
    check_zeros,
)

CHECKS = {
    "square product": check_square_product,
    "rectangular product": check_rectangular_product,
    "block": check_block,
    "tiles of zeros": check_zeros,
}
GRADIENTS = {"gradient": True, "rectangular gradient": False}


@dataclass(frozen=True)
class Outcome:
    """One case: which, and why it failed, or nothing where it did not."""

    kernel: str
    precision: str
    check: str
    failure: str = ""


def contestant_on(device: str) -> Contestant:
    """What `backend="auto"` takes there, with what its bounds have to know."""
    backend = get_backend("auto", torch.device(device))
    if backend.name == "triton":
        from halfgp.backends.triton.runs import RUN

        return Contestant(
            "triton",
            backend,
            run=RUN,
            expansion=("half", "bfloat16"),
            inputs="split",
            stored_inputs="rounded",
            single_gradients=True,
            device=device,
        )
    if backend.name == "cpu":
        from halfgp.backends.cpu import RUN

        return Contestant(
            "cpu",
            backend,
            run=RUN,
            expansion=("half", "bfloat16"),
            gradient_expansion=tuple(PRESETS),
            inputs="fixed point",
        )
    return Contestant(backend.name, backend, device=device)


def self_test(device: str) -> Iterator[Outcome]:
    """Every kernel in every precision, one outcome after the other."""
    contestant = contestant_on(device)
    for label, kernel in KERNELS.items():
        for precision in PRESETS:
            for name, check in CHECKS.items():
                case = partial(check, contestant, kernel, precision, False)
                yield Outcome(label, precision, name, _failure(case))
            for name, square in GRADIENTS.items():
                case = partial(check_gradient, contestant, kernel, precision, square)
                yield Outcome(label, precision, name, _failure(case))


def _failure(case: Callable[[], None]) -> str:
    """Why a case failed: whatever is raised on a device that nobody has tried is news."""
    try:
        case()
    except AssertionError as error:
        return f"further from the definition than the format allows: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""
