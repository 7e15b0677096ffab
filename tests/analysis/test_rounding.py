"""Errors of summation strategies, and inverses of rounded matrices."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from halfgp import RBF
from halfgp.analysis import STRATEGIES, inverse_of_rounded, kernel_matrix, product_errors
from halfgp.errors import InputError
from halfgp.precision import HALF, SINGLE


def points(n: int, d: int = 2) -> torch.Tensor:
    return torch.randn(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(4))


@pytest.fixture(scope="module")
def found():
    v = torch.rand(3000, generator=torch.Generator().manual_seed(5))
    return product_errors(RBF(), points(3000), [300, 3000], v=v, rows=64)


def test_every_strategy_has_an_error_for_every_size(found):
    assert set(found.errors) == set(STRATEGIES)
    assert found.sizes == (300, 3000)
    assert found.rows == 64
    assert all(len(errors) == 2 and min(errors) > 0 for errors in found.errors.values())


def test_single_is_best_and_plain_half_is_worst_and_grows(found):
    plain, single = found.errors["plain"], found.errors["single"]
    for name in ("block_half", "block_single", "kahan"):
        assert single[1] < found.errors[name][1] < plain[1]
    assert plain[1] > 3 * plain[0]
    # Of positive terms: entries, vector and products are rounded once, and every one of the sums.
    assert single[1] < (3000 + 3) * SINGLE.unit_roundoff


def test_blocks_in_single_and_kahan_stay_within_a_few_roundings(found):
    # Sums of positive terms: entries, vector, products and the result are each rounded once.
    assert found.errors["kahan"][1] < 4 * HALF.unit_roundoff
    # and here also as many partial sums of a block as there are, which round to either side.
    assert found.errors["block_single"][1] < 8 * HALF.unit_roundoff


def test_a_product_of_few_columns_is_what_numpy_gives():
    x, v = points(6, 1), torch.arange(1.0, 7.0, dtype=torch.float64)
    found = product_errors(RBF(), x, [6], ["plain"], v=v, rows=6)
    k = kernel_matrix(RBF(), x)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(0))
    entries = np.float16(k[order][:, order].numpy())
    scaled = np.float16(v[order].numpy() / 16.0)  # the power of two not below √6 · 6
    total = np.zeros(6, np.float16)
    for j in range(6):
        total = np.float16(total + np.float16(entries[:, j] * scaled[j]))
    exact = (k @ v)[order].numpy()
    expected = np.linalg.norm(16.0 * total.astype(np.float64) - exact) / np.linalg.norm(exact)
    assert found.errors["plain"][0] == pytest.approx(expected, rel=1e-9)


def test_the_seed_decides():
    first, again, other = (
        product_errors(RBF(), points(200), [100], ["plain"], seed=seed) for seed in (0, 0, 1)
    )
    assert first == again
    assert first != other


def test_inverses_are_inverses():
    x = torch.linspace(-3, 3, 50, dtype=torch.float64)[:, None]
    for fmt in ("double", "single", "half"):
        found = inverse_of_rounded(RBF(), x, fmt, 0.01)
        matrix = kernel_matrix(RBF(), x, fmt, rounding="evaluation")
        matrix.diagonal().add_(0.01)
        assert found.format == fmt
        torch.testing.assert_close(
            found.inverse @ matrix, torch.eye(50, dtype=torch.float64), rtol=0, atol=1e-9
        )
        assert found.least_eigenvalue == pytest.approx(float(torch.linalg.eigvalsh(matrix)[0]))


def test_the_inverse_in_half_differs_and_in_single_does_not():
    x = torch.linspace(-3, 3, 50, dtype=torch.float64)[:, None]
    double, single, half = (
        inverse_of_rounded(RBF(), x, fmt, 0.01).inverse for fmt in ("double", "single", "half")
    )
    assert float((single - double).norm() / double.norm()) < 1e-3
    assert float((half - double).norm() / double.norm()) > 0.05


def test_mistakes_are_named():
    x = points(10)
    with pytest.raises(InputError, match="`strategies`"):
        product_errors(RBF(), x, [10], ["pairwise"])
    for sizes in ([], [0], [11]):
        with pytest.raises(InputError, match="`sizes`"):
            product_errors(RBF(), x, sizes)
    with pytest.raises(InputError, match="`v`"):
        product_errors(RBF(), x, [10], v=torch.ones(9))
    with pytest.raises(InputError, match="`rows`"):
        product_errors(RBF(), x, [10], rows=0)
    with pytest.raises(InputError, match="`noise`"):
        inverse_of_rounded(RBF(), x, "half", -1.0)
    with pytest.raises(InputError, match="singular"):
        inverse_of_rounded(RBF(), torch.zeros(3, 1), "half", 0.0)
