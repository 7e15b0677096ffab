"""Tolerances are judged by true residuals."""

from __future__ import annotations

from halfgp.paper.frame.part import Verdict
from halfgp.paper.parts import tolerances


def test_tolerances_are_judged_by_true_residuals(changed) -> None:
    def exact(data) -> None:
        for found in data["sets"].values():
            found.update(true=list(tolerances.TOLERANCES), history=[1.0, 0.5, 0.1])

    data = changed("fig5d", exact)
    assert tolerances._tolerances(data).verdict is Verdict.FAILS
    assert tolerances._diverges(data).verdict is Verdict.FAILS
    for found in data["sets"].values():
        found.update(true=[1.0] * len(tolerances.TOLERANCES), history=[1.0, 0.1, float("inf")])
    assert tolerances._tolerances(data).verdict is Verdict.HOLDS
    assert tolerances._diverges(data).verdict is Verdict.HOLDS
