"""The parts themselves: they are what their names say, and each is measured and shown."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from halfgp.json_text import as_json
from halfgp.paper.contents import MODULES, ORDER, PARTS, in_order
from halfgp.paper.frame.context import Context
from halfgp.paper.frame.part import Part, Verdict
from halfgp.paper.studies.fits import FitRequest

BY_NAME = {part.name: part for part in PARTS}
ANALYSED = [
    "fig1",
    "fig2c",
    "fig2d",
    "fig2e",
    "fig3",
    "fig4a",
    "fig4b",
    "fig5a",
    "fig5b",
    "fig5c",
    "fig5d",
    "fig5e",
    "appendix_summation_times",
    "appendix_truncation_error",
    "appendix_eigenvalue_difference",
    "appendix_rbf_effective_dimension",
    "appendix_rbf_spectrum",
    "appendix_inverses",
    "appendix_buzz_solvers",
    "appendix_elevators_ranks",
    "appendix_keggdirected_ranks",
    "appendix_pol_without_ard",
    "appendix_spectral_cutoff",
    "appendix_quantised_dimension",
    "appendix_scaling_in_single",
]
FITTED = [
    "table1",
    "fig6",
    "fig7",
    "appendix_osborne_trajectories",
    "appendix_times_with_compilation",
    "appendix_times_without_compilation",
    "appendix_rmse",
    "appendix_nll",
    "appendix_matern12",
    "appendix_matern32",
    "appendix_matern52",
]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_a_part_has_a_title_a_place_and_something_to_show(part: Part) -> None:
    assert part.panels or part.table
    assert part.title
    assert part.place.startswith(("Figure", "Table", "Appendix"))


def test_every_part_that_is_declared_is_listed_once() -> None:
    declared = [part for module in MODULES for part in module.PARTS]
    assert sorted(part.name for part in declared) == sorted(part.name for part in PARTS)
    assert len(BY_NAME) == len(PARTS)
    for module in MODULES:
        assert {part.module for part in module.PARTS} == {module.__name__}


def test_every_file_with_parts_is_listed() -> None:
    package = Path(MODULES[0].__file__).parents[1]
    declaring = {
        path.stem
        for folder in ("studies", "parts")
        for path in (package / folder).glob("*.py")
        if "\nPARTS = (" in path.read_text()
    }
    assert declaring == {module.__name__.rpartition(".")[2] for module in MODULES}


def test_the_appendix_is_last() -> None:
    in_appendix = [part.place.startswith("Appendix") for part in PARTS]
    assert in_appendix == sorted(in_appendix)


@pytest.mark.parametrize("name", ANALYSED)
def test_a_part_measures_claims_and_draws(measured, name: str) -> None:
    pytest.importorskip("matplotlib")
    from halfgp.report.pictures import drawn

    found = measured(name)
    part = BY_NAME[name]
    assert found.claims
    for claim in found.claims:
        assert claim.reason.endswith(".")
        assert any(character.isdigit() for character in claim.measured)
    stored = json.loads(as_json(found.data))
    for panel in part.panels(stored) if part.panels else ():
        assert len(drawn(panel.draw)) < 150_000  # bytes of a page
    if part.table:
        table = part.table(stored)
        assert all(len(row) == len(table.heading) for row in table.rows)


@pytest.mark.parametrize("quick", [True, False], ids=["quick", "full"])
@pytest.mark.parametrize("name", FITTED)
def test_a_part_of_fits_is_measured_drawn_and_laid_out(
    asked: list[FitRequest], quick: bool, name: str
) -> None:
    pytest.importorskip("matplotlib")
    from halfgp.report.pictures import drawn

    part = BY_NAME[name]
    found = part.measure(Context(quick=quick, output=Path("unused")))
    assert found.claims
    for claim in found.claims:
        for text in (claim.text, claim.paper, claim.measured, claim.reason):
            assert text.endswith((".", ".)"))
            assert "nan" not in text
    data = json.loads(as_json(found.data))
    if part.table is not None:
        shown = part.table(data)
        assert {len(row) for row in shown.rows} == {len(shown.heading)}
        assert len(shown.rows) == len(data["records"])
    for panel in part.panels(data) if part.panels else ():
        assert "<svg" in drawn(panel.draw)


def test_what_rounding_alone_decides_holds_on_any_machine(measured) -> None:
    for name in ("fig1", "appendix_truncation_error", "appendix_rbf_spectrum", "appendix_inverses"):
        assert measured(name).claims[0].verdict is Verdict.HOLDS, name
    assert measured("appendix_quantised_dimension").claims[0].verdict is Verdict.FAILS
    assert measured("appendix_spectral_cutoff").claims[1].verdict is Verdict.FAILS
    assert all(
        claim.verdict is Verdict.HOLDS for claim in measured("appendix_rbf_effective_dimension").claims
    )


def test_which_claims_a_run_requires(measured) -> None:
    required = {name for name in ANALYSED if any(claim.required for claim in measured(name).claims)}
    assert required == {
        "fig4b",
        "fig5a",
        "fig5b",
        "fig5e",
        "appendix_truncation_error",
        "appendix_rbf_effective_dimension",
        "appendix_rbf_spectrum",
    }


@pytest.mark.parametrize("quick", [True, False], ids=["quick", "full"])
def test_parts_share_the_fits_of_the_tables(asked: list[FitRequest], quick: bool) -> None:
    context = Context(quick=quick, output=Path("unused"))
    BY_NAME["table1"].measure(context)
    known = {request.file_name for request in asked}
    assert len(known) == len(asked)  # each once
    for name in ("fig6", "fig7", "appendix_osborne_trajectories", "appendix_rmse", "appendix_nll"):
        asked.clear()
        BY_NAME[name].measure(context)
        assert {request.file_name for request in asked} <= known
    asked.clear()
    BY_NAME["appendix_matern32"].measure(context)
    others = {request for request in asked if request.file_name not in known}
    assert {request.kernel for request in others} == {"matern32"}
    assert any(request.kernel == "rbf" for request in asked)  # what it is compared with


def test_a_part_that_the_paper_does_not_have_comes_last() -> None:
    assert [part.name for part in PARTS] == list(ORDER)
    another = replace(PARTS[0], name="another")
    assert in_order([another, *reversed(PARTS)]) == (*PARTS, another)
