"""A fit that is ended in its last solve goes on there, and ends in the bits of one that never was."""

from __future__ import annotations

import signal
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from contracts import forked
from contracts.textbook import points, targets

import halfgp.training.checkpoint
from halfgp.archive import save_model
from halfgp.errors import FileError, UnsolvedError
from halfgp.model import ExactGP, SolveIteration
from halfgp.solvers import SolveCheckpoint

OPTIONS: dict[str, Any] = {
    "method": "cg",
    "training__subset": 100,
    "training__subset_iterations": 1,
    "training__steps": 0,
    "variances__method": "local",
    "threads": 1,
    "kernel": "matern52",
    "noise": 1e-5,
    "noise_floor": 1e-7,
    "solve__preconditioner": "pivoted_cholesky",  # whose solves are long enough to be ended in
}
X, NEW = points(300), points(20, seed=9)
Y = targets(X, noise=1e-6)

# Kills itself, as a machine that loses its power does, in an iteration of its last solve.
SCRIPT = """
import os, signal, sys
from functools import partial
sys.path.insert(0, {tests!r})
from contracts.textbook import points, targets
import halfgp.training.checkpoint as checkpoint
from halfgp.model import ExactGP, SolveIteration

def deadly(event):
    if not isinstance(event, SolveIteration):
        assert phase == "trains", "trained again"
        return
    print(event.iteration, flush=True)
    if event.iteration == int(at):
        os.kill(os.getpid(), signal.SIGKILL)

checkpoint.SolveCheckpoint = partial(checkpoint.SolveCheckpoint, interval=0.0, share=float("inf"))
path, at, phase = sys.argv[1:]
x = points(300)
ExactGP(**{options!r}, checkpoint=path).fit(x, targets(x, noise=1e-6), callbacks=[deadly])
"""


class Watcher:
    """Sees steps of training and iterations of the last solve, of which one may be the end."""

    def __init__(self, at: int = 0, solve: int = 1) -> None:
        self.steps: list[object] = []
        self.iterations: list[int] = []
        self._at, self._solve = at, solve

    def __call__(self, event: object) -> None:
        if not isinstance(event, SolveIteration):
            self.steps.append(event)
            return
        self.iterations.append(event.iteration)
        if event.iteration == self._at and self.iterations.count(event.iteration) == self._solve:
            raise KeyboardInterrupt


def fit(path: Path | None = None, watcher: Watcher | None = None, **options: Any) -> ExactGP:
    callbacks = [watcher or Watcher()]
    return ExactGP(**{**OPTIONS, **options}, checkpoint=path).fit(X, Y, callbacks=callbacks)


@cache
def whole() -> tuple[ExactGP, list[int]]:
    """One that nothing ended, and the iterations of its last solve."""
    watcher = Watcher()
    return fit(watcher=watcher), watcher.iterations


def check_equal(one: ExactGP, other: ExactGP) -> None:
    assert torch.equal(one.posterior.weights, other.posterior.weights)
    assert torch.equal(one.posterior.correction, other.posterior.correction)
    for a, b in zip(
        one.predict(NEW, return_std=True)[:2], other.predict(NEW, return_std=True)[:2], strict=True
    ):
        np.testing.assert_array_equal(a, b)
    for name in ("passes", "residual", "error", "scale", "route"):
        assert getattr(one.report, name) == getattr(other.report, name), name


@pytest.mark.slow
def test_a_process_killed_in_its_last_solve_resumes_as_one_never_killed(tmp_path: Path) -> None:
    script = SCRIPT.format(tests=str(Path(__file__).parent.parent), options=OPTIONS)

    def killed(at: int, phase: str) -> list[int]:
        done = forked.run(script, tmp_path / "c", at, phase)
        assert done.returncode == -signal.SIGKILL, done.stderr
        return list(map(int, done.stdout.split()))

    model, iterations = whole()
    # Early, and, as that one resumes, late. Solves that climb: tests/solvers/test_checkpoint.py.
    late = iterations[-1] - 3
    assert killed(9, "trains")[-1] == 9
    resumed = killed(late, "solves")
    assert (resumed[0], resumed[-1]) == (9, late)
    last = Watcher()
    found = fit(tmp_path / "c", last)
    assert not last.steps
    assert last.iterations[0] == late
    check_equal(found, model)
    save_model(found, tmp_path / "model")
    assert {path.name for path in tmp_path.iterdir()} == {"model"}  # no checkpoint is left


def test_ctrl_c_in_the_last_solve_keeps_it(tmp_path: Path) -> None:
    path, first, second = tmp_path / "c", Watcher(at=30), Watcher()
    with pytest.raises(KeyboardInterrupt):
        fit(path, first)
    assert {file.name for file in tmp_path.iterdir()} == {"c", "c.solve"}
    resumed = fit(path, second)
    assert not second.steps
    assert second.iterations[0] == 30
    check_equal(resumed, whole()[0])
    save_model(resumed, tmp_path / "model")
    assert {file.name for file in tmp_path.iterdir()} == {"model"}


def test_in_a_later_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rounds before are not solved again, though their weights are where later ones start."""
    monkeypatch.setattr("halfgp.prediction.conditioning.MARGIN", 1000.0)  # the first stops much too early
    undisturbed = Watcher()
    model = fit(watcher=undisturbed)
    assert undisturbed.iterations.count(1) > 1
    path, first, second = tmp_path / "c", Watcher(at=5, solve=2), Watcher()
    with pytest.raises(KeyboardInterrupt):
        fit(path, first)
    resumed = fit(path, second)
    assert first.iterations[:-1] + second.iterations == undisturbed.iterations
    check_equal(resumed, model)


@pytest.mark.parametrize("other", [{"solve__tol": 1e-9}, {"random_state": 3}, {"noise": 0.3}], ids=repr)
def test_a_solve_of_another_fit_is_not_used(
    tmp_path: Path, other: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    path, watcher = tmp_path / "c", Watcher()
    with pytest.raises(KeyboardInterrupt):
        fit(path, Watcher(at=30))
    path.unlink()
    found = fit(path, watcher, **other)
    assert watcher.iterations[0] == 1
    assert "c.solve is not used" in caplog.text
    check_equal(found, fit(**other))


def test_a_damaged_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c"
    with pytest.raises(KeyboardInterrupt):
        fit(path, Watcher(at=30))
    solve = tmp_path / "c.solve"
    solve.write_bytes(solve.read_bytes()[:-50])
    with pytest.raises(FileError, match=r"c.solve` is not a halfgp solve, or is damaged"):
        fit(path)
    solve.unlink()
    check_equal(fit(path), whole()[0])


def test_what_was_not_solved_is_not_solved_again_for_who_insists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    always = partial(SolveCheckpoint, interval=0.0, share=float("inf"))
    monkeypatch.setattr(halfgp.training.checkpoint, "SolveCheckpoint", always)
    path, first, second = tmp_path / "c", Watcher(), Watcher()
    monkeypatch.setattr("halfgp.prediction.conditioning.routes", lambda *arguments: ("products",))
    short = {"solve__max_iterations": 12}
    with pytest.raises(UnsolvedError):
        fit(path, first, **short)
    with pytest.warns(UserWarning, match="left an estimated error"):
        fit(path, second, solve__unsolved="warn", **short)
    assert first.iterations
    assert not second.iterations
    assert not second.steps


def test_the_solve_after_an_interrupted_training_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be of no use: the same fit goes on with its training."""
    always = partial(SolveCheckpoint, interval=0.0, share=float("inf"))
    monkeypatch.setattr(halfgp.training.checkpoint, "SolveCheckpoint", always)

    def interrupt(event: Any) -> None:
        if not isinstance(event, SolveIteration) and event.stage == "cg":
            raise KeyboardInterrupt

    options = {**OPTIONS, "training__steps": 2, "noise": 0.1, "checkpoint": tmp_path / "c"}
    ExactGP(**options).fit(X, Y, callbacks=[interrupt])
    assert {file.name for file in tmp_path.iterdir()} == {"c"}
