"""Matrices that are not what is claimed fail."""

from __future__ import annotations

from halfgp.paper.frame.part import Verdict
from halfgp.paper.parts import matrices


def test_matrices_without_zeros_fail(changed) -> None:
    data = changed("fig1", lambda d: d["zeros"].update(half=0.0))
    assert matrices._truncated(data).verdict is not Verdict.HOLDS
