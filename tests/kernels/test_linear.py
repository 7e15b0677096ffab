"""Linear, constant and white covariances."""

from __future__ import annotations

import pytest
import torch

from halfgp import Constant, Linear, White
from halfgp.errors import InputError

X = torch.randn(4, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_linear_is_a_weighted_inner_product() -> None:
    kernel = Linear([0.5, 2.0])
    expected = X @ torch.diag(torch.tensor([0.5, 2.0], dtype=torch.float64)) @ X.T
    torch.testing.assert_close(kernel(X, X), expected)
    torch.testing.assert_close(kernel.diagonal(X), expected.diagonal())


def test_constant_is_the_same_for_all_pairs() -> None:
    assert Constant(0.3)(X, X[:2]).tolist() == [[0.3, 0.3]] * 4
    assert Constant(0.3).diagonal(X).tolist() == [0.3] * 4


def test_white_lives_on_the_diagonal_only() -> None:
    assert White(0.3)(X, X).abs().max() == 0.0
    assert White(0.3).diagonal(X).tolist() == [0.3] * 4
    assert White(0.3).diagonal(X, white=False).tolist() == [0.0] * 4


@pytest.mark.parametrize("kernel", [Constant, White])
def test_scalars_refuse_vectors(kernel: type[Constant] | type[White]) -> None:
    with pytest.raises(InputError, match="must be a single number"):
        kernel([1.0, 2.0])
