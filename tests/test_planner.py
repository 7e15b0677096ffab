from __future__ import annotations

from pathlib import Path

import pytest
from contracts import forked

from halfgp.choices import (
    CHOLESKY_ROWS,
    FACTOR_ROWS,
    RESIDENT,
    choose_method,
    choose_noise_floor,
    choose_variance,
    factor_bytes,
    routes,
    usable_memory,
)
from halfgp.errors import MemoryLimitError
from halfgp.model import ExactGP
from halfgp.planner import make_plan
from halfgp.settings import Settings, TrainingOptions

# What a process takes that does nothing but a fit and some predictions.
MEASURE = """
import sys
sys.path.insert(0, {tests!r})
import torch
torch.set_num_threads(1)
from contracts.textbook import points, targets
from halfgp.model import ExactGP
from halfgp.memory import peak_memory

x = points({n}, 3)
model = ExactGP(**{options!r}).fit(x, targets(x)[:, 0])
model.predict(x[:2000], return_std=True)
print(peak_memory())
"""


@pytest.fixture(autouse=True)
def _no_calibration(monkeypatch):
    monkeypatch.setattr("halfgp.planner.entry_rate", lambda features, threads: 1e9)
    for name in ("dense_seconds", "factor_seconds", "neighbour_seconds"):
        monkeypatch.setattr(f"halfgp.planner.{name}", lambda *_: 1e-3)


def test_the_method_is_chosen_by_the_number_of_rows():
    assert choose_method("auto", CHOLESKY_ROWS) == "cholesky"
    assert choose_method("auto", CHOLESKY_ROWS + 1) == "cg"
    assert choose_method("cholesky", 10**6) == "cholesky"
    assert choose_method("cg", 10) == "cg"


def test_a_factor_for_the_variances_needs_few_rows_and_half_the_memory():
    assert choose_variance("auto", FACTOR_ROWS, None) == "cholesky"
    assert choose_variance("auto", FACTOR_ROWS + 1, None) == "local"
    needed = factor_bytes(5000, 4)
    assert choose_variance("auto", 5000, 2 * needed) == "cholesky"
    assert choose_variance("auto", 5000, 2 * needed - 2) == "local"
    assert choose_variance("local", 10, None) == "local"
    assert choose_variance("cholesky", 10**6, 1) == "cholesky"


def test_a_plan_says_what_will_be_done():
    small = make_plan(1000, 3, 1, Settings())
    assert (small.rows, small.features, small.method, small.variance) == (1000, 3, "cholesky", "cholesky")
    assert small.passes == 0
    assert small.memory_limit == usable_memory()
    large = make_plan(200_000, 9, 1, Settings(training=TrainingOptions(steps=10)))
    assert (large.method, large.variance) == ("cg", "local")
    assert large.passes > make_plan(200_000, 9, 1, Settings(training=TrainingOptions(steps=0))).passes
    assert large.seconds > large.passes * 200_000**2 / 1e9
    assert "200,000 rows, 9 features: training by cg, variances by local" in str(large)


def test_a_factor_of_neighbours_for_gradients_is_planned_for():
    plain, other = (
        make_plan(
            200_000, 9, 1, Settings(training=TrainingOptions(steps=10, gradient=gradient), memory_limit="4GB")
        )
        for gradient in ("pathwise", "neighbours")
    )
    # At least members, places, entries and their gradients: four numbers for each of 100 neighbours.
    assert other.memory - plain.memory > 200_000 * 100 * 4 * 8
    assert other.seconds > plain.seconds
    idle = Settings(training=TrainingOptions(steps=0, gradient="neighbours"))
    assert make_plan(200_000, 9, 1, idle).memory == make_plan(200_000, 9, 1, Settings()).memory


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ({"rows": 200_000}, {}),
        ({"targets": 50}, {}),
        ({"features": 50}, {}),
        ({}, {"training__probes": 100}),
        ({}, {"solve__rank": 5000}),
        ({}, {"variances__method": "cholesky"}),
    ],
    ids=repr,
)
def test_memory_grows_with_what_takes_memory(shape, options):
    plain, base = (
        Settings().with_params(solve__rank=100, training__steps=5),
        {"rows": 100_000, "features": 5, "targets": 1},
    )
    more = make_plan(settings=plain.with_params(**options), **{**base, **shape})
    assert more.memory > make_plan(settings=plain, **base).memory


def test_a_fit_that_does_not_fit_is_refused_with_the_numbers_and_the_remedy():
    plan = make_plan(100_000, 20, 1, Settings(memory_limit="1GB", method="cholesky"))
    assert not plan.fits
    assert plan.as_dict()["fits"] is False
    assert "(it does not fit)" in str(plan)
    needed = f"{plan.memory / 1e9:.2f} GB, and 1.00 GB are allowed"
    with pytest.raises(
        MemoryLimitError, match=f"100,000 rows with 20 features needs about {needed}. Raise `mem"
    ):
        plan.require()
    with pytest.raises(MemoryError, match='`method="cg", variances__method="local"`, or take fewer rows'):
        plan.require()
    make_plan(1000, 20, 1, Settings(memory_limit="2GB")).require()


def test_the_least_noise_is_that_which_solves_bear():
    assert choose_noise_floor(None, 0.1, 2) == 1e-8
    assert choose_noise_floor(None, 0.1, 5) == 1e-6
    assert choose_noise_floor(None, 1e-7, 5) == 5e-8  # below where training starts
    assert choose_noise_floor(1e-4, 0.1, 2) == 1e-4


def test_fit_looks_at_the_plan_before_it_works():
    calls = []
    model = ExactGP(memory_limit=RESIDENT)
    with pytest.raises(MemoryLimitError, match="Raise `memory_limit`"):
        model.fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 0.0], callbacks=[calls.append])
    assert not calls


def test_the_speed_of_this_machine_is_measured_once(monkeypatch):
    monkeypatch.undo()
    from halfgp.speed import entry_rate

    monkeypatch.setattr("halfgp.speed.CALIBRATION_ROWS", 256)
    entry_rate.cache_clear()
    assert 1e5 < entry_rate(3) < 1e12
    assert entry_rate(3) == entry_rate(3)
    entry_rate.cache_clear()


@pytest.mark.parametrize(
    ("n", "options"),
    [
        (4000, {"method": "cg", "variances__method": "local", "training__subset": 300}),
        (6000, {"method": "cg", "variances__method": "local", "training__subset": 0, "training__steps": 1}),
        (1500, {"method": "cholesky"}),
    ],
    ids=["parts", "all rows", "cholesky"],
)
def test_a_fit_takes_the_memory_that_is_planned_and_no_more(n, options):
    options = {**options, "training__subset_iterations": 3}
    script = MEASURE.format(tests=str(Path(__file__).parent), n=n, options=options)
    found = forked.run(script, check=True)
    plan = make_plan(n, 3, 1, Settings().with_params(**options))
    assert plan.memory / 2.5 < int(found.stdout) <= plan.memory


def test_a_factor_in_double_is_a_way_where_the_machine_has_room_for_it() -> None:
    """Of several machines the smallest is asked."""
    rows = 10_000
    large, small = (routes("cg", "local", rows, None, machine) for machine in (10**12, factor_bytes(rows, 8)))
    assert large == ("products", "double factor")
    assert small == ("products",)
