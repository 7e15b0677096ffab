"""Direct solves are judged by their residuals."""

from __future__ import annotations

from halfgp.paper.frame.part import Verdict
from halfgp.paper.parts import direct_solves


def test_a_direct_solve_that_succeeds_fails_the_claim(changed) -> None:
    def succeed(data) -> None:
        data["residuals"]["half"] = data["residuals"]["double"] = [0.01] * len(data["ranks"]["half"])

    data = changed("fig3", succeed)
    assert direct_solves._direct_fails(data).verdict is Verdict.FAILS
    assert direct_solves._by_round_off(data).verdict is Verdict.FAILS
    assert direct_solves._cg_solves({**data, "residual": 0.5, "iterations": 99}).verdict is Verdict.FAILS


def test_a_direct_solve_that_only_half_fails_is_round_off(changed) -> None:
    def differ(data) -> None:
        data["residuals"]["half"] = [2 * residual for residual in data["residuals"]["double"]]

    assert direct_solves._by_round_off(changed("fig3", differ)).verdict is Verdict.HOLDS
