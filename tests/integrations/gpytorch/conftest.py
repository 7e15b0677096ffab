"""GPyTorch's settings, whoever else is in the process."""

from __future__ import annotations

import pytest
from linear_operator.settings import fast_computations, max_cholesky_size


@pytest.fixture(autouse=True)
def _as_without_botorch():
    """BoTorch, where another test imported it, has Cholesky factors taken of up to 4,096 rows."""
    with fast_computations(True, True, True), max_cholesky_size(800):
        yield
