from __future__ import annotations

import pytest
import torch

from halfgp.standardise import Standardisation


def columns(n=200):
    x = torch.randn(n, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return x * torch.tensor([1.0, 1e-3, 1e5, 3.0]) + torch.tensor([0.0, 1e3, -1e8, 7.0])


def test_columns_have_mean_zero_and_variance_one_and_come_back():
    x = columns()
    scale = Standardisation.of(x)
    z = scale.apply(x)
    # An offset of a million spreads leaves ten digits.
    torch.testing.assert_close(z.mean(dim=0), torch.zeros(4, dtype=torch.float64), rtol=0, atol=1e-9)
    torch.testing.assert_close(z.square().mean(dim=0), torch.ones(4, dtype=torch.float64), rtol=1e-9, atol=0)
    torch.testing.assert_close(scale.undo(z), x, rtol=1e-15, atol=1e-15)


def test_a_constant_column_keeps_its_scale():
    x = torch.full((5, 2), 3.7, dtype=torch.float64)
    x[:, 1] = torch.arange(5)
    scale = Standardisation.of(x)
    assert scale.scale[0] == 1.0
    assert scale.apply(x)[:, 0].tolist() == [0.0] * 5
    assert scale.scale[1].item() == pytest.approx(2.0**0.5)


def test_not_wanted_it_does_nothing():
    x = columns()
    scale = Standardisation.of(x, wanted=False)
    assert torch.equal(scale.apply(x), x)
    assert torch.equal(scale.undo(x), x)


@pytest.mark.parametrize("magnitude", [1e300, 1e-300])
def test_no_magnitude_overflows_or_vanishes(magnitude):
    x = columns()[:, :1] * magnitude
    z = Standardisation.of(x).apply(x)
    torch.testing.assert_close(z, Standardisation.of(columns()[:, :1]).apply(columns()[:, :1]))


def test_one_row_is_a_constant():
    scale = Standardisation.of(torch.tensor([[2.0, -1.0]]))
    assert scale.mean.tolist() == [2.0, -1.0]
    assert scale.scale.tolist() == [1.0, 1.0]


def test_a_column_is_what_it_is_beside_others_or_alone():
    """To the bit: ranks that read a table a column at a time come to what one process does."""
    x = columns(70_001)
    scale, alone = Standardisation.of(x), [Standardisation.of(x[:, [k]]) for k in range(4)]
    for whole, parts in ((scale, Standardisation.beside(alone)), (scale.of_columns([2]), alone[2])):
        assert torch.equal(whole.mean, parts.mean)
        assert torch.equal(whole.scale, parts.scale)


def test_what_is_wanted_in_single_is_rounded_once():
    x = columns(70_001)  # more than are in double at a time
    scale = Standardisation.of(x)
    assert torch.equal(scale.apply(x, torch.float32), scale.apply(x).float())
    assert torch.equal(scale.apply(x), (x - scale.mean) / scale.scale)
    x32 = x.float()
    assert torch.equal(Standardisation.of(x32).mean, Standardisation.of(x32.double()).mean)
    assert torch.equal(scale.apply(x32), scale.apply(x32.double()))


def test_float32_is_standardised_in_double():
    x = (columns()[:, 2:3]).float()
    assert Standardisation.of(x).apply(x).dtype == torch.float64
