"""A rank that dies, stalls or fails ends the others with a message, and a new job goes on from there."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from contracts import rank_programs as programs
from contracts.job import Job, job
from torch import Tensor

from halfgp.distributed import heartbeat

N = 61
SILENCE = 2.0  # seconds here: the default would make for a slow test
OPTIONS: dict[str, Any] = {"training__steps": 3}


def lost(ranks: Job, hit: Callable[[int], None], tmp_path: Path, victim: int) -> tuple[list[str], float]:
    """What others say once one is hit in the middle of a fit, and the seconds until all have ended."""
    kept, marks = str(tmp_path / "kept"), str(tmp_path)
    ranks.start(programs.hit_in_a_fit, N, {**OPTIONS, "checkpoint": kept}, SILENCE, marks)
    seen = tmp_path / f"step of {victim}"
    until = time.monotonic() + 60.0
    while not seen.exists():
        assert time.monotonic() < until
        time.sleep(0.01)
    pid = ranks.processes[victim].pid
    assert pid is not None
    struck = time.monotonic()
    hit(pid)
    others = [process for rank, process in enumerate(ranks.processes) if rank != victim]
    for process in others:
        process.join(20.0)
        assert process.exitcode == heartbeat.LOST
    seconds = time.monotonic() - struck
    said = [(tmp_path / f"said by {k}").read_text() for k in range(len(ranks.processes)) if k != victim]
    return said, seconds


@cache
def never_hit() -> dict[str, Tensor]:
    found = programs.fitted(N, OPTIONS)
    return {name: found[name] for name in ("theta", "mean")}


@pytest.mark.parametrize(("count", "victim", "then"), [(2, 0, 1), (3, 2, 2)])  # the first holds the store
def test_a_rank_that_is_killed_ends_the_others_and_a_new_job_goes_on(
    tmp_path: Path, count: int, victim: int, then: int
) -> None:
    """Of another number of ranks."""
    with job(count) as ranks:
        words, _ = lost(ranks, lambda pid: os.kill(pid, signal.SIGKILL), tmp_path, victim)
        for said in words:
            # By the connection that was closed, by the heart that beats no more, or by who noticed first.
            assert any(
                word in said for word in ("has lost another", f"rank {victim} on", "failed: RankError")
            )
            assert "`checkpoint`" in said
    with job(then) as ranks:
        found = ranks.run(programs.fitted, N, {**OPTIONS, "checkpoint": str(tmp_path / "kept")})[0]
    for name, wanted in never_hit().items():
        assert float((found[name] - wanted).abs().max()) <= 1e-4


# The first holds the store, which then answers nobody.
@pytest.mark.parametrize(("victim", "missed"), [(0, "the store of the job"), (1, "rank 1 on")])
def test_a_rank_that_stalls_ends_the_others(tmp_path: Path, victim: int, missed: str) -> None:
    with job(2) as ranks:
        (said,), seconds = lost(ranks, lambda pid: os.kill(pid, signal.SIGSTOP), tmp_path, victim)
        ranks.processes[victim].kill()  # for a process that is stopped ends by nothing else
        assert missed in said
        assert f"for {SILENCE:.0f} s" in said
        assert seconds >= SILENCE * 7 / 8  # its last sign was an eighth of a silence before at most


def test_a_minute_is_enough_to_notice_who_stalls() -> None:
    """A sign may be as old as an interval when it is heard, and is looked at every interval."""
    assert heartbeat.SILENCE + 2 * heartbeat.INTERVAL + heartbeat.GRACE < 60.0


def test_a_rank_that_is_not_there_when_a_fit_begins_is_missed(tmp_path: Path) -> None:
    """It died before, which is known at once, or is somewhere else."""
    with job(2) as ranks:
        ranks.start(programs.dies_before_a_fit, N)
        done, said = ranks.answer(0)
        assert done
        assert "RankError: Rank 0 of 2 has lost another one" in said
    with job(2) as ranks:
        ranks.start(programs.never_comes, 0.5, str(tmp_path))
        ranks.processes[0].join(20.0)
        assert ranks.processes[0].exitcode == heartbeat.LOST
        assert "rank 1 has not come to it" in (tmp_path / "said by 0").read_text()
        ranks.processes[1].kill()


@pytest.mark.parametrize(
    ("program", "failing", "why"),
    [(programs.fails_on_one, 1, "ZeroDivisionError"), (programs.meets_a_full_disk, 0, "cannot be written")],
)
def test_a_rank_that_fails_ends_the_others_and_says_why(
    tmp_path: Path, program: Callable[..., None], failing: int, why: str
) -> None:
    with job(2) as ranks:
        ranks.start(program, N, SILENCE, str(tmp_path))
        other = 1 - failing
        ranks.processes[other].join(60.0)
        assert ranks.processes[other].exitcode == heartbeat.LOST
        assert f"rank {failing} on" in (said := (tmp_path / f"said by {other}").read_text())
        assert why in said
    assert not (tmp_path / "kept").exists()


def test_who_is_busy_is_done_or_comes_late_is_not_missed() -> None:
    """Nobody is met for several silences, and each is heard all the while, however long a product lasts."""
    with job(2) as ranks:
        assert ranks.run(programs.busy_for, 3 * 0.5, 0.5) == [True, True]
        assert torch.equal(*ranks.run(programs.late_by, 3 * 0.5, 0.5))
        assert torch.equal(*ranks.run(programs.comes_late, 3 * 0.5, 0.5))
