"""The paper's own figures."""

from __future__ import annotations

from halfgp.paper.studies.published import MATERN_NLL, MATERN_RMSE, MATERN_SECONDS, NLL, RMSE, published


def test_published_figures_are_corrected() -> None:
    assert published("rbf", "rmse", "protein", "single").value == 0.55  # not 0.055
    assert published("matern12", "nll", "pol", "half").value == -0.478  # not 0.0478
    assert published("matern52", "nll", "elevators", "half").value == 0.967  # not −0.967
    assert published("rbf", "rmse", "osborne_magnetic", "half") == published("rbf", "rmse", "3droad", "half")
    assert published("rbf", "rmse", "pol", "bfloat16") is None
    assert published("rbf", "rmse", "keggdirected", "half") is None
    assert published("matern32", "rmse", "pol", "single") is None


def test_published_tables_have_the_same_sets() -> None:
    assert RMSE.keys() == NLL.keys()
    for kernel, by_set in MATERN_RMSE.items():
        assert by_set.keys() == MATERN_NLL[kernel].keys() == MATERN_SECONDS[kernel].keys()
