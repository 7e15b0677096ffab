"""Solves in words."""

from __future__ import annotations

import pytest
from paper.fake_models import solved

from halfgp.paper.studies.residuals import outcome


@pytest.mark.parametrize("status", ["max_iterations", "nonfinite", "breakdown", "stagnated"])
def test_every_ending_has_words(status: str) -> None:
    assert "true residual 1" in outcome(solved(0, None, status=status))
