"""The backends that are held to the contract, each with what its error bound has to know."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import pytest

from halfgp.backends import available
from halfgp.backends.base import Backend
from halfgp.backends.reference import ReferenceBackend

INSTRUCTION_SETS = ("scalar", "avx2", "avx512", "avx512vnni")


@dataclass(frozen=True)
class Contestant:
    """A backend under test.

    Attributes:
        label: for the name of the test.
        backend: what is bound.
        run: how many products are added in the products' format before the sum in the wide one; 0 for none.
        expansion: whether squared distances of points near their mean come from |x|^2 + |y|^2 - 2 x.y, whose
            error is relative to |x|^2 + |y|^2.
        inputs: what becomes of scaled features in a 16-bit precision: "rounded" to its format, "unrounded"
            (in the format that computes), or "fixed point" where there are many of them, else unrounded.
    """

    label: str
    backend: Backend
    run: int = 0
    expansion: bool = False
    inputs: str = "rounded"


def _cpu_contestants() -> list[Any]:
    """One for every instruction set, or a skipped place for it."""
    if "cpu" not in available():
        reason = pytest.mark.skip(reason="halfgp._cpu was not built: the compiled backend is not tested")
        return [pytest.param(None, marks=reason, id="cpu")]
    cpu = importlib.import_module("halfgp.backends.cpu")
    found = []
    for name in INSTRUCTION_SETS:
        reason = pytest.mark.skipif(
            name not in cpu.instruction_sets(), reason=f"this machine or this build has no {name}"
        )
        inputs = "fixed point" if name == "avx512vnni" else "unrounded"
        contestant = Contestant(
            f"cpu {name}", cpu.CpuBackend(name), run=cpu._cpu.BLOCK, expansion=True, inputs=inputs
        )
        found.append(pytest.param(contestant, marks=reason, id=contestant.label))
    return found


CPU: list[Any] = _cpu_contestants()
BACKENDS: list[Any] = [pytest.param(Contestant("reference", ReferenceBackend()), id="reference"), *CPU]
