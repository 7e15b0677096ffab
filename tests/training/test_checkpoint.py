from __future__ import annotations

import math
import signal
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from contracts import forked
from contracts.textbook import points, targets

from halfgp.archive import save_model
from halfgp.errors import FileError, InputError
from halfgp.model import ExactGP, SolveIteration
from halfgp.training import Step
from halfgp.training.stochastic import StochasticTraining

X, Y = points(120, 2), targets(points(120, 2), q=2)
NEW = points(20, 2, seed=9)
OPTIONS = {
    "method": "cg",
    "training__subset": 40,
    "training__subset_iterations": 6,
    "training__steps": 4,
    "training__probes": 4,
    "variances__method": "local",
}

# Kills itself, as a machine that loses its power does, at the step named on the command line.
SCRIPT = """
import os, signal, sys
sys.path.insert(0, {tests!r})
import torch
torch.set_num_threads({threads})  # as many as go on: dense algebra has the same bits for one number of them
from contracts.textbook import points, targets
from halfgp.model import ExactGP
from halfgp.training import Step

def die(event):
    if isinstance(event, Step) and [event.stage, str(event.index)] == sys.argv[2:]:
        os.kill(os.getpid(), signal.SIGKILL)

x = points(120, 2)
ExactGP(**{options!r}, checkpoint=sys.argv[1]).fit(x, targets(x, q=2), callbacks=[die])
"""


class Dead(Exception):
    """What ends a fit where it is."""


def fit(checkpoint=None, at=None, data=(X, Y), **options):
    """A fit, which ends in `Dead` at a stage and step where one is given."""

    def die(event):
        if isinstance(event, Step) and (event.stage, event.index) == at:
            raise Dead

    return ExactGP(**{**OPTIONS, **options}, checkpoint=checkpoint).fit(*data, callbacks=[die])


@cache
def whole():
    """A fit of the usual options that nothing ended."""
    return fit()


def only_steps(seen):
    """A callback that notes steps of training, and no iterations of the last solve."""
    return lambda event: seen.append(event) if isinstance(event, Step) else None


def check_equal(one, other):
    named = zip(
        one.hyperparameters.named_parameters().items(),
        other.hyperparameters.named_parameters().items(),
        strict=True,
    )
    for (name, a), (_, b) in named:
        assert torch.equal(a.value, b.value), name
    for a, b in zip(
        one.predict(NEW, return_std=True)[:2], other.predict(NEW, return_std=True)[:2], strict=True
    ):
        np.testing.assert_array_equal(a, b)
    assert [(s.stage, s.index, s.loss, s.note) for s in one.history] == [
        (s.stage, s.index, s.loss, s.note) for s in other.history
    ]


def test_a_process_killed_in_any_stage_resumes_as_one_never_killed(tmp_path):
    threads = torch.get_num_threads()
    script = SCRIPT.format(tests=str(Path(__file__).parent.parent), options=OPTIONS, threads=threads)
    stages = {"subset": 3, "cg": 2}
    killed = [forked.Program(script, tmp_path / stage, stage, index) for stage, index in stages.items()]
    assert [process.wait() for process in killed] == [-signal.SIGKILL] * 2
    assert not (tmp_path / "subset").exists()  # the exact stage is short, and begins again
    assert (tmp_path / "cg").exists()
    for stage in stages:
        check_equal(fit(tmp_path / stage), whole())


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"training__optimiser": "lbfgs", "training__softplus": True},
        {"training__gradient": "hutchinson", "mean": "zero", "precision": "double"},
        {"training__gradient": "neighbours"},
        {"training__subset": 0},
    ],
    ids=repr,
)
def test_ended_at_any_step_it_goes_on_with_the_same_bits(tmp_path, options):
    path = tmp_path / "fit.ckpt"
    for index in range(4):
        with pytest.raises(Dead):
            fit(path, at=("cg", index), **options)
    resumed = fit(path, **options)
    check_equal(resumed, fit(**options))


def test_ended_in_an_exact_step_it_goes_on_with_the_same_bits(tmp_path):
    path, options = tmp_path / "fit.ckpt", {"training__steps": None}
    with pytest.raises(Dead):
        fit(path, at=("cg", 0), **options)
    assert path.exists()  # what parts of the rows taught is kept
    check_equal(fit(path, **options), fit(**options))


def test_a_step_that_failed_is_remembered(tmp_path, monkeypatch):
    path = tmp_path / "fit.ckpt"
    plain = StochasticTraining._evaluate

    def evaluate(self, hyperparameters):
        found = plain(self, hyperparameters)
        if len(self.state.history) == 1:
            for slope in found.gradient.values():
                slope.mul_(math.nan)
        return found

    monkeypatch.setattr(StochasticTraining, "_evaluate", evaluate)
    with pytest.raises(Dead):
        fit(path, at=("cg", 1))
    resumed = fit(path)
    assert resumed.history[-4].note.startswith("no finite gradient")
    assert math.isnan(resumed.history[-4].gradient_norm)
    check_equal(resumed, fit())


def test_the_exact_method_resumes_after_its_training(tmp_path, monkeypatch):
    path = tmp_path / "fit.ckpt"
    undisturbed = fit(method="cholesky")

    def die(*arguments):
        raise Dead

    with monkeypatch.context() as patch:
        patch.setattr("halfgp.model.fitting.condition", die)
        with pytest.raises(Dead):
            fit(path, method="cholesky")
    steps = []
    options = {**OPTIONS, "method": "cholesky"}
    resumed = ExactGP(**options, checkpoint=path).fit(X, Y, callbacks=[only_steps(steps)])
    assert not steps  # nothing was trained again
    check_equal(resumed, undisturbed)


def test_an_interrupted_fit_keeps_its_checkpoint_and_can_go_on(tmp_path):
    path = tmp_path / "fit.ckpt"

    def interrupt(event):
        if isinstance(event, Step) and (event.stage, event.index) == ("cg", 1):
            raise KeyboardInterrupt

    early = ExactGP(**OPTIONS, checkpoint=path).fit(X, Y, callbacks=[interrupt])
    assert early.report.interrupted
    assert np.isfinite(early.predict(NEW).mean).all()
    save_model(early, tmp_path / "model")
    assert path.exists()  # what is saved is not the end of it
    check_equal(fit(path), whole())


def test_it_stays_until_the_model_is_saved(tmp_path, monkeypatch):
    path = tmp_path / "fit.ckpt"
    done = fit(path)

    def fail(*arguments, **options):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("halfgp.persistence.save_file", fail)
        with pytest.raises(FileError, match="No space left"):
            save_model(done, tmp_path / "model")
    assert path.exists()
    steps = []
    again = ExactGP(**OPTIONS, checkpoint=path).fit(X, Y, callbacks=[only_steps(steps)])
    assert not steps
    check_equal(again, done)
    save_model(again, tmp_path / "model")
    assert not path.exists()
    save_model(done, tmp_path / "model")


def test_one_that_is_done_is_in_no_other_fits_way(tmp_path):
    path = tmp_path / "fit.ckpt"
    first = fit(path)
    second = fit(path, kernel="rbf")
    check_equal(second, fit(kernel="rbf"))
    save_model(first, tmp_path / "first")
    assert path.exists()  # it is the second's
    save_model(second, tmp_path / "second")
    assert not path.exists()


def test_ctrl_c_in_the_last_solve_keeps_the_training(tmp_path):
    path = tmp_path / "fit.ckpt"

    def impatient(event):
        if isinstance(event, SolveIteration):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ExactGP(**OPTIONS, checkpoint=path).fit(X, Y, callbacks=[impatient])
    steps = []
    resumed = ExactGP(**OPTIONS, checkpoint=path).fit(X, Y, callbacks=[only_steps(steps)])
    assert not steps
    check_equal(resumed, whole())


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """The checkpoint of a fit that ended after the first step."""
    path = tmp_path_factory.mktemp("ended") / "fit.ckpt"
    with pytest.raises(Dead):
        fit(path, at=("cg", 0))
    return path.read_bytes()


@pytest.mark.parametrize(
    "other",
    [
        {"data": (X + 1e-9, Y)},
        {"data": (X, 2 * Y + Y**2)},
        {"data": (X[:-1], Y[:-1])},
        {"training__steps": 5},
        {"noise_floor": 1e-3},
        {"kernel": "rbf"},
        {"lengthscale": 0.77},
        {"mean": "zero"},
        {"priors": None},
        {"random_state": 1},
        {"precision": "double"},
        {"backend": "reference"},
        {"solve__preconditioner": "nystrom"},
    ],
    ids=lambda other: next(iter(other)),
)
def test_a_checkpoint_of_another_fit_is_refused_with_the_remedy(tmp_path, other, ended):
    path = tmp_path / "fit.ckpt"
    path.write_bytes(ended)
    with pytest.raises(
        InputError, match=r"other data, settings or version.* another path, or delete that file"
    ):
        fit(path, **other)
    assert path.read_bytes() == ended


def test_settings_that_do_not_touch_training_may_differ(tmp_path):
    path = tmp_path / "fit.ckpt"
    with pytest.raises(Dead):
        fit(path, at=("cg", 0))
    options = {"variances__neighbours": 7, "solve__tol": 1e-5}
    check_equal(fit(path, **options), fit(**options))


def test_a_file_that_is_no_checkpoint_is_refused(tmp_path):
    path = tmp_path / "fit.ckpt"
    path.write_text("something else")
    with pytest.raises(FileError, match="not a halfgp checkpoint"):
        fit(path)
    assert path.read_text() == "something else"
