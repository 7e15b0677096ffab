"""Predictions in half and in single."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from halfgp.paper.frame.context import Context
from halfgp.paper.frame.part import Verdict
from halfgp.paper.parts import predictions
from halfgp.paper.studies import plan


def test_predictions_in_half_are_near_those_in_single(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (200, 2))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(len(X))
    for name in ("pol", "elevators"):
        (tmp_path / name).mkdir()
        np.savetxt(tmp_path / name / "data.csv.gz", np.column_stack([X, y]), delimiter=",")
    monkeypatch.setattr(plan, "QUICK", replace(plan.QUICK, steps=6))
    context = Context(quick=True, output=tmp_path / "output", data=tmp_path)
    found = predictions.PARTS[0].measure(context)
    single, half, bfloat16 = found.data["records"][:3]
    assert [r["method"] for r in (single, half, bfloat16)] == ["single", "half", "bfloat16"]
    assert single["residual"] <= predictions.TOL
    assert single["rmse"][0] < 0.9
    # Weights and means are rounded to 8 bits, and means are below 2.
    assert abs(half["rmse"][0] - single["rmse"][0]) < 2**-8
    assert half["rmse"] != single["rmse"]
    assert found.claims[0].verdict is Verdict.HOLDS
    assert len(predictions._table(found.data).rows) == 6
