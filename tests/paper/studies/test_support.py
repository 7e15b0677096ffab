"""How far kernels reach in finite precision."""

from __future__ import annotations

from pathlib import Path

import pytest

from halfgp.paper.frame.context import Context
from halfgp.paper.frame.part import Part, Verdict
from halfgp.paper.studies.support import PARTS

CONTEXT = Context(quick=True, output=Path("unused"))
RBF, _, MATERN = PARTS


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_kernels_have_the_predicted_support(part: Part) -> None:
    found = part.measure(CONTEXT)
    (required,) = (claim for claim in found.claims if claim.required)
    assert required.verdict is Verdict.HOLDS
    panels = part.panels(found.data)
    assert len(panels) == len(found.data["distances"])


def test_the_example_of_the_text_has_it_the_wrong_way_round() -> None:
    example = MATERN.measure(CONTEXT).claims[-1]
    assert example.verdict is Verdict.FAILS
    assert "0.0433" in example.measured  # 0.75 / (25 ln 2)


def test_distances_in_half_are_those_of_the_formulas() -> None:
    reach = RBF.measure(CONTEXT).data["distances"]["RBF"]
    assert reach["half"][20] == pytest.approx((50 * 0.6931471805599453) ** 0.5, rel=1e-12)
    assert reach["half"][0] == pytest.approx(reach["half"][20] / 100, rel=1e-12)
