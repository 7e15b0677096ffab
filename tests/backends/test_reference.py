"""The reference holds to what is its own: chunks, rounding, units. The rest is in the contract."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from halfgp import RBF, Linear, Matern, RationalQuadratic, White
from halfgp.backends import reference
from halfgp.backends.reference import ReferenceMatrix, scaled_features
from halfgp.kernels import Kernel
from halfgp.precision import SINGLE, Precision

KERNEL = 2.0 * RBF([0.5, 1.0]) * RationalQuadratic(0.6) + Matern(0.5) + White(0.1)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def bind(kernel: Kernel, x1: Tensor, x2: Tensor | None, name: str, store: bool = False) -> ReferenceMatrix:
    return reference.BACKEND.bind(
        kernel, x1, x2, precision=Precision.resolve(name), store=store, threads=None
    )


@pytest.mark.parametrize("store", [False, True])
@pytest.mark.parametrize("square", [True, False])
def test_chunks_do_not_change_results(monkeypatch: pytest.MonkeyPatch, store: bool, square: bool) -> None:
    x1, x2 = random(23, 2), None if square else random(9, 2, seed=1)
    u, v = random(23, 3, seed=2), random(23 if square else 9, 3, seed=3)
    whole = bind(KERNEL, x1, x2, "double", store)
    expected = whole.matmul(v, None), whole.block(None, None), whole.bilinear_gradient(u, v, True)
    monkeypatch.setattr(reference, "CHUNK_BYTES", 5000)
    chunked = bind(KERNEL, x1, x2, "double", store)
    assert len(list(chunked._chunks(slice(0, 23)))) > 3
    torch.testing.assert_close(chunked.matmul(v, None), expected[0], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(chunked.block(None, None), expected[1], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(chunked.bilinear_gradient(u, v, True), expected[2], rtol=1e-10, atol=1e-10)


def test_chunks_bound_the_memory_of_a_large_problem() -> None:
    matrix = bind(KERNEL, random(1000, 2), None, "single")
    rows = next(iter(matrix._chunks(slice(0, 10**6))))
    temporaries = 2 + 4 * 3  # per entry, for three leaves
    assert (rows.stop - rows.start) * 1000 * 8 * temporaries <= reference.CHUNK_BYTES


def test_inputs_are_rounded_to_the_format_relative_to_the_mean() -> None:
    x = random(50, 2) + 1000.0
    matrix = bind(RBF([0.5, 1.0]), x, None, "half")
    ((z,),) = matrix._features
    assert z.dtype == torch.float32
    assert torch.equal(z, z.half().float())
    assert z.mean(dim=0).abs().max() < 1e-2


def test_inner_products_are_not_centred() -> None:
    x = random(5, 2) + 10.0
    leaf = Linear().program().leaves[0]
    assert torch.equal(scaled_features(leaf, [x])[0], x)


@pytest.mark.parametrize("amplitude", [3e-6, 1.0, 3e6])
def test_stored_half_entries_neither_overflow_nor_vanish_with_the_amplitude(amplitude: float) -> None:
    x = random(20, 2)
    block = bind(amplitude * RBF(), x, None, "half", store=True).block(None, None)
    # Inputs and entries in half: a few of its units.
    torch.testing.assert_close(block.double(), amplitude * RBF()(x, x), rtol=0.0, atol=amplitude * 2.0**-8)


def test_unrounded_entries_can_be_stored_in_a_sixteen_bit_precision() -> None:
    precision = Precision.resolve("half").with_entries(SINGLE)
    x = random(20, 2)
    stored = reference.BACKEND.bind(RBF(), x, None, precision=precision, store=True, threads=None)
    fly = reference.BACKEND.bind(RBF(), x, None, precision=precision, store=False, threads=None)
    assert stored.storage == "stored float32"
    assert fly.storage == "on_the_fly"
    torch.testing.assert_close(stored.block(None, None), fly.block(None, None), rtol=1e-6, atol=0.0)


def test_gradients_in_half_are_those_of_the_rounded_points() -> None:
    x, w = random(15, 2), random(15, 1, seed=1)
    half = bind(KERNEL, x, None, "half").bilinear_gradient(w, w, False)[0]
    double = bind(KERNEL, x, None, "double").bilinear_gradient(w, w, False)[0]
    for name, gradient in half.items():
        torch.testing.assert_close(gradient, double[name], rtol=0.02, atol=0.02)


def test_parameters_with_a_graph_are_bound_by_value() -> None:
    lengthscale = torch.tensor(0.7, requires_grad=True)
    x = random(5, 2)
    matrix = bind(RBF(lengthscale), x, None, "single")
    assert not matrix.matmul(x, None).requires_grad
    assert not matrix.bilinear_gradient(x, x, False)[0]["lengthscale"].requires_grad
