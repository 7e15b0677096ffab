"""Hyperparameters that are shipped."""

from __future__ import annotations

import pytest
import torch
from paper.fake_models import FEATURES

from halfgp.errors import InputError
from halfgp.paper.studies.trained import trained


@pytest.mark.parametrize(("name", "features"), FEATURES.items())
def test_trained_kernels_fit_their_sets(name: str, features: int) -> None:
    if name == "houseelectric":  # nothing is solved there
        with pytest.raises(InputError, match="Nothing was trained for houseelectric"):
            trained(name)
        return
    found = trained(name, ard=name != "pol")
    assert found.kernel(
        torch.zeros(2, features, dtype=torch.float64), torch.ones(1, features).double()
    ).shape == (2, 1)
    assert 1e-4 <= found.noise < 1.0
    assert "rows" in found.source
