"""What a fit on many ranks is expected to take."""

from __future__ import annotations

import pytest
from contracts.commands import flat, json_of, run

from halfgp.choices import RESIDENT, factor_bytes
from halfgp.cluster import LATENCY, MEETINGS, make_cluster_plan
from halfgp.errors import InputError, MemoryLimitError
from halfgp.planner import Preview, make_plan
from halfgp.settings import Settings

RATE = 1e9
SETTINGS = Settings().with_params(training__subset=0)


@pytest.fixture(autouse=True)
def _no_calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halfgp.planner.entry_rate", lambda features, threads: RATE)
    for name in ("dense_seconds", "neighbour_seconds"):
        monkeypatch.setattr(f"halfgp.planner.{name}", lambda *_: 1e-3)


def plan(ranks: int, rows: int = 10**6, **options: float):
    return make_cluster_plan(make_plan(rows, 8, 1, SETTINGS), ranks=ranks, **options)


def test_ranks_are_planned_with_what_targets_told() -> None:
    seen = make_plan(10**6, 8, 1, SETTINGS, Preview(explained=9.0, live=0.1))
    found = make_cluster_plan(seen, ranks=4)
    assert found.whole is seen
    assert found.computing < plan(4).computing  # of a tenth of the pairs


def test_one_rank_is_one_process() -> None:
    one, whole = plan(1), make_plan(10**6, 8, 1, SETTINGS)
    assert one.seconds == pytest.approx(whole.seconds)
    assert one.bytes_a_pass == 0
    assert one.sending == 0.0
    assert one.memory == pytest.approx(whole.memory, rel=0.01)  # but for the bits of tiles


def test_work_is_shared_and_points_are_not() -> None:
    one, many = plan(1), plan(64)
    assert many.computing == pytest.approx(one.computing / 64)
    points = 10**6 * (8 * 20 + 24)
    assert points < many.memory < one.memory
    # Each sends its rows to all others, and each other one that one's: eight bytes a row, twice.
    assert many.bytes_a_pass == pytest.approx(2 * 8 * 10**6 * 63 / 64)


@pytest.mark.parametrize("rows", [2_000, 8_000])
def test_what_is_dense_is_on_every_rank(rows: int) -> None:
    """A likelihood by a Cholesky factor, and the factor of the last solve."""
    one, many = (make_cluster_plan(make_plan(rows, 8, 1, Settings()), ranks=ranks) for ranks in (1, 16))
    assert one.whole.variance == "cholesky"
    assert many.memory - RESIDENT >= factor_bytes(rows, 4)
    assert many.memory <= 1.1 * one.memory  # with a gathered block


def test_a_slow_network_costs_what_it_sends() -> None:
    slow = plan(64, bandwidth=1e6)
    latency = slow.whole.passes * (MEETINGS + 2) * LATENCY
    assert slow.sending == pytest.approx(slow.whole.passes * slow.bytes_a_pass / 1e6 + latency)
    assert 0.0 < plan(64).share_sending < slow.share_sending < 1.0


def test_a_hundred_million_rows() -> None:
    """The entries of a pass grow with the square, what is sent does not: the larger, the better it scales."""
    assert plan(64, 10**8).share_sending < plan(64, 10**6).share_sending
    assert plan(64, 10**8).as_dict()["ranks"] == 64


def test_memory_is_told_without_a_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every fit over ranks asks for it."""

    def measured(*_: object) -> float:
        raise AssertionError

    for name in ("entry_rate", "neighbour_seconds", "factor_seconds"):
        monkeypatch.setattr(f"halfgp.planner.{name}", measured)
    monkeypatch.setattr("halfgp.cluster.subset_seconds", measured)
    assert make_cluster_plan(make_plan(10**6, 8, 1, Settings()), ranks=4).memory > 0


def test_too_little_memory_is_refused_with_a_remedy() -> None:
    few = SETTINGS.with_params(memory_limit="1GB")
    with pytest.raises(MemoryLimitError, match=r"on 4 ranks needs about .* start more ranks"):
        make_cluster_plan(make_plan(10**7, 8, 1, few), ranks=4).require()
    make_cluster_plan(make_plan(10**5, 8, 1, few), ranks=4).require()


def test_what_is_dense_is_not_shared() -> None:
    few = make_cluster_plan(make_plan(2000, 8, 1, Settings()), ranks=64)
    assert few.by_itself == few.whole.seconds
    assert make_cluster_plan(make_plan(10**5, 8, 1, Settings()), ranks=64).by_itself > 0.0


def test_the_command() -> None:
    told = json_of("plan", "--rows", "1e8", "--ranks", "64", "--memory-limit", "1000GB")
    assert (told["rows"], told["ranks"], told["fits"]) == (10**8, 64, True)
    assert told["bytes_a_pass"] > 0
    assert "sent by a rank" in run("plan", "--rows", "1e6", "--ranks", "2", "--memory-limit", "1000GB").stdout
    assert "must be a number from 1" in flat(run("plan", "--rows", "many", code=1).output)
    assert "needs a table and its `--target`" in flat(run("plan", "--ranks", "2", code=1).output)


def test_nonsense_is_refused() -> None:
    with pytest.raises(InputError, match="`ranks` must be at least 1"):
        plan(0)
    with pytest.raises(InputError, match="`bandwidth` must be positive"):
        plan(2, bandwidth=0.0)
