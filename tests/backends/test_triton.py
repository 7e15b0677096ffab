"""GPU kernels in Triton's interpreter, beyond the contract that all backends have."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from contracts.backends import BACKENDS
from torch import Tensor

pytest.importorskip("triton")

from halfgp import RBF, ExactGP, KernelOperator, Matern
from halfgp.backends.triton import TritonBackend, gradient, product, runs
from halfgp.backends.triton.runs import RUN, Region, Runs
from halfgp.backends.triton.tiles import Tile, TileChoices, tile_key
from halfgp.errors import BackendError
from halfgp.precision import HALF, SINGLE, Precision
from halfgp.selftest.checks import assert_product_is_right, bind, random
from halfgp.selftest.contestant import Contestant

pytestmark = pytest.mark.elsewhere
CONTESTANT: Contestant = next(place.values[0] for place in BACKENDS if place.id == "triton")


@pytest.mark.parametrize("name", ["single", "half", "bfloat16"])
@pytest.mark.parametrize("t", [1, 16, 17, 256, 300])
def test_any_number_of_right_hand_sides(name: str, t: int) -> None:
    x, v = random(130, 4), random(130, t, seed=1)
    matrix = bind(CONTESTANT, RBF(2.0), x, None, name)
    assert_product_is_right(CONTESTANT, matrix, RBF(2.0), x, None, v)


@pytest.mark.parametrize("name", ["single", "half"])
@pytest.mark.parametrize("d", [1, 2, 16, 17, 65, 512])
def test_any_number_of_features(name: str, d: int) -> None:
    x, kernel = random(40, d), Matern(1.5, lengthscale=torch.linspace(1.0, 2.0, d) * d**0.5)
    matrix = bind(CONTESTANT, kernel, x, None, name)
    assert_product_is_right(CONTESTANT, matrix, kernel, x, None, random(40, 3, seed=1))


def test_without_the_low_part_entries_are_numbers_of_half_and_the_bound_of_the_other_mode_breaks() -> None:
    x, v, kernel = random(100, 5), random(100, 4, seed=1), RBF(2.0)
    precision = Precision.resolve("half").with_entries(SINGLE)
    fast = TritonBackend(fast=True).bind(kernel, x, None, precision=precision, store=False, threads=None)
    assert fast.precision.entries is HALF
    block = fast.block(None, None)
    assert torch.equal(block, block.half().float())
    assert_product_is_right(CONTESTANT, fast, kernel, x, None, v)
    exact = bind(CONTESTANT, kernel, x, None, "double").matmul(v, None)
    full = bind(CONTESTANT, kernel, x, None, "half").matmul(v, None)
    error = [float((found - exact).abs().max()) for found in (fast.matmul(v, None), full)]
    assert error[0] > 20 * error[1]


FIT: dict[str, Any] = {
    "method": "cg",
    "training__subset": 0,
    "training__probes": 2,
    "solve__tol": 1e-6,
    "variances__method": "local",
}


def small_rows() -> tuple[Tensor, Tensor, Tensor]:
    x = random(150, 2)
    return x, torch.sin(2 * x.sum(dim=1)) + 0.1 * random(150, 1, seed=1)[:, 0], random(20, 2, seed=2)


@pytest.mark.parametrize("precision", ["single", "half"])
def test_predictions_are_those_of_the_cpu_but_for_the_errors_that_both_tell(precision: str) -> None:
    x, y, new = small_rows()
    options = FIT | {"training__steps": 0, "kernel": 1.2 * Matern(1.5, [0.8, 1.1]), "precision": precision}
    models = [ExactGP(backend=backend, **options).fit(x, y) for backend in ("triton", "cpu")]
    assert models[0].posterior.operator.backend.name == "triton"
    found, wanted = (model.predict(new, return_std=True, return_error=True) for model in models)
    # Each is off by what its own estimate says, of which three are hardly exceeded. Deviations are of the
    # same neighbours in double, times a scale that residuals tell, as exactly as means are known.
    told = 3.0 * sum(torch.tensor(each.error.mean) for each in (found, wanted))
    assert bool((torch.tensor(found.mean - wanted.mean).abs() <= told).all())
    assert bool((torch.tensor(found.std - wanted.std).abs() <= told.max()).all())
    assert float(told.max()) <= 0.01 * float(torch.tensor(wanted.std).min())  # and that is little


def test_steps_of_training_are_those_of_the_cpu() -> None:
    x, y = (rows[:100] for rows in small_rows()[:2])
    options = FIT | {"training__steps": 3, "training__tol": 1e-5}
    models = [ExactGP(backend=backend, **options).fit(x, y) for backend in ("triton", "cpu")]
    found, wanted = (model.hyperparameters.named_parameters() for model in models)
    rate = models[0].settings.training.learning_rate
    for name, parameter in wanted.items():
        # Adam's step is the rate times a ratio of gradients, which solves know to 1e-5 and products in single
        # to less: three steps are off by some 1e-5 of the rate, for which there is room of a hundred.
        off = (found[name].value - parameter.value).abs().max() / max(1.0, float(parameter.value.abs().max()))
        assert float(off) <= 100 * 3 * 1e-5 * rate, name


def test_runs_cover_every_column_once_and_are_short_enough_for_single() -> None:
    for rows, columns in ((128, 128), (128, 10**6), (10**6, 10**5)):
        found = Runs.of(Region(range(rows), range(columns), False), Tile(128, 64, 4))
        assert found.length <= RUN
        batches = list(found.batches(256 * rows))
        assert sum(batch.count for batch in batches) == found.count
        starts = [batch.columns.start + k * found.length for batch in batches for k in range(batch.count)]
        assert starts == list(range(0, columns, found.length))


def test_kernels_are_launched_on_the_card_of_the_points_which_need_not_be_the_current_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    current: list[Tensor] = []
    launched: list[list[Tensor]] = []

    @contextlib.contextmanager
    def device_of(tensor: Tensor) -> Iterator[None]:
        current.append(tensor)
        yield
        current.pop()

    class Watched:
        def __init__(self, kernel: Any) -> None:
            self._kernel = kernel

        def __getitem__(self, grid: Any) -> Any:
            launched.append(list(current))
            return self._kernel[grid]

    monkeypatch.setattr(torch.cuda, "device_of", device_of)
    kernels = ((product, "product_kernel"), (product, "block_kernel"), (gradient, "gradient_kernel"))
    for module, name in (*kernels, (runs, "add_kernel")):
        monkeypatch.setattr(module, name, Watched(getattr(module, name)))
    x = random(5, 3)
    matrix = bind(CONTESTANT, RBF(), x, None, "half")
    matrix.matmul(x, None), matrix.block(None, None), matrix.bilinear_gradient(x, x, False)
    assert len(launched) >= 5
    assert all(len(tensors) == 1 and tensors[0].device == x.device for tensors in launched)


def test_points_on_the_cpu_are_refused_where_nothing_is_interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halfgp.backends.triton.INTERPRETED", False)
    with pytest.raises(ValueError, match='`backend="triton"` needs points on a GPU; got cpu'):
        KernelOperator(RBF(), random(5, 2), backend="triton")


def test_a_strange_profile_is_refused_with_a_remedy() -> None:
    from halfgp.backends.triton import description

    strange = RBF().program()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(description, "PROFILES", ())
        with pytest.raises(BackendError, match=r"does not know the profile 'rbf'.*reference"):
            description.describe(
                strange, [1], expand=True, normalised=False, cut=False, rounded=False, units=False
            )


def test_a_choice_of_tiles_holds_for_somewhat_more_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "A card")
    keys = [tile_key(torch.device("cuda"), range(n), range(4096), "product") for n in (1280, 1408, 2048)]
    assert keys[0] == keys[1] != keys[2]


def test_the_fastest_tile_is_timed_once_and_remembered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, timed = tmp_path / "cache" / "tiles.json", []
    slow, quick = Tile(128, 64, 4), Tile(64, 32, 8)

    def milliseconds(tile: Tile) -> float:
        timed.append(tile)
        return {slow: 2.0, quick: 1.0}[tile]

    choices = TileChoices(path)
    with caplog.at_level(logging.WARNING, "halfgp"):
        assert choices.best("a", (slow, quick), milliseconds) == quick
    assert "Compiling 2 candidates" in caplog.text
    assert choices.best("a", (slow, quick), milliseconds) == quick
    assert TileChoices(path).best("a", (slow, quick), milliseconds) == quick  # another process
    assert timed == [slow, quick]
    assert json.loads(path.read_text()) == {"a": list(quick)}
    path.write_text("{half")
    assert TileChoices(path).best("a", (slow, quick), milliseconds) == quick
    assert len(timed) == 4
