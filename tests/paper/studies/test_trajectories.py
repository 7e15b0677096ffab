"""Hyperparameters by step, half beside single."""

from __future__ import annotations

from pathlib import Path

import pytest
from paper.fake_models import STEPS

from halfgp.paper.frame.context import Context
from halfgp.paper.frame.part import Verdict
from halfgp.paper.studies import trajectories
from halfgp.paper.studies.fits import FitRequest

QUICK = Context(quick=True, output=Path("unused"))


def test_trajectories_tell_the_largest_and_the_last_difference(asked: list[FitRequest]) -> None:
    data = trajectories.trajectories(QUICK, "protein")
    assert data["largest_difference"]["noise"] == pytest.approx(0.01, rel=1e-9)
    follows, ends = trajectories.claims(data, "Close.")
    assert (follows.verdict, ends.verdict) == (Verdict.HOLDS, Verdict.HOLDS)
    assert "noise 1.0 %" in follows.measured
    data["half"]["noise"][1] *= 1.5
    assert trajectories._difference(data, "noise", slice(STEPS)) == pytest.approx(0.515, rel=1e-9)
    assert trajectories._difference(data, "noise", slice(STEPS - 1, STEPS)) == pytest.approx(0.01, rel=1e-9)
