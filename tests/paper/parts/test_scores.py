"""What claims make of RMSE and NLL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from paper.fake_models import with_half

from halfgp.paper.frame.context import Context
from halfgp.paper.frame.part import Verdict
from halfgp.paper.parts import scores
from halfgp.paper.studies import records
from halfgp.paper.studies.fits import FitRequest

QUICK = Context(quick=True, output=Path("unused"))
_, NLL = scores.PARTS


@pytest.mark.parametrize(
    ("claim", "figures", "verdict"),
    [
        (scores._as_single, {"nll": -0.49}, Verdict.HOLDS),
        (scores._as_single, {"nll": -0.47}, Verdict.FAILS),
        # ½ ln(2πe·0.2²) is −0.190
        (scores._beats_constant, {"rmse": 0.2, "nll": -0.20}, Verdict.HOLDS),
        (scores._beats_constant, {"rmse": 0.2, "nll": -0.18}, Verdict.FAILS),
        (scores._svgp_is_better, {"nll": -0.4}, Verdict.HOLDS),
        (scores._svgp_is_better, {"nll": -0.6}, Verdict.FAILS),
        (scores._almost_the_same, {"rmse": 0.2 * 1.06}, Verdict.FAILS),
    ],
)
def test_claims_follow_from_figures(claim: Callable, figures: dict[str, float], verdict: Verdict) -> None:
    assert claim(with_half(**figures)).verdict is verdict


def test_in_the_paper_every_nll_of_half_is_worse_than_a_constant_deviation(asked: list[FitRequest]) -> None:
    claim = NLL.measure(QUICK).claims[1]
    assert "on 9 of 9 sets" in claim.paper


def test_without_svgp_its_claim_is_open(asked: list[FitRequest], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "is_available", lambda method: method != "svgp")
    assert NLL.measure(QUICK).claims[-1].verdict is Verdict.OPEN
