"""Targets that not all rows have: each is learned from, and conditioned on, the rows that have it."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from contracts import forked
from contracts.textbook import Textbook, points, targets

import halfgp
from halfgp import ExactGP, GPRegressor
from halfgp.archive import load_model, save_model
from halfgp.errors import DataWarning, FileError, InputError, MemoryLimitError
from halfgp.persistence import read_file, write_file
from halfgp.training import Step

N = 90
X = points(N, 2).numpy() * np.array([10.0, 0.1]) + 3.0
WHOLE = 30.0 * targets(points(N, 2), q=3).numpy() + np.array([1000.0, -50.0, 0.0])
NEW = points(12, 2, seed=4).numpy() * np.array([10.0, 0.1]) + 3.0
ROWS = np.arange(N) >= 25  # that have the second target
Y = np.where(ROWS[:, None] | (np.arange(3) != 1), WHOLE, np.nan)
QUICK = {"training__subset_iterations": 4}


@pytest.fixture(scope="module")
def together():
    """The first and the last target are known in all rows, and the second in most."""
    return ExactGP(**QUICK).fit(X, Y)


@pytest.fixture(scope="module")
def apart():
    """By columns; in the layout of rows, which decides the order of sums."""
    return {
        (0, 2): ExactGP(**QUICK).fit(X, np.ascontiguousarray(Y[:, [0, 2]])),
        (1,): ExactGP(**QUICK).fit(X[ROWS], np.ascontiguousarray(Y[ROWS][:, [1]])),
    }


def parts(together, apart, ask, axis):
    """Answers of the joined model at some targets, and of the model of these alone."""
    for columns, model in apart.items():
        yield np.take(ask(together), columns, axis=axis), ask(model)


@pytest.mark.parametrize(
    ("ask", "axis"),
    [
        (lambda gp: gp.predict(NEW).mean, 1),
        (lambda gp: gp.predict(NEW, return_std=True).std, 1),
        (lambda gp: gp.predict(NEW, return_std=True, include_noise=False).std, 1),
        (lambda gp: gp.predict(NEW, return_cov=True).cov, 0),
        (lambda gp: gp.predict(NEW, return_error=True).error.mean, 1),
        (lambda gp: gp.predict(NEW, return_std=True, return_error=True).error.std, 1),
        (lambda gp: gp.predict_interval(NEW).lower, 1),
        (lambda gp: gp.predict_interval(NEW, [0.5, 0.9]).upper, 2),
        (lambda gp: gp.predict_gradient(NEW)[0], 2),
        (lambda gp: gp.predict_gradient(NEW)[1], 2),
    ],
)
def test_every_answer_is_that_of_a_fit_of_the_target_on_its_own_rows(together, apart, ask, axis):
    for found, expected in parts(together, apart, ask, axis):
        np.testing.assert_array_equal(found, expected)


def test_rows_that_are_left_out_are_in_their_places(together, apart):
    for part in range(3):
        whole = together.leave_one_out()[part]
        assert whole.shape == (N, 3)
        assert (np.isnan(whole) == np.isnan(Y)).all()
        np.testing.assert_array_equal(whole[:, [0, 2]], apart[0, 2].leave_one_out()[part])
        np.testing.assert_array_equal(whole[ROWS][:, [1]], apart[1,].leave_one_out()[part])


def test_likelihoods_add_up_and_gradients_follow_each_other(together, apart):
    models = list(apart.values())
    assert together.log_marginal_likelihood().value == sum(m.log_marginal_likelihood().value for m in models)
    moved = together.theta + 0.1
    value, gradient = together.log_marginal_likelihood_at(moved)
    found = [model.log_marginal_likelihood_at(model.theta + 0.1) for model in models]
    assert value.value == sum(one.value for one, _ in found)
    np.testing.assert_array_equal(gradient, np.concatenate([own for _, own in found]))
    with pytest.raises(InputError, match=f"`theta` must have {len(moved)} numbers; got 2"):
        together.log_marginal_likelihood_at(moved[:2])


def test_the_report_tells_all_rows_and_the_sum_of_the_work(together, apart):
    reports = [model.report for model in apart.values()]
    assert (together.report.rows, together.report.dropped) == (N, 0)
    assert together.report.steps == sum(report.steps for report in reports) == len(together.history)
    assert together.report.error == max(report.error for report in reports)
    assert [group.fitted.report.dropped for group in together.fitted.groups] == [0, 25]
    relevance = [model.relevance for model in apart.values()]
    np.testing.assert_array_equal(together.relevance, np.maximum(*relevance))


@pytest.mark.parametrize("name", ["posterior", "hyperparameters", "x_scale", "y_scale"])
def test_of_what_each_group_has_there_is_no_one(together, name):
    with pytest.raises(InputError, match=rf"one `{name}` .* 2 groups. Ask each of them"):
        getattr(together, name)


def test_draws_of_targets_are_independent_and_come_again():
    """As separate models they would have one seed, and the same random numbers for nearly the same rows."""
    same = np.stack([WHOLE[:, 0], WHOLE[:, 0]], axis=1)
    same[0, 1] = np.nan
    model = ExactGP(**QUICK, method="cholesky").fit(X, same)
    draws = model.sample(NEW[:1], 400, seed=1, joint=True)[0]
    np.testing.assert_array_equal(model.sample(NEW[:1], 400, seed=1, joint=True)[0], draws)
    # Of 400 independent pairs the correlation has a deviation of 1/20.
    assert abs(np.corrcoef(draws)[0, 1]) < 0.25


def test_a_target_of_one_row_and_a_row_of_one_target():
    few = np.full((N, 2), np.nan)
    few[:, 0] = WHOLE[:, 0]
    few[7, 1] = 5.0
    model = ExactGP(**QUICK).fit(X, few)
    assert [len(group.rows) for group in model.fitted.groups] == [N, 1]
    np.testing.assert_array_equal(
        model.predict(NEW).mean[:, 1], ExactGP(**QUICK).fit(X[7:8], few[7:8, 1]).predict(NEW).mean
    )
    lonely = WHOLE[:, :2].copy()
    lonely[7, 0] = np.nan
    model = ExactGP(**QUICK).fit(X, lonely)
    assert [len(group.rows) for group in model.fitted.groups] == [N - 1, N]


def test_rows_without_any_target_are_left_out_and_a_target_without_rows_is_refused():
    holes = Y.copy()
    holes[[3, 50]] = np.nan
    with pytest.warns(DataWarning, match=r"2 of 90 rows have no target \(NaN in `y`\)") as caught:
        model = ExactGP(**QUICK).fit(X, holes)
    assert caught[0].filename == __file__
    assert len(caught) == 1  # nothing is lost of rows that have some
    assert (model.report.rows, model.report.dropped) == (N - 2, 2)
    known = np.delete(ROWS, [3, 50])
    assert (~np.isnan(model.leave_one_out().mean[:, 1]) == known).all()
    empty = Y.copy()
    empty[:, 1] = np.nan
    calls = []
    with pytest.raises(InputError, match=r"NaN alone in column 1 of 3.*leave that column out"):
        ExactGP().fit(X, empty, callbacks=[calls.append])
    assert not calls
    with pytest.raises(InputError, match=r"`noise` for every row goes with one target; got 3"):
        ExactGP().fit(X, Y, noise=np.ones(N))


def test_all_groups_together_must_fit_into_memory():
    assert ExactGP().plan(X, y=WHOLE) == ExactGP().plan(X, 3)
    first, second, both = ExactGP().plan(X, 2), ExactGP().plan(X[ROWS]), ExactGP().plan(X, y=Y)
    assert both.seconds == first.seconds + second.seconds
    assert both.memory == max(first.memory, second.memory + 8 * N**2)
    several = np.array(points(N, 40).numpy() < 1.9)  # every target has rows of its own
    many = np.where(several, 1.0, np.nan)
    plan = GPRegressor().plan(X, many)
    assert plan.memory > GPRegressor().plan(X).memory
    with pytest.raises(MemoryLimitError):
        ExactGP(memory_limit=plan.memory - 1).fit(X, many)


# ------------------------------------------------------------------------------------------------ means


def plane(x):
    return np.stack([x[:, 0], 10.0 * x[:, 1], x[:, 0] - x[:, 1]], axis=1)


@pytest.mark.parametrize("mean", ["linear", "zero", plane])
def test_mean_functions_are_those_of_the_targets(mean):
    model = ExactGP(**QUICK, mean=mean).fit(X, Y)
    own = (lambda x: plane(x)[:, 1]) if mean is plane else mean
    alone = ExactGP(**QUICK, mean=own).fit(X[ROWS], Y[ROWS, 1])
    np.testing.assert_array_equal(model.predict(NEW).mean[:, 1], alone.predict(NEW).mean)
    more = np.array([[1.0, np.nan, np.nan], [np.nan, 2.0, 3.0]])
    model.update(NEW[:2], more)
    alone.update(NEW[1:2], [2.0])
    np.testing.assert_allclose(model.predict(NEW).mean[:, 1], alone.predict(NEW).mean, rtol=1e-9)


# ------------------------------------------------------------------------------------------- later rows


@pytest.mark.parametrize("method", ["cholesky", "cg"])
def test_later_rows_go_to_the_targets_that_they_have(method):
    options = {**QUICK, "method": method, "training__subset": 40, "solve__tol": 1e-8}
    model = ExactGP(**options).fit(X, WHOLE)
    hyperparameters, scale = model.hyperparameters, model.y_scale
    more = np.array([[1000.0, np.nan, 3.0], [1010.0, np.nan, np.nan], [1020.0, -40.0, np.nan]])
    model.update(NEW[:3], more)
    assert [group.targets for group in model.fitted.groups] == [(0,), (1,), (2,)]
    assert model.report.rows == N + 3
    assert (np.isnan(model.leave_one_out().mean[N:]) == np.isnan(more)).all()
    # Scales and hyperparameters are as they were, and the rows of each target are what the textbook has.
    for target in range(3):
        has = ~np.isnan(more[:, target])
        one = model.fitted.groups[target].fitted
        assert torch.equal(one.posterior.hyperparameters.noise.value, hyperparameters.noise.value)
        rows = one.x_scale.apply(torch.from_numpy(np.concatenate([X, NEW[:3][has]])))
        values = torch.from_numpy(np.concatenate([WHOLE[:, target], more[has, target]]))
        standardised = (values - scale.mean[target]) / scale.scale[target]
        book = Textbook(one.posterior.hyperparameters, rows, standardised[:, None], None)
        expected = book.mean(one.x_scale.apply(torch.from_numpy(NEW)))[:, 0]
        unit = float(scale.scale[target])
        np.testing.assert_allclose(
            model.predict(NEW).mean[:, target],
            expected * unit + float(scale.mean[target]),
            rtol=0,
            atol=(1e-9 if method == "cholesky" else 1e-4) * unit,
        )


def test_a_group_that_gains_no_row_stays_as_it_is(together, tmp_path):
    save_model(together, tmp_path / "m")
    model, _ = load_model(tmp_path / "m")
    kept = model.fitted.groups[1]
    model.update(NEW[:1], [[1000.0, np.nan, 1.0]])
    assert [group.targets for group in model.fitted.groups] == [(0, 2), (1,)]
    assert model.fitted.groups[1] is kept
    assert len(model.fitted.groups[0].rows) == N + 1
    with pytest.raises(InputError, match="`y` must have 3 targets, as in `fit`; got 1"):
        model.update(NEW[:1], [1.0])


# ------------------------------------------------------------------------------------------------ files


def answers(model):
    return [
        *model.predict(NEW, return_std=True)[:2],
        *model.predict_interval(NEW),
        *model.leave_one_out(),
        model.sample(NEW, 2),
    ]


@pytest.mark.parametrize(
    "options",
    [{}, {"mean": "linear", "variances__calibrate": False}, {"method": "cg", "variances__method": "local"}],
)
def test_a_file_has_all_groups_to_the_last_bit(options, tmp_path):
    model = ExactGP(**{**QUICK, "training__subset": 40, **options}).fit(X, Y)
    save_model(model, tmp_path / "one", {"mine": 1})
    loaded, extra = load_model(tmp_path / "one")
    assert extra == {"mine": 1}
    for before, after in zip(answers(model), answers(loaded), strict=True):
        np.testing.assert_array_equal(before, after)
    assert loaded.report == model.report
    assert repr(loaded.history) == repr(model.history)  # which may hold NaN
    save_model(loaded, tmp_path / "two")
    one, two = (read_file(tmp_path / name, "model") for name in ("one", "two"))
    assert one.header["groups"] == two.header["groups"]
    assert all(torch.equal(one.tensors[name], two.tensors[name]) for name in one.tensors)


def renamed(header, tensors):
    tensors["9.x"] = tensors.pop("0.x")


DAMAGE = {
    "a target twice": (lambda h, t: h["groups"][1].update(targets=[0]), "every target once"),
    "a target that is none": (lambda h, t: h["groups"][1].update(targets=["1"]), "groups.1.targets"),
    "fewer targets": (lambda h, t: h["groups"][0].update(targets=[0]), "`groups.0`"),
    "one group": (lambda h, t: (h["groups"].pop(), [t.pop(n) for n in list(t) if n[0] == "1"]), "several"),
    "no groups": (lambda h, t: h.update(groups=None), "`groups`"),
    "a field too many": (lambda h, t: h["groups"][0].update(more=1), "groups.0"),
    "no kernel": (lambda h, t: h["groups"][0].pop("kernel"), "groups.0"),
    "dropped": (lambda h, t: h.update(dropped="none"), "`dropped`"),
    "no rows": (lambda h, t: t.pop("1.rows"), "`rows`"),
    "rows out of order": (lambda h, t: t["1.rows"].copy_(t["1.rows"].flip(0).clone()), "ascending"),
    "rows below zero": (lambda h, t: t["1.rows"].sub_(1000), "from 0 on"),
    "fewer rows": (lambda h, t: t.update({"1.rows": t["1.rows"][1:].clone()}), "`groups.1`"),
    "a tensor of no group": (renamed, "9.x"),
    "a tensor without a group": (lambda h, t: t.update(x=torch.zeros(1)), "`x`"),
    "weights of a group": (lambda h, t: t["1.weights"].fill_(float("nan")), "`weights`"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_every_field_of_a_group_is_checked(together, name, tmp_path):
    change, words = DAMAGE[name]
    save_model(together, tmp_path / "m")
    stored = read_file(tmp_path / "m", "model")
    change(stored.header, stored.tensors)
    write_file(tmp_path / "m", "model", stored.header, stored.tensors)
    with pytest.raises(FileError, match=words):
        load_model(tmp_path / "m")


# ------------------------------------------------------------------------------------- kill and resume

TRAINED = {
    "method": "cg",
    "training__subset": 40,
    "training__subset_iterations": 3,
    "training__steps": 3,
    "training__probes": 3,
}

# Kills itself in the second group's second step on all rows.
SCRIPT = """
import os, signal, sys
sys.path.insert(0, {tests!r})
import torch
torch.set_num_threads({threads})  # as many as go on: dense algebra has the same bits for one number of them
from test_groups import TRAINED, X, Y
from halfgp import ExactGP

seen = []

def die(event):
    if getattr(event, "stage", "") == "cg" and event.index == 1:
        seen.append(event)
        if len(seen) == 2:
            os.kill(os.getpid(), signal.SIGKILL)

ExactGP(**TRAINED, checkpoint=sys.argv[1]).fit(X, Y, callbacks=[die])
"""


def test_a_process_killed_between_groups_resumes_as_one_never_killed(tmp_path):
    path = tmp_path / "c"
    script = SCRIPT.format(tests=str(Path(__file__).parent), threads=torch.get_num_threads())
    assert forked.run(script, path).returncode == -signal.SIGKILL
    assert {"c", "c.1"} <= {found.name for found in tmp_path.iterdir()}
    steps = []
    resumed = ExactGP(**TRAINED, checkpoint=path).fit(
        X, Y, callbacks=[lambda event: steps.append(event) if isinstance(event, Step) else None]
    )
    # The first group was done, and the second had written down its second step.
    assert [(step.stage, step.index) for step in steps] == [("cg", 2)]
    whole = ExactGP(**TRAINED).fit(X, Y)
    for before, after in zip(answers(whole), answers(resumed), strict=True):
        np.testing.assert_array_equal(before, after)
    assert [step.loss for step in resumed.history] == [step.loss for step in whole.history]
    save_model(resumed, tmp_path / "model")
    assert {found.name for found in tmp_path.iterdir()} == {"model"}  # no checkpoint is left


def test_ctrl_c_ends_the_training_of_one_group():
    def interrupt(event):
        if not seen and isinstance(event, Step):
            seen.append(event)
            raise KeyboardInterrupt

    seen = []
    model = ExactGP(**QUICK).fit(X, Y, callbacks=[interrupt])
    assert [group.fitted.report.interrupted for group in model.fitted.groups] == [True, False]
    assert model.report.interrupted
    assert np.isfinite(model.predict(NEW).mean).all()


# ------------------------------------------------------------------------------------------- estimator


def test_frames_with_holes(tmp_path):
    frame = pd.DataFrame(X, columns=["depth", "slope"])
    holes = pd.DataFrame(Y, columns=["a", "b", "c"])
    options = {"training": halfgp.TrainingOptions(subset_iterations=4)}
    regressor = GPRegressor(**options).fit(frame, holes)
    new = pd.DataFrame(NEW, columns=["depth", "slope"])
    with pytest.warns(DataWarning, match="25 of 90"):
        alone = GPRegressor(**options).fit(frame, holes["b"])
    mean, std = regressor.predict(new, return_std=True)
    np.testing.assert_array_equal(mean[:, 1], alone.predict(new))
    assert repr(regressor.kernel_[1]) == repr(alone.kernel_)
    assert regressor.noise_[1] == alone.noise_
    _, gradient = regressor.log_marginal_likelihood(regressor.theta_, eval_gradient=True)
    assert gradient.shape == regressor.theta_.shape
    scored = regressor.scores(new, mean + std)
    assert scored.rows == len(NEW)
    assert regressor.score(frame, WHOLE) > 0.5
    assert regressor.sample_y(new, 2).shape == (len(NEW), 3, 2)
    regressor.save(tmp_path / "m")
    loaded = halfgp.load(tmp_path / "m")
    assert list(loaded.feature_names_in_) == ["depth", "slope"]
    np.testing.assert_array_equal(loaded.predict(new), mean)
    later = pd.DataFrame({"a": [1000.0], "b": [None], "c": [1.0]}).astype(float)
    assert loaded.update(new[:1], later).report_.rows == N + 1
    panels = regressor.plot_history()
    assert len(panels[0].get_lines()) > 0
