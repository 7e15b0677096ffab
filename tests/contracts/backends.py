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
NATIVE = (FORCED,) if FORCED else ("scalar", "avx2", "avx512", "avx512vnni", "neon")


def _cpu_contestants() -> list[Contestant]:
    """One for every instruction set, and one more for NEON in an emulator."""
    if "cpu" not in available():
        absent = "halfgp._cpu was not built: the compiled backend is not tested"
        return [Contestant("cpu", ReferenceBackend(), absent=absent)]
    cpu = importlib.import_module("halfgp.backends.cpu")
    emulated = foreign.cpu_module()
    here = cpu.instruction_sets()
    reasons = {name: "" if name in here else f"this machine or this build has no {name}" for name in NATIVE}
    members = [(f"cpu {name}", cpu.CpuBackend(name), absent) for name, absent in reasons.items()]
    absent = "this machine runs NEON itself" if "neon" in here else foreign.ABSENT
    if not FORCED:
        members.append(("qemu neon", emulated.CpuBackend("neon"), absent))
    return [
        Contestant(
            label,
            backend,
            run=cpu._cpu.BLOCK,
            expansion=tuple(PRESETS),
            inputs="fixed point" if backend.instruction_set == "avx512vnni" else "unrounded",
            absent=absent,
        )
        for label, backend, absent in members
    ]


def _triton_contestant() -> Contestant:
    """In Triton's interpreter, which conftest.py asks for."""
    if "triton" not in available():
        return Contestant("triton", ReferenceBackend(), absent="Triton is not installed")
    backend, runs = (importlib.import_module(f"halfgp.backends.{name}") for name in ("triton", "triton.runs"))
    return Contestant(
        "triton",
        backend.BACKEND,
        run=runs.RUN,
        expansion=("half", "bfloat16"),
        inputs="split",
        stored_inputs="rounded",
        single_gradients=True,
    )


def _parameter(contestant: Contestant) -> Any:
    """For `parametrize`: a test of what is absent is skipped, and says why."""
    mark = pytest.mark.skipif(bool(contestant.absent), reason=contestant.absent)
    return pytest.param(contestant, marks=mark, id=contestant.label)


CPU: list[Any] = [_parameter(contestant) for contestant in _cpu_contestants()]
BACKENDS: list[Any] = [
    _parameter(Contestant("reference", ReferenceBackend())),
    *([] if FORCED else [_parameter(_triton_contestant())]),
    *CPU,
]
# An emulator takes its time: where its own instructions are not what is tested, others do.
NATIVE_CPU: list[Any] = [place for place in CPU if not place.id.startswith("qemu")]
NEON: list[Any] = [place for place in CPU if place.id.endswith("neon")]
