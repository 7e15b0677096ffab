"""Products that are no faster than in single fail."""

from __future__ import annotations

from halfgp.paper.frame.part import Verdict
from halfgp.paper.parts import products


def test_a_product_as_fast_as_single_fails(changed) -> None:
    def slow(data) -> None:
        for seconds in data["seconds"].values():
            seconds["half"] = seconds["single"]

    assert products._twice_as_fast(changed("fig4a", slow)).verdict is Verdict.FAILS
