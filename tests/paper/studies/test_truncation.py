"""Truncated means: a difference is found."""

from __future__ import annotations

import copy

from halfgp.paper.frame.part import Verdict
from halfgp.paper.studies import truncation
from halfgp.paper.studies.truncation import emulated_difference, engine_difference, setting


def test_a_difference_in_the_last_bit_fails(changed) -> None:
    def differ(data) -> None:
        data["difference"][truncation.ENGINE][0] = 1e-16

    data = changed("appendix_truncation_error", differ)
    assert truncation._exact(data).verdict is Verdict.IN_PART


def test_a_difference_of_means_is_found() -> None:
    case = setting(4096, 0)
    assert 0.25 <= case.kept <= 0.5
    assert engine_difference(case) == 0.0
    assert emulated_difference(case, "block_single") == 0.0
    far = case.mean.near(case.new[:1])  # of one end only: rows that the other end needs are missing
    broken = copy.copy(case.mean)
    object.__setattr__(broken, "near", lambda z: far)
    object.__setattr__(case, "mean", broken)
    assert engine_difference(case) > 0.0
