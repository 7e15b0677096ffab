"""What a part says of its claims."""

from __future__ import annotations

from halfgp.paper.frame.part import Verdict


def test_verdicts_of_several_cases() -> None:
    assert Verdict.of(True, True) is Verdict.HOLDS
    assert Verdict.of(True, False) is Verdict.IN_PART
    assert Verdict.of(False, False) is Verdict.FAILS
    assert Verdict.of() is Verdict.OPEN
