"""Solvers and ranks are judged by what was reached."""

from __future__ import annotations

from paper.fake_models import solved

from halfgp.paper.frame.part import Verdict
from halfgp.paper.studies.solvers import (
    larger_is_faster_claim,
    rescued_claim,
    solver_claims,
    without_converges_claim,
)


def test_solvers_are_judged_by_what_they_reached() -> None:
    probes = {"status": "converged", "iterations": 9, "residual": 0.4}
    failed, good = solved(0, None), solved(15, 10)
    verdicts = [c.verdict for c in solver_claims({"runs": [failed, failed, good, good], "probes": probes})]
    assert verdicts == [Verdict.HOLDS] * 3
    probes = {"status": "stagnated", "iterations": 50, "residual": 0.9}
    verdicts = [c.verdict for c in solver_claims({"runs": [good, good, failed, good], "probes": probes})]
    assert verdicts == [Verdict.FAILS] * 3
    slow = solved(15, 20)
    claims = solver_claims({"runs": [failed, good, slow, good], "probes": probes})
    assert [claim.verdict for claim in claims[:2]] == [Verdict.IN_PART] * 2


def test_ranks_are_judged_by_iterations() -> None:
    ranked = [solved(0, 20), solved(5, 12, low=30)]
    faster = {"runs": [*ranked, solved(15, 11, low=29), solved(50, 9, low=20)], "rho": 0.01}
    slower = {"runs": [*ranked, solved(15, 13), solved(50, 14)], "rho": 2.0}
    assert larger_is_faster_claim(faster).verdict is Verdict.HOLDS
    assert larger_is_faster_claim(slower).verdict is Verdict.FAILS
    assert without_converges_claim(faster).verdict is Verdict.HOLDS
    assert without_converges_claim({"runs": [solved(0, None)]}).verdict is Verdict.FAILS


def test_a_rank_rescues_only_what_diverges() -> None:
    def verdict(without: int | None, five: int | None) -> Verdict:
        return rescued_claim({"runs": [solved(0, without), solved(5, five)], "rho": 0.1}).verdict

    assert verdict(None, 9) is Verdict.HOLDS
    assert verdict(9, 9) is Verdict.FAILS
    assert verdict(None, None) is Verdict.FAILS
