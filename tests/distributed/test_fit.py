"""A fit over ranks of a process group is that of one process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from contracts import rank_programs as programs
from contracts.job import Job, job
from torch import Tensor

N = 151


@pytest.fixture(scope="module", params=[1, 2, 3, 4], ids=lambda count: f"{count} ranks")
def ranks(request: pytest.FixtureRequest) -> Iterator[Job]:
    with job(request.param) as found:
        yield found


@pytest.fixture(scope="module")
def one() -> dict[str, Any]:
    return programs.fitted(N, {})


def agree(found: Tensor, wanted: Tensor, tolerance: float = 1e-4) -> None:
    """Solves are to 1e-6, and the condition of K + noise is some hundreds."""
    assert float((found - wanted).abs().max()) <= tolerance * float(wanted.abs().max())


def test_a_fit_and_its_predictions(ranks: Job, one: dict[str, Any]) -> None:
    found = ranks.run(programs.fitted, N, {})
    for part in found:
        agree(part["theta"], one["theta"])
        agree(part["mean"], one["mean"])
        agree(part["std"], one["std"])
        assert part["report"].route == one["report"].route == "products"
        assert part["report"].method == "cg"
        assert part["history"] == pytest.approx(one["history"], rel=1e-4)
        for name in ("theta", "mean", "std", "weights"):  # the same bits on every rank
            assert torch.equal(part[name], found[0][name])
        assert part["weights"].shape == (N, 1)


@pytest.mark.parametrize("ranks", [2], indirect=True)
def test_the_same_bits_again(ranks: Job) -> None:
    first, second = (ranks.run(programs.fitted, N, {}) for _ in range(2))
    assert torch.equal(second[-1]["weights"], first[0]["weights"])


@pytest.mark.parametrize(
    "options",
    [
        {"method": "cholesky"},
        {"variances__method": "auto"},
        {"training__steps": None, "training__gradient": "neighbours", "solve__preconditioner": "auto"},
    ],
    ids=str,
)
def test_other_ways(options: dict[str, Any]) -> None:
    """Exact training, a dense factor, and exact steps after the neighbours', in which ranks take parts."""
    with job(2) as ranks:
        one = programs.fitted(N, options)
        for part in ranks.run(programs.fitted, N, options):
            agree(part["theta"], one["theta"])
            agree(part["mean"], one["mean"])
            agree(part["std"], one["std"])
            assert part["report"].route == one["report"].route


@pytest.mark.parametrize("ranks", [3], indirect=True)
def test_the_group_stays_the_users(ranks: Job) -> None:
    for before, first, between, second, after, third in ranks.run(programs.used_between, N):
        assert float(before) == float(between) == float(after) == 1 + 2 + 3
        assert torch.equal(first, second)
        assert torch.equal(first, third)


@pytest.mark.parametrize("ranks", [4], indirect=True)
@pytest.mark.parametrize("n", [2, 4, 5])
def test_as_many_rows_as_ranks_or_fewer(ranks: Job, n: int) -> None:
    """Some have none, all have one, one has two."""
    one = programs.fitted(n, {})
    for part in ranks.run(programs.fitted, n, {}):
        agree(part["mean"], one["mean"])
        agree(part["std"], one["std"])


@pytest.mark.parametrize("ranks", [2], indirect=True)
def test_an_estimator(ranks: Job) -> None:
    """It is the same fit."""
    wanted = programs.regression(N)
    for found in ranks.run(programs.regression, N):
        for a, b in zip(found, wanted, strict=True):
            assert np.allclose(a, b, rtol=1e-3, atol=1e-4)


def test_what_differs_is_named_on_every_rank() -> None:
    with job(2) as ranks:
        for arguments, named in (
            ([(N, {}, 0), (N, {}, 1)], "the same `X`"),
            ([(N, {}, 0), (N, {"solve__tol": 1e-5}, 0)], "the same `solve`"),
            ([(N, {}, 0), (N - 1, {}, 0)], f"rank 0 has ({N}, 2)"),
        ):
            for said in ranks.run_each(programs.refused, arguments):
                assert named in said
                assert "rank 1 has" in said
        # What only one of them finds wrong is told by all, too.
        for arguments, named in (
            ([(N, {}, 0), (N, {}, 0, "X")], "`X` must be finite; got nan in row 75"),
            ([(N, {}, 0), (N, {"solve__tol": -1.0}, 0)], "`solve__tol` must be"),
        ):
            first, second = ranks.run_each(programs.refused, arguments)
            assert first.startswith("RankError: Rank 1 of 2 could not go on")
            assert named in first
            assert second.startswith("InputError")
        for said in ranks.run_each(programs.refused, [(N, {}, 0), (N, {}, 0, "y")]):
            assert "rows without a target (NaN in `y`): rank 0 has 0, and rank 1 has 1." in said
        # Nothing is left behind of it, and who wants models of their own gets them.
        first, second = ranks.run_each(programs.by_itself, [(N, 0), (N, 1)])
        assert not torch.equal(first, second)
        assert torch.equal(first, programs.fitted(N, {})["theta"])
        for seen in ranks.run(programs.traffic, N):
            assert seen.bytes_sent > 0
            assert seen.meetings > 0
            assert 0.0 < seen.share_waiting < 1.0
    assert programs.traffic(N) is None


def test_a_checkpoint_of_some_ranks_is_read_by_others(tmp_path: Path) -> None:
    """Vectors of all rows are in it, wherever they were held."""
    path = str(tmp_path / "kept")
    with job(2) as ranks:
        whole = ranks.run(programs.fitted, N, {"training__steps": 4})[0]
        stopped = ranks.run(programs.stopped, N, {"training__steps": 4, "checkpoint": path}, 2)
    assert stopped == ["stopped"] * 2
    with job(3) as ranks:
        found = ranks.run(programs.fitted, N, {"training__steps": 4, "checkpoint": path})[0]
    agree(found["theta"], whole["theta"])
    agree(found["mean"], whole["mean"])
    assert found["history"][:-2] == whole["history"][:-2]
    alone = programs.fitted(N, {"training__steps": 4, "checkpoint": path})
    agree(alone["theta"], whole["theta"])
