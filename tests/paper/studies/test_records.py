"""Figures of models over seeds."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from paper.fake_models import fake_fit

from halfgp.paper.frame.context import Context
from halfgp.paper.studies.displays import ours
from halfgp.paper.studies.fits import FitRequest
from halfgp.paper.studies.records import changes, drift, ratios, records

FULL = Context(quick=False, output=Path("unused"))


def test_drift_is_the_root_mean_square_of_logarithms() -> None:
    single = fake_fit(FitRequest("pol", "single"))
    far = fake_fit(FitRequest("pol", "half"), factor=math.exp(0.1))
    assert drift(single, single) == 0
    assert drift(far, single) == pytest.approx(0.1, rel=1e-12)
    noise_alone = replace(far, trajectory=single.trajectory | {"noise": far.trajectory["noise"]})
    assert drift(noise_alone, single) == pytest.approx(0.1 / 2, rel=1e-12)  # one of four numbers a step


def test_ratios_are_of_means_over_seeds(asked: list[FitRequest]) -> None:
    found = records(FULL)
    assert ratios(found, "rmse", "half", "single")["pol"] == pytest.approx(1.02, rel=1e-12)
    pol = next(record for record in found if (record["set"], record["method"]) == ("pol", "single"))
    assert pol["rmse"] == pytest.approx([0.2, 0.2002, 0.2004, 0.2006, 0.2008], rel=1e-12)
    shown = ours(found, "rmse")["values"]["single"][0]
    assert shown == pytest.approx([0.2004, np.std(pol["rmse"], ddof=1)], rel=1e-12)
    assert changes({"pol": 1.02, "bike": 0.985}) == "pol +2.0 %, bike −1.5 %"
