"""The backends that are held to the contract, each with what its error bound has to know."""

from __future__ import annotations

import importlib
import os
from typing import Any

import pytest
from contracts import foreign

from halfgp.backends import available
from halfgp.backends.reference import ReferenceBackend
from halfgp.precision import PRESETS
from halfgp.selftest.contestant import Contestant

# One that is forced is tested alone, beside the reference.
FORCED = os.environ.get("HALFGP_INSTRUCTION_SET")
EMULATED = "qemu neon"
NATIVE = (FORCED,) if FORCED else ("scalar", "avx2", "avx512", "avx512vnni", "neon")


def _cpu_contestants() -> list[Contestant]:
    """One for every instruction set that there is, and one for NEON in an emulator.

    tests/contracts/test_backends.py tells which are not tested.
    """
    if "cpu" not in available():
        return []
    cpu = importlib.import_module("halfgp.backends.cpu")
    members = [(f"cpu {name}", cpu.CpuBackend(name)) for name in NATIVE if name in cpu.instruction_sets()]
    if not FORCED and not foreign.ABSENT and "neon" not in cpu.instruction_sets():
        members.append((EMULATED, foreign.cpu_module().CpuBackend("neon")))
    return [
        Contestant(
            label,
            backend,
            run=cpu._cpu.BLOCK,
            expansion=("half", "bfloat16"),
            gradient_expansion=tuple(PRESETS),
            inputs="fixed point" if backend.instruction_set == "avx512vnni" else "unrounded",
        )
        for label, backend in members
    ]


def _triton_contestants() -> list[Contestant]:
    """In Triton's interpreter, which conftest.py asks for."""
    if FORCED or "triton" not in available():
        return []
    backend, runs = (importlib.import_module(f"halfgp.backends.{name}") for name in ("triton", "triton.runs"))
    return [
        Contestant(
            "triton",
            backend.BACKEND,
            run=runs.RUN,
            expansion=("half", "bfloat16"),
            inputs="split",
            stored_inputs="rounded",
            single_gradients=True,
        )
    ]


def _parameter(contestant: Contestant) -> Any:
    """For `parametrize`."""
    marks = [pytest.mark.elsewhere] if contestant.label in ("triton", EMULATED) else []
    return pytest.param(contestant, marks=marks, id=contestant.label)


CPU: list[Any] = [_parameter(contestant) for contestant in _cpu_contestants()]
BACKENDS: list[Any] = [
    _parameter(Contestant("reference", ReferenceBackend())),
    *map(_parameter, _triton_contestants()),
    *CPU,
]
# An emulator takes its time: where its own instructions are not what is tested, others do.
NATIVE_CPU: list[Any] = [place for place in CPU if place.id != EMULATED]
NEON: list[Any] = [place for place in CPU if place.id.endswith("neon")]
