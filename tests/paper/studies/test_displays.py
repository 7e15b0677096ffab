"""Cells of tables."""

from __future__ import annotations

from halfgp.paper.studies.displays import spread, with_deviation


def test_cells_have_deviations_where_there_are_several_seeds() -> None:
    assert spread([0.1, 0.12], 3) == "0.110 ± 0.014"
    assert spread([-0.5], 3) == "−0.500"
    assert spread([], 3) == "–"
    assert with_deviation(24_357, 2613, 1) == "24,357 ± 2,613"
