"""Truncated means: a difference is found."""

from __future__ import annotations

from halfgp.paper.frame.part import Verdict
from halfgp.paper.studies import truncation
from halfgp.paper.studies.truncation import Setting, emulated_difference, engine_difference, setting


def test_a_difference_in_the_last_bit_fails(changed) -> None:
    def differ(data) -> None:
        data["difference"][truncation.ENGINE][0] = 1e-16

    data = changed("appendix_truncation_error", differ)
    assert truncation._exact(data).verdict is Verdict.IN_PART


def test_a_difference_of_means_is_found(monkeypatch) -> None:
    case = setting(4096, 0)
    assert 0.2 <= case.kept <= 0.3
    assert engine_difference(case) == 0.0
    assert emulated_difference(case, "block_single") == 0.0
    whole = case.truncated()
    monkeypatch.setattr(Setting, "truncated", lambda case: whole * (1 + 2.0**-40))
    assert engine_difference(case) > 0.0
