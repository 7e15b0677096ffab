"""The parts themselves: they are what their names say, and the cheap ones are run."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from halfgp.paper import appendix_matern_distances as matern
from halfgp.paper import fig2a, fig2b
from halfgp.paper.contents import PARTS
from halfgp.paper.context import Context
from halfgp.paper.part import Part, Verdict

CONTEXT = Context(quick=True, output=Path("unused"))


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_a_part_is_its_file(part: Part) -> None:
    assert part.module == f"halfgp.paper.{part.name}"
    assert importlib.import_module(part.module).PART is part
    assert part.panels or part.table
    assert part.title
    assert part.place.startswith(("Figure", "Table", "Appendix"))


def test_names_are_unique_and_the_appendix_is_last() -> None:
    names = [part.name for part in PARTS]
    assert len(set(names)) == len(names)
    in_appendix = [part.place.startswith("Appendix") for part in PARTS]
    assert in_appendix == sorted(in_appendix)


@pytest.mark.parametrize("module", [fig2a, fig2b, matern], ids=lambda module: module.__name__)
def test_kernels_have_the_predicted_support(module) -> None:
    found = module.PART.measure(CONTEXT)
    (required,) = (claim for claim in found.claims if claim.required)
    assert required.verdict is Verdict.HOLDS
    panels = module.PART.panels(found.data)
    assert len(panels) == len(found.data["distances"])


def test_the_example_of_the_text_has_it_the_wrong_way_round() -> None:
    example = matern.PART.measure(CONTEXT).claims[-1]
    assert example.verdict is Verdict.FAILS
    assert "0.0433" in example.measured  # 0.75 / (25 ln 2)


def test_distances_in_half_are_those_of_the_formulas() -> None:
    reach = fig2a.PART.measure(CONTEXT).data["distances"]["RBF"]
    assert reach["half"][20] == pytest.approx((50 * 0.6931471805599453) ** 0.5, rel=1e-12)
    assert reach["half"][0] == pytest.approx(reach["half"][20] / 100, rel=1e-12)
