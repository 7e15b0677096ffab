"""Tables of trained models: what claims make of figures, and which models are asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from paper.fake_models import with_half

from halfgp.paper.frame.context import Context
from halfgp.paper.frame.part import Verdict
from halfgp.paper.studies import plan, records
from halfgp.paper.studies.displays import table
from halfgp.paper.studies.fits import FitRequest
from halfgp.paper.studies.tables import PARTS, coarser_claim, faster_claim, kept_claim, svgp_claim

RBF, MATERN12, _, MATERN52 = PARTS
QUICK = Context(quick=True, output=Path("unused"))
FULL = Context(quick=False, output=Path("unused"))


@pytest.mark.parametrize(
    ("claim", "figures", "verdict"),
    [
        (kept_claim, {"rmse": 0.2 * 1.04}, Verdict.HOLDS),
        (kept_claim, {"rmse": 0.2 * 1.06}, Verdict.FAILS),
        (coarser_claim, {"factor": 1.09}, Verdict.HOLDS),
        (coarser_claim, {"factor": 1.11}, Verdict.FAILS),
        (faster_claim, {"seconds": 3.9}, Verdict.HOLDS),
        (faster_claim, {"seconds": 4.1}, Verdict.FAILS),
        (svgp_claim, {"seconds": 2.0}, Verdict.HOLDS),
        (svgp_claim, {"seconds": 0.5}, Verdict.IN_PART),
        (svgp_claim, {"seconds": 0.5, "rmse": 0.29}, Verdict.FAILS),
    ],
)
def test_claims_follow_from_figures(claim: Callable, figures: dict[str, float], verdict: Verdict) -> None:
    assert claim(with_half(**figures)).verdict is verdict


def test_the_full_table_has_the_sets_seeds_and_sizes_of_the_paper(asked: list[FitRequest]) -> None:
    RBF.measure(FULL)
    ours_asked = [request for request in asked if request.method != "svgp"]
    assert {request.steps for request in ours_asked} == {50}
    assert {request.inducing for request in asked if request.method == "svgp"} == {1024}
    seeds = Counter(request.set_name for request in asked if request.method == "half")
    assert seeds == {
        "pol": 5, "elevators": 5, "bike": 5, "kin40k": 3, "protein": 3, "keggdirected": 3,
        "osborne_magnetic": 3, "covtype_elev": 3, "houseelectric": 3,
    }  # fmt: skip
    rows = {r.set_name: r.rows for r in asked}
    assert rows["pol"] is None
    assert rows["houseelectric"] == plan.LARGE_ROWS


def test_required_are_the_claims_of_the_small_sets_and_of_bfloat16(asked: list[FitRequest]) -> None:
    required = [claim.text for claim in RBF.measure(QUICK).claims if claim.required]
    assert len(required) == 2
    assert "within 5 % of single" in required[0]
    assert "bfloat16 is worse than float16" in required[1]


def test_where_svgp_is_not_installed_the_table_says_so(
    asked: list[FitRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "is_available", lambda method: method != "svgp")
    found = RBF.measure(QUICK)
    assert found.claims[-1].verdict is Verdict.OPEN
    assert "not installed" in found.claims[-1].measured
    rows = [row for row in table(found.data).rows if row[2] == "SVGP"]
    assert len(rows) == 2
    assert all("not installed" in row for row in rows)
    assert all(request.method != "svgp" for request in asked)


def test_matern_is_compared_with_rbf_of_the_same_seeds(asked: list[FitRequest]) -> None:
    found = MATERN12.measure(FULL)
    assert found.claims[1].verdict is Verdict.FAILS  # fakes have one RMSE for all kernels
    asked_rbf = [(r.set_name, r.seed) for r in asked if r.kernel == "rbf"]
    assert asked_rbf == [(r.set_name, r.seed) for r in asked if (r.kernel, r.method) == ("matern12", "half")]


def test_the_signs_of_the_tables_contradict_each_other(asked: list[FitRequest]) -> None:
    assert MATERN52.measure(QUICK).claims[-1].verdict is Verdict.FAILS
