"""Spectra that do not show what is claimed fail."""

from __future__ import annotations

from halfgp.paper.frame.part import Verdict
from halfgp.paper.studies.spectra import condition_claim, decay_claim


def test_a_spectrum_that_falls_as_fast_fails(changed) -> None:
    data = changed("appendix_rbf_spectrum", lambda d: d["above"].update(half=d["above"]["double"]))
    assert decay_claim(data).verdict is Verdict.FAILS
    data["above"]["half"] += 1
    assert decay_claim(data).verdict is Verdict.IN_PART


def test_an_indefinite_matrix_has_no_condition_number(changed) -> None:
    data = changed("fig2d", lambda d: d["least"].update(half=-1.0, bfloat16=-1.0))
    claim = condition_claim(data)
    assert claim.verdict is Verdict.IN_PART
    assert "half: not positive definite, least eigenvalue −0.99" in claim.measured
