"""Fits that parts share: kept once made, and never cut short."""

from __future__ import annotations

import importlib.util
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from halfgp.errors import InputError
from halfgp.paper.frame import context as context_module
from halfgp.paper.frame.context import Context
from halfgp.paper.studies import fits, svgp
from halfgp.paper.studies.fits import FitRequest, fingerprint_now, fit

STEPS = 3


@pytest.fixture
def context(tmp_path: Path) -> Context:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (120, 2))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(len(X))
    (tmp_path / "wave").mkdir()
    np.savetxt(tmp_path / "wave" / "data.csv.gz", np.column_stack([X, y]), delimiter=",")
    return Context(quick=True, output=tmp_path / "output", data=tmp_path)


@pytest.mark.parametrize("method", fits.OURS)
def test_a_fit_has_scores_times_and_a_trajectory(context: Context, method: str) -> None:
    found = fit(context, FitRequest("wave", method, steps=STEPS))
    assert (found.rows, found.test_rows, found.features) == (108, 12, 2)
    assert found.rmse < 1.0  # better than the mean of the standardised targets
    assert found.constant_nll == pytest.approx(0.5 * np.log(2 * np.pi * np.e * found.rmse**2))
    assert found.fit_seconds > 0
    assert len(found.losses) == STEPS
    assert found.losses[-1] < found.losses[0]
    assert found.trajectory["noise"][0] == pytest.approx(2.0)  # where the paper starts
    lengthscales = next(v for name, v in found.trajectory.items() if name.endswith("lengthscale"))
    assert np.shape(lengthscales) == (STEPS, 2)


def test_a_fit_is_made_once(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    request = FitRequest("wave", steps=STEPS)
    first = fit(context, request)
    (kept,) = (context.output / "fits").iterdir()
    assert kept.name == "wave-rbf-ard-half-rows-all-test-all-steps-3-seed-0.json"
    with monkeypatch.context() as patch:
        patch.setattr(fits, "_ours", lambda *args: pytest.fail("made again"))
        assert fit(context, request) == first
    again = fit(replace(context, since=time.time()), request)
    assert again.rmse == first.rmse  # everything random is seeded
    assert again.fit_seconds != first.fit_seconds


def test_a_fit_of_other_code_settings_or_data_is_made_again(
    context: Context, monkeypatch: pytest.MonkeyPatch, edit: Callable[..., None]
) -> None:
    request = FitRequest("wave", steps=STEPS)
    made = []
    train = fits._ours
    monkeypatch.setattr(fits, "_ours", lambda *args: made.append(1) or train(*args))
    first = fit(context, request)
    fit(context, request)
    assert len(made) == 1
    edit("halfgp.paper.studies.svgp")  # another model's
    fit(context, request)
    assert len(made) == 1
    edit("halfgp.paper.studies.fits")
    fit(context, request)
    assert len(made) == 2
    data = context.data / "wave" / "data.csv.gz"
    np.savetxt(data, 2 * np.loadtxt(data, delimiter=","), delimiter=",")
    context_module._uci.cache_clear()  # as in a new process
    assert fit(context, request).rmse == pytest.approx(first.rmse)  # rows are standardised
    assert len(made) == 3
    data.unlink()
    fit(context, request)  # what is not there has not changed
    assert len(made) == 3
    assert context.sets.keys() == {"wave"}


@pytest.mark.parametrize("name", ["set_name", "kernel", "ard", "seed", "rows", "steps", "inducing"])
def test_settings_of_a_fit_are_part_of_its_fingerprint(name: str) -> None:
    request = FitRequest("pol", "svgp")
    assert fingerprint_now(replace(request, **{name: 7})) != fingerprint_now(request)


@pytest.mark.parametrize(
    ("module", "ours", "peers"),
    [
        ("paper.studies.fits", True, True),
        ("paper.frame.context", True, True),
        ("scores", True, True),
        ("paper.studies.svgp", False, True),
        ("training.stochastic", True, False),
        ("solvers.cg", True, False),
        ("backends.cpu", True, False),
        ("paper.studies.plan", False, False),  # what is asked for is in the request
        ("analysis.rounding", False, False),
        ("report.words", False, False),
    ],
)
def test_a_fit_is_of_the_code_of_its_model(
    edit: Callable[..., None], module: str, ours: bool, peers: bool
) -> None:
    requests = (FitRequest("pol", "half"), FitRequest("pol", "svgp"))
    before = [fingerprint_now(request) for request in requests]
    edit(f"halfgp.{module}")
    assert [fingerprint_now(r) != f for r, f in zip(requests, before, strict=True)] == [ours, peers]


def test_a_file_of_an_earlier_version_is_made_again(context: Context) -> None:
    request = FitRequest("wave", steps=STEPS)
    fit(context, request)
    (kept,) = (context.output / "fits").iterdir()
    document = json.loads(kept.read_text())
    del document["fingerprint"], document["sets"]
    kept.write_text(json.dumps(document | {"version": "0.1.0.dev0"}))
    fit(context, request)
    assert "fingerprint" in json.loads(kept.read_text())


def test_requests_that_differ_have_files_of_their_own() -> None:
    one = FitRequest("pol", "svgp")
    changes = {
        "set_name": "bike", "method": "half", "kernel": "matern12", "ard": False, "seed": 1, "rows": 10,
        "test_rows": 10, "steps": 1, "inducing": 8,
    }  # fmt: skip
    names = {replace(one, **{name: value}).file_name for name, value in changes.items()}
    assert len(names | {one.file_name}) == len(changes) + 1


def test_without_ard_there_is_one_lengthscale(context: Context) -> None:
    found = fit(context, FitRequest("wave", "single", "matern32", ard=False, rows=50, test_rows=5, steps=1))
    assert (found.rows, found.test_rows) == (50, 5)
    (lengthscale,) = next(v for name, v in found.trajectory.items() if name.endswith("lengthscale"))
    assert np.ndim(lengthscale) == 0


def test_a_fit_that_was_interrupted_is_not_kept(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self, X, y):
        self.report_ = type("Report", (), {"interrupted": True})

    monkeypatch.setattr("halfgp.estimator.GPRegressor.fit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fit(context, FitRequest("wave"))
    assert not context.output.exists()


def test_an_unknown_method_is_refused(context: Context) -> None:
    with pytest.raises(
        InputError, match="`method` must be one of half, single, bfloat16, svgp; got 'float8'"
    ):
        fit(context, FitRequest("wave", "float8"))


def test_without_gpytorch_svgp_says_so(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(svgp, "is_installed", lambda: False)
    assert not fits.is_available("svgp")
    assert fits.is_available("half")
    with pytest.raises(InputError, match=r"halfgp\[paper\]"):
        fit(context, FitRequest("wave", "svgp"))


@pytest.mark.skipif(importlib.util.find_spec("gpytorch") is None, reason="GPyTorch is not installed")
@pytest.mark.filterwarnings("default")  # of GPyTorch and of what it stands on
@pytest.mark.parametrize("kernel", ["rbf", "matern12"])
def test_svgp_learns(context: Context, kernel: str) -> None:
    request = FitRequest("wave", "svgp", kernel, steps=150, inducing=16)
    found = fit(context, request)
    assert found.rmse < 0.9
    assert found.losses[-1] < found.losses[0]
    assert found.trajectory == {}
    assert fit(replace(context, since=time.time()), request).rmse == found.rmse
