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

N = 151  # where numbers are compared with one process
FEW = 61  # where it is enough that ranks fit at all
two_ranks = pytest.mark.parametrize("ranks", [2], indirect=True, ids=["2 ranks"])


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
        agree(part["weights"], one["weights"], 1e-2)  # row by row, wherever each was held
        assert part["report"].route == one["report"].route == "products"
        assert part["report"].method == "cg"
        assert part["history"] == pytest.approx(one["history"], rel=1e-4)
        for name in ("theta", "mean", "std", "weights"):  # the same bits on every rank
            assert torch.equal(part[name], found[0][name])
        assert part["weights"].shape == (N, 1)
        if len(found) == 1:
            assert part["traffic"] is None
        else:
            assert part["traffic"].bytes_sent > 0
            assert part["traffic"].meetings > 0
            assert 0.0 < part["traffic"].share_waiting < 1.0


@two_ranks
@pytest.mark.parametrize(
    "options",
    [
        {"method": "cholesky"},
        {"variances__method": "auto"},
        {"training__steps": None, "training__gradient": "neighbours", "solve__preconditioner": "auto"},
    ],
    ids=str,
)
def test_other_ways(ranks: Job, options: dict[str, Any]) -> None:
    """Exact training, a dense factor, and exact steps after the neighbours', in which ranks take parts."""
    one = programs.fitted(N, options)
    for part in ranks.run(programs.fitted, N, options):
        agree(part["theta"], one["theta"])
        agree(part["mean"], one["mean"])
        agree(part["std"], one["std"])
        assert part["report"].route == one["report"].route


@two_ranks
def test_points_are_held_in_single_unless_double_is_wanted(ranks: Job) -> None:
    """Or they are as they came, of whatever size; or every rank has the whole fit to itself."""
    for options, wanted in (
        ({}, torch.float32),
        ({"precision": "half"}, torch.float32),
        ({"precision": "double"}, torch.float64),
        ({"standardise_X": False}, torch.float64),
        ({"mean": "linear"}, torch.float64),
        ({"method": "cholesky"}, torch.float64),
    ):
        assert ranks.run(programs.held_in, FEW, options) == [wanted] * 2
    assert programs.held_in(FEW, {}) == torch.float64


@two_ranks
def test_the_same_bits_again_in_a_group_that_stays_the_users(ranks: Job) -> None:
    for before, first, between, second, after, third in ranks.run(programs.used_between, FEW):
        assert float(before) == float(between) == float(after) == 1 + 2
        assert torch.equal(first, second)
        assert torch.equal(first, third)


@pytest.mark.parametrize("ranks", [3], indirect=True, ids=["3 ranks"])
def test_rows_that_are_predicted_from_others_are_shared_out(ranks: Job) -> None:
    """Those that are judged, those left out, and the few that are given many."""
    judged, left_out = N - N // 4, 8
    for done in ranks.run(programs.work_of, N):
        assert judged // 3 <= done["rows"] <= -(-judged // 3)
        for name in ("leave_one_out", "given_many"):
            assert left_out // 3 <= done[name] <= -(-left_out // 3)


@pytest.mark.parametrize("ranks", [3], indirect=True, ids=["3 ranks"])
@pytest.mark.parametrize("n", [2, 3, 4])
def test_as_many_rows_as_ranks_or_fewer(ranks: Job, n: int) -> None:
    """Some have none, all have one, one has two."""
    one = programs.fitted(n, {})
    for part in ranks.run(programs.fitted, n, {}):
        agree(part["mean"], one["mean"])
        agree(part["std"], one["std"])


@two_ranks
def test_an_estimator(ranks: Job) -> None:
    """It is the same fit."""
    wanted = programs.regression(FEW)
    for found in ranks.run(programs.regression, FEW):
        for a, b in zip(found, wanted, strict=True):
            assert np.allclose(a, b, rtol=1e-3, atol=1e-4)


@two_ranks
def test_what_differs_is_named_on_every_rank(ranks: Job) -> None:
    alike = FEW, {}, 0
    for other, named in (
        ((FEW, {}, 1), "the same `X`"),
        ((FEW, {"solve__tol": 1e-5}, 0), "the same `solve`"),
        ((FEW - 1, {}, 0), f"rank 0 has ({FEW}, 2)"),
        ((FEW, {}, 0, "y"), "rows without a target (NaN in `y`): rank 0 has 0, and"),
        ((*alike, "", "halfgp.distributed.agreement.__version__"), "the same version of halfgp"),
        ((*alike, "", "torch.__version__"), "the same version of torch"),
        ((*alike, "", "scipy.__version__"), "the same version of SciPy"),
    ):
        for said in ranks.run_each(programs.refused, [alike, other]):
            assert said.startswith("RankError")
            assert named in said
            assert "rank 1 has" in said
    # What only one of them finds wrong is told by all, too.
    for other, named in (
        ((FEW, {}, 0, "X"), f"`X` must be finite; got nan in row {FEW // 2}"),
        ((FEW, {"solve__tol": -1.0}, 0), "`solve__tol` must be"),
    ):
        first, second = ranks.run_each(programs.refused, [alike, other])
        assert first.startswith("RankError: Rank 1 of 2 could not go on")
        assert named in first
        assert second.startswith("InputError")
    # Nothing is left behind of it, and who wants models of their own gets them.
    first, second = ranks.run_each(programs.by_itself, [(FEW, 0), (FEW, 1)])
    assert not torch.equal(first, second)
    assert torch.equal(first, programs.fitted(FEW, {})["theta"])


@two_ranks
def test_a_checkpoint_of_some_ranks_is_read_by_others(ranks: Job, tmp_path: Path) -> None:
    """Vectors of all rows are in it, wherever they were held."""
    path, options = str(tmp_path / "kept"), {"training__steps": 3}
    whole = ranks.run(programs.fitted, FEW, options)[0]
    stopped = ranks.run(programs.stopped, FEW, {**options, "checkpoint": path}, 2)
    assert stopped == ["stopped"] * 2
    with job(3) as others:
        found = others.run(programs.fitted, FEW, {**options, "checkpoint": path})[0]
    agree(found["theta"], whole["theta"])
    agree(found["mean"], whole["mean"])
    assert found["history"][:-1] == whole["history"][:-1]
    alone = programs.fitted(FEW, {**options, "checkpoint": path})
    agree(alone["theta"], whole["theta"])


# Of low rank, and of neighbours: the last solve is preconditioned by either.
@pytest.mark.parametrize("preconditioner", ["pivoted_cholesky", "auto"])
@two_ranks
def test_a_last_solve_of_some_ranks_goes_on_with_others(
    ranks: Job, tmp_path: Path, preconditioner: str
) -> None:
    """From files that have some rows each: with one rank more, then with one alone, from what these wrote."""
    path = str(tmp_path / "kept")
    options = {"training__steps": 1, "solve__preconditioner": preconditioner, "solve__rank": 8}
    whole = ranks.run(programs.resumed, N, options)[0]
    last, kept = whole["iterations"][-1], {**options, "checkpoint": path}
    assert last > 6  # or there is nothing to end
    assert ranks.run(programs.stopped, N, kept, 0, 2) == ["stopped"] * 2
    with job(3) as others:
        assert others.run(programs.stopped, N, kept, 0, 4) == ["stopped"] * 3
    alone = programs.resumed(N, kept)
    assert alone["iterations"][0] == 4  # where it was
    assert abs(alone["iterations"][-1] - last) <= 2
    agree(alone["mean"], whole["mean"])
    agree(alone["weights"], whole["weights"], 1e-2)
