"""Sums that are no better than plain ones fail."""

from __future__ import annotations

from halfgp.paper.frame.part import Verdict
from halfgp.paper.parts import summation


def test_sums_that_are_no_better_fail(measured) -> None:
    data = measured("fig4b").data
    at = data["sizes"].index(summation.CLAIMED)
    errors = {name: list(values) for name, values in data["errors"]["targets"].items()}
    errors["plain"][at] = 2 * max(errors["kahan"][at], errors["block_single"][at])
    assert summation._wide_sums({**data, "errors": {"targets": errors}}, at).verdict is not Verdict.HOLDS
