"""Which backends the contract is held to here, and which it cannot be."""

from __future__ import annotations

import pytest
from contracts import foreign
from contracts.backends import BACKENDS, FORCED, NATIVE

from halfgp.backends import available

TESTED = {place.id for place in BACKENDS}


@pytest.mark.parametrize("name", NATIVE)
def test_an_instruction_set_is_tested(name: str) -> None:
    if "cpu" not in available():
        pytest.skip("halfgp._cpu was not built: the compiled backend is not tested")
    if f"cpu {name}" not in TESTED:
        pytest.skip(f"this machine or this build has no {name}")


@pytest.mark.skipif(FORCED is not None, reason="an instruction set that is forced is tested alone")
def test_what_can_be_emulated_is_tested() -> None:
    if "triton" not in available():
        pytest.skip("Triton is not installed")
    assert "triton" in TESTED
    if foreign.ABSENT and "cpu neon" not in TESTED:
        pytest.skip(foreign.ABSENT)
    assert TESTED & {"cpu neon", "qemu neon"}
