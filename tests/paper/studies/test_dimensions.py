"""Effective dimensions that do not grow fail."""

from __future__ import annotations

from halfgp.paper.frame.part import Verdict
from halfgp.paper.studies.dimensions import dimension_claims


def test_an_effective_dimension_that_is_smaller_fails(changed) -> None:
    def swap(data) -> None:
        for key in ("by_noise", "dimension"):
            data[key]["half"], data[key]["double"] = data[key]["double"], data[key]["half"]

    data = changed("appendix_rbf_effective_dimension", swap)
    assert [claim.verdict for claim in dimension_claims(data)] == [Verdict.FAILS, Verdict.FAILS]
