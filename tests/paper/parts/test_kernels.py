"""Kernels are judged by iterations."""

from __future__ import annotations

from paper.fake_models import solved

from halfgp.paper.frame.part import Verdict
from halfgp.paper.parts import kernels


def test_kernels_are_judged_at_two_tolerances() -> None:
    quick, slow, stuck = solved(15, 8, low=20), solved(15, 12, low=30), solved(15, 13)
    data = {
        "runs": {"paper": [quick, slow], "optimum": [stuck, slow]},
        "noise": {"paper": [1], "optimum": [1]},
    }
    assert kernels._fewer(data).verdict is Verdict.HOLDS
    assert kernels._at_the_optimum(data).verdict is Verdict.FAILS
