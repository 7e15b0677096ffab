"""`GPRegressor` is a regressor of scikit-learn in all that scikit-learn can check, and some more."""

from __future__ import annotations

import contextlib
import inspect
import io
import math
import os
import pickle
import textwrap
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from contracts import forked
from rich.console import Console
from safetensors import safe_open
from safetensors.torch import save_file
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import halfgp
from halfgp import RBF, ExactGP, Gamma, GPRegressor, White
from halfgp.errors import DataWarning, FileError, InputError, MemoryLimitError
from halfgp.model import LeaveOneOut, LogLikelihood, NumericalError, SolveIteration
from halfgp.persistence import FORMAT_VERSION
from halfgp.planner import Plan
from halfgp.progress import Descent, ProgressBar
from halfgp.scores import Scores
from halfgp.settings import Settings, SolveOptions, TrainingOptions, VarianceOptions
from halfgp.training import Step

N = 60
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, 2))
Y = np.sin(X[:, 0]) + 0.05 * RNG.standard_normal(N)
NEW = RNG.standard_normal((9, 2))
CG: dict[str, Any] = {"method": "cg", "training": TrainingOptions(subset=20, subset_iterations=3, steps=2)}
EXACT: dict[str, Any] = {"training": TrainingOptions(subset_iterations=5)}
BOTH = pytest.mark.parametrize(
    "options", [EXACT, CG, {**CG, "variances": VarianceOptions("local")}], ids=["exact", "cg", "local"]
)


@pytest.fixture(scope="module")
def fitted() -> GPRegressor:
    return GPRegressor(**EXACT).fit(X, Y)


# ------------------------------------------------------------------------------------------ scikit-learn


# Few iterations: the checks are about the manners of an estimator, not about where its training ends.
@parametrize_with_checks([GPRegressor(training=TrainingOptions(subset_iterations=3))])
def test_scikit_learn(estimator: GPRegressor, check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # or a check of NumPy arrays would be skipped
    check(estimator)


def test_parameters_are_the_fields_of_settings() -> None:
    parameters = inspect.signature(GPRegressor).parameters
    assert list(parameters) == [*(field.name for field in fields(Settings)), "progress"]
    for field in fields(Settings):
        assert field.default is not MISSING
        assert parameters[field.name].default == field.default
    given = vars(GPRegressor())
    assert given.pop("progress") is False
    assert Settings(**given) == Settings()


def test_options_of_a_group_are_parameters_too() -> None:
    regressor = GPRegressor(solve=SolveOptions(unsolved="warn"))
    assert regressor.get_params()["solve__tol"] == SolveOptions.tol
    assert regressor.get_params()["training__probes"] == TrainingOptions.probes
    assert "solve__tol" not in regressor.get_params(deep=False)
    before = regressor.solve
    assert regressor.set_params(solve__tol=1e-4, training__probes=3, noise=0.2) is regressor
    assert regressor.solve == SolveOptions(tol=1e-4, unsolved="warn")
    assert before == SolveOptions(unsolved="warn")  # another one took its place
    assert clone(regressor).get_params() == regressor.get_params()
    assert repr(regressor.solve) == "SolveOptions(tol=0.0001, unsolved='warn')"
    assert "training=TrainingOptions(probes=3)" in repr(regressor)
    with pytest.raises(InputError, match="There is no option `tolerance`; there are tol, max_iterations"):
        regressor.set_params(solve__tolerance=1.0)
    with pytest.raises(ValueError, match="There is no parameter `kernel__lengthscale`"):
        regressor.set_params(kernel__lengthscale=1.0)
    search = GridSearchCV(GPRegressor(**CG), {"solve__tol": np.array([1e-2, 1e-3])}, cv=2).fit(X, Y)
    assert search.best_estimator_.solve.tol in (1e-2, 1e-3)


def test_the_documentation_says_what_was_declared() -> None:
    for options in (Settings, SolveOptions, TrainingOptions, VarianceOptions):
        for field in fields(options):
            assert f"    {field.name}: " in (options.__doc__ or "")


def test_it_is_an_exact_gp() -> None:
    regressor, model = GPRegressor(**CG, random_state=3).fit(X, Y), ExactGP(**CG, random_state=3).fit(X, Y)
    found = model.predict(NEW, return_std=True)
    for one, other in zip(regressor.predict(NEW, return_std=True), (found.mean, found.std), strict=True):
        np.testing.assert_array_equal(one, other)


def test_pipeline_search_and_cross_validation() -> None:
    pipeline = make_pipeline(StandardScaler(), GPRegressor(**EXACT))
    assert cross_val_score(pipeline, X, Y, cv=3).min() > 0.8
    # Grids are made of numbers of NumPy.
    grid = {
        "kernel": ["rbf", RBF([1.0, 1.0])],
        "noise": np.array([0.1, 0.2]),
        "training__steps": np.array([1, 2]),
    }
    search = GridSearchCV(GPRegressor(**EXACT), grid, cv=2).fit(X, Y)
    assert search.score(X, Y) > 0.9
    assert search.best_estimator_.predict(NEW, return_std=True)[1].shape == (9,)


def test_a_search_in_other_processes() -> None:
    search = GridSearchCV(GPRegressor(**CG), {"kernel": ["rbf", "matern12"]}, cv=2, n_jobs=2).fit(X, Y)
    here = GridSearchCV(GPRegressor(**CG), {"kernel": ["rbf", "matern12"]}, cv=2, n_jobs=1).fit(X, Y)
    np.testing.assert_array_equal(search.cv_results_["mean_test_score"], here.cv_results_["mean_test_score"])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_a_forked_child_fits_after_its_parent() -> None:
    """With two threads, whose copies in the child do not exist: it must not wait for them."""
    program = """
        import multiprocessing, numpy as np, torch, warnings
        from halfgp import GPRegressor
        warnings.simplefilter("ignore")  # newer Pythons warn of forks with threads
        torch.set_num_threads(2)
        X = np.random.default_rng(0).standard_normal((400, 2))
        def fit():
            some = {"training__subset": 100, "training__steps": 1}
            for options in ({}, {"method": "cg", "variances__method": "local", **some}):
                gp = GPRegressor().set_params(training__subset_iterations=1, **options)
                gp.fit(X, X[:, 0]).predict(X, return_std=True)
        fit()
        child = multiprocessing.get_context("fork").Process(target=fit)
        child.start()
        child.join(60)
        hangs = child.is_alive()
        child.kill()
        raise SystemExit(99 if hangs else child.exitcode)
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    assert forked.run(textwrap.dedent(program), env=environment).returncode == 0


def test_clone_copies_what_was_asked_for_and_nothing_found() -> None:
    kernel = 2.0 * RBF([1.0, 2.0])
    regressor = GPRegressor(kernel, priors={"noise": Gamma(1.1, 0.05)}, **EXACT)
    copy = clone(regressor.fit(X, Y))
    assert repr(copy.kernel) == repr(kernel)
    assert not hasattr(copy, "model_")
    np.testing.assert_array_equal(copy.fit(X, Y).predict(NEW), regressor.predict(NEW))


@BOTH
def test_pickle_and_joblib(options: dict[str, Any], tmp_path: Path) -> None:
    regressor = GPRegressor(**options).fit(X, Y)
    joblib.dump(regressor, tmp_path / "j")
    for copy in (pickle.loads(pickle.dumps(regressor)), joblib.load(tmp_path / "j")):
        for one, other in zip(
            copy.predict(NEW, return_std=True), regressor.predict(NEW, return_std=True), strict=True
        ):
            np.testing.assert_array_equal(one, other)


# ------------------------------------------------------------------------------------------------- frames


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_names_of_features(frame: Any, tmp_path: Path) -> None:
    table, new = (frame({"a": part[:, 0], "b": part[:, 1]}) for part in (X, NEW))
    regressor = GPRegressor(**EXACT).fit(table, frame({"y": Y})["y"])
    assert regressor.feature_names_in_.tolist() == ["a", "b"]
    regressor.save(tmp_path / "m")
    loaded = halfgp.load(tmp_path / "m")
    np.testing.assert_array_equal(loaded.predict(new), regressor.predict(new))
    for one in (regressor, loaded):
        with pytest.raises(ValueError, match="feature names should match"):
            one.predict(frame({"b": NEW[:, 1], "a": NEW[:, 0]}))
        with pytest.raises(ValueError, match="feature names should match"):
            one.predict(frame({"a": NEW[:, 0], "c": NEW[:, 1]}))
        with pytest.warns(UserWarning, match="does not have valid feature names"):
            one.predict(NEW)


def test_lists_tensors_and_other_numbers() -> None:
    whole, target = np.round(X * 10), np.round(Y * 10)
    expected = GPRegressor(**EXACT).fit(whole, target).predict(whole)
    for kind in (np.int64, np.float32, np.uint8):
        points, targets = (np.abs(part).astype(kind) for part in (whole, target))
        same = GPRegressor(**EXACT).fit(points.astype(float), targets.astype(float)).predict(points)
        np.testing.assert_array_equal(GPRegressor(**EXACT).fit(points, targets).predict(points), same)
    np.testing.assert_array_equal(
        GPRegressor(**EXACT).fit(whole.tolist(), target.tolist()).predict(torch.tensor(whole)), expected
    )


# ------------------------------------------------------------------------------------------------ methods


def test_everything_that_predict_can_return(fitted: GPRegressor) -> None:
    mean, std, error = fitted.predict(NEW, return_std=True, return_error=True)
    assert isinstance(error, NumericalError)
    assert mean.shape == std.shape == error.mean.shape == (9,)
    covariance = fitted.predict(NEW, return_cov=True)[1]
    np.testing.assert_allclose(np.sqrt(covariance.diagonal()), std, rtol=1e-6)
    without = fitted.predict(NEW, return_std=True, include_noise=False)[1]
    assert (without < std).all()
    with pytest.raises(InputError, match="`return_cov`"):
        fitted.predict(NEW, return_std=True, return_cov=True)


def test_several_targets() -> None:
    both = np.stack([Y, 10 * X[:, 1]], axis=1)
    regressor = GPRegressor(**EXACT).fit(X, both)
    mean, std = regressor.predict(NEW, return_std=True)
    assert mean.shape == std.shape == (9, 2)
    assert regressor.predict(NEW, return_cov=True)[1].shape == (2, 9, 9)
    assert regressor.sample_y(NEW, 3).shape == (9, 2, 3)
    assert regressor.score(X, both) > 0.9
    assert isinstance(regressor.scores(X, both), Scores)
    with pytest.raises(InputError, match="2 targets"):
        regressor.update(NEW, NEW[:, 0])
    assert regressor.predict(NEW).shape == (9, 2)


def test_samples(fitted: GPRegressor) -> None:
    draws = fitted.sample_y(NEW, 200, random_state=1)
    assert draws.shape == (9, 200)
    mean, std = fitted.predict(NEW, return_std=True, include_noise=False)
    # Five standard errors of a mean of 200 draws, and the draws' own approximation of the prior.
    assert (np.abs(draws.mean(axis=1) - mean) < 5 * std / math.sqrt(200) + 0.02).all()
    np.testing.assert_array_equal(draws, fitted.sample_y(NEW, 200, random_state=1))
    assert not np.array_equal(draws, fitted.sample_y(NEW, 200, random_state=np.random.RandomState(1)))
    with pytest.raises(InputError, match="positive integer"):
        fitted.sample_y(NEW, 0)


@BOTH
def test_update_is_conditioning_on_all_rows(options: dict[str, Any]) -> None:
    more = np.sin(NEW[:, 0])
    regressor = GPRegressor(**options).fit(X, Y)
    before = regressor.kernel_
    assert regressor.update(NEW, more) is regressor
    assert repr(regressor.kernel_) == repr(before)
    assert regressor.report_.rows == N + 9
    # The shape of new targets does not change that of predictions.
    assert regressor.update(NEW[:1], more[:1, None]).predict(NEW).shape == (9,)
    assert np.abs(regressor.predict(NEW) - more).max() < 0.3
    with pytest.raises(ValueError, match="features"):
        regressor.update(NEW[:, :1], more)


def test_what_it_says_about_itself(fitted: GPRegressor) -> None:
    assert isinstance(fitted.plan(X), Plan)
    assert isinstance(GPRegressor().plan(X), Plan)  # before any fit
    assert isinstance(fitted.log_marginal_likelihood(), LogLikelihood)
    assert isinstance(fitted.leave_one_out(), LeaveOneOut)
    assert fitted.scores(X, Y).rmse < 0.2
    assert fitted.relevance_.argmax() == 0
    assert 0 < fitted.noise_ < 0.1
    assert len(fitted.history_) == fitted.report_.steps > 0
    assert GPRegressor("rbf", ard=False, **EXACT).fit(X, Y).relevance_ is None


def test_nothing_is_answered_before_fit(tmp_path: Path) -> None:
    regressor = GPRegressor()
    questions = [
        *(lambda: regressor.predict(X), lambda: regressor.sample_y(X), lambda: regressor.update(X, Y)),
        *(regressor.log_marginal_likelihood, regressor.leave_one_out, lambda: regressor.scores(X, Y)),
        *(lambda: regressor.save(tmp_path / "m"), regressor.plot_history),
    ]
    for question in questions:
        with pytest.raises(NotFittedError):
            question()
    with pytest.raises(InputError):
        regressor.set_params(kernel="none").fit(X, Y)
    with pytest.raises(NotFittedError):  # a fit that failed is none
        regressor.predict(X)


@pytest.mark.parametrize("options", [EXACT, CG, {"method": "cg", "training": TrainingOptions(subset=0)}])
def test_the_history_can_be_drawn(options: dict[str, Any]) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    regressor = GPRegressor(**options).fit(X, Y)
    axes = regressor.plot_history()
    assert len(axes) == 3
    assert regressor.plot_history(axes) is axes
    axes[0].figure.canvas.draw()
    pyplot.close("all")


def test_the_papers_setting() -> None:
    regressor = GPRegressor.paper(training__steps=3)
    assert (regressor.kernel, regressor.precision, regressor.training.steps) == ("rbf", "half", 3)
    assert regressor.lengthscale == regressor.outputscale == math.log(2)
    assert GPRegressor.paper().training.steps == 50
    step = regressor.fit(X, Y).history_[0]
    assert step.stage == "cg"
    assert step.hyperparameters["noise"] == pytest.approx(2.0)
    assert regressor.score(X, Y) > 0.5
    with pytest.raises(TypeError):
        GPRegressor.paper(stepps=3)


def test_random_states() -> None:
    def predict(state: Any) -> Any:
        return GPRegressor(**CG, random_state=state).fit(X, Y).predict(NEW)

    np.testing.assert_array_equal(predict(5), predict(np.int64(5)))
    np.testing.assert_array_equal(predict(np.random.RandomState(5)), predict(np.random.RandomState(5)))
    assert not np.array_equal(predict(5), predict(6))
    assert np.isfinite(predict(None)).all()
    for wrong in ("seed", -1, 1.5):
        with pytest.raises(InputError, match="`random_state`"):
            predict(wrong)


def test_progress_on_a_terminal_and_elsewhere(capfd: pytest.CaptureFixture[str]) -> None:
    regressor = GPRegressor(**CG, progress=True).fit(X, Y)
    assert capfd.readouterr() == ("", "")
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120)
    with ProgressBar(regressor.model_.settings, console) as bar:
        for step in regressor.history_:
            bar(step)
        bar(SolveIteration(17, 0.1, 0.01))
    shown = screen.getvalue()
    assert all(word in shown for word in ("subset", "cg", "loss", "residual", "passes", "2/2"))
    assert all(word in shown for word in ("solve", "17 iterations"))


@pytest.mark.parametrize("rate", [0.6, 0.8, 0.9])
def test_from_the_tenth_iteration_on_it_is_known_how_many_are_left(rate: float) -> None:
    """Of residuals that fall by a rate, and jump up and down by a tenth."""
    descent, wanted = Descent(), 1e-4
    total = math.ceil(math.log(wanted) / math.log(rate))
    jumps = np.random.default_rng(0).uniform(0.9, 1.1, total + 1)
    for i in range(1, total):
        expected = descent.expected(SolveIteration(i, rate**i * jumps[i], wanted))
        if i >= 10:
            assert expected == pytest.approx(total, rel=0.3)
    assert descent.expected(SolveIteration(total, wanted, wanted)) == total
    assert descent.expected(SolveIteration(1, 0.5, wanted)) is None


def test_a_callback_may_hear_of_the_last_solve() -> None:
    events: list[Any] = []
    options = CG | {"variances": VarianceOptions("local"), "solve": SolveOptions(tol=1e-3)}
    regressor = GPRegressor(**options).fit(X, Y, callbacks=[events.append])
    steps, heard = ([e for e in events if isinstance(e, SolveIteration) == solve] for solve in (False, True))
    assert steps == regressor.history_
    assert [event.iteration for event in heard] == list(range(1, len(heard) + 1))
    assert 0.0 < heard[-1].residual <= heard[-1].wanted <= 1e-3


def test_callbacks_and_checkpoint(tmp_path: Path) -> None:
    seen: list[object] = []
    regressor = GPRegressor(
        **CG,
        checkpoint=tmp_path / "c",
        progress=True,
    )
    regressor.fit(X, Y, callbacks=[seen.append])
    assert [event for event in seen if isinstance(event, Step)] == regressor.history_
    assert (tmp_path / "c").exists()
    regressor.save(tmp_path / "m")
    assert not (tmp_path / "c").exists()


# ------------------------------------------------------------------------------------------ difficult data


@BOTH
def test_known_variances_of_rows(options: dict[str, Any]) -> None:
    noise = np.where(np.arange(N) % 2, 1e-4, 1.0)
    target = np.where(np.arange(N) % 2, Y, Y + 1.0)  # of which half are wrong, and known to be
    regressor = GPRegressor(**options).fit(X, target, noise=noise)
    assert regressor.noise_ is None
    error = regressor.predict(X) - np.sin(X[:, 0])
    assert np.sqrt(np.mean(error[1::2] ** 2)) < 0.1
    with pytest.raises(InputError, match="`noise` must be given to `update`"):
        regressor.update(NEW, NEW[:, 0])
    with pytest.raises(InputError, match="positive"):
        regressor.fit(X, Y, noise=np.zeros(N))
    with pytest.raises(InputError, match=r"`noise`.*shape"):
        regressor.fit(X, Y, noise=np.ones(N - 1))


DIFFICULT: dict[str, tuple[Any, Any]] = {
    "repeated rows": (np.repeat(X[:5], 12, axis=0), np.repeat(Y[:5], 12)),
    "repeated rows that disagree": (np.repeat(X[:5], 12, axis=0), Y),
    "one row many times": (np.ones((20, 2)), Y[:20]),
    "constant target": (X, np.full(N, 1e10 / 3)),
    "constant feature": (np.c_[X, np.full(N, 0.1)], Y),
    "only constant features": (np.full((N, 2), 0.1), Y),
    "one row": (X[:1], Y[:1]),
    "two rows": (X[:2], Y[:2]),
    "one column": (X[:, :1], Y),
    "more columns than rows": (RNG.standard_normal((10, 40)), Y[:10]),
    "huge features": (X * 1e150, Y),
    "huge targets": (X, Y * 1e150),
    "tiny features": (X * 1e-150, Y),
    "tiny targets": (X, Y * 1e-150),
    "features far from zero": (X + 1e9, Y),
    "an outlier among features": (np.r_[X, [[1e6, 0.0]]], np.r_[Y, 1.0]),
    "an outlier among targets": (X, np.r_[Y[:-1], 1e200]),
}


@BOTH
@pytest.mark.parametrize("name", DIFFICULT)
def test_difficult_data(name: str, options: dict[str, Any]) -> None:
    points, targets = DIFFICULT[name]
    constant = len(points) > 1 and bool((np.ptp(points, axis=0) == 0).any())
    with pytest.warns(DataWarning, match="one value") if constant else contextlib.nullcontext():
        regressor = GPRegressor(**options).fit(points, targets)
    mean, std, error = regressor.predict(points, return_std=True, return_error=True)
    assert np.isfinite(mean).all()
    assert np.isfinite(std).all()
    assert np.isfinite(error.mean).all()
    assert (std > 0).all()
    if name == "constant target":
        np.testing.assert_allclose(mean, targets, rtol=1e-6)


@pytest.mark.parametrize("power", [-290, -150, 150, 290])
def test_the_unit_does_not_matter(power: int) -> None:
    # A power of two, so that scaling rounds nothing.
    unit = 2.0**power
    one, other = GPRegressor(**EXACT).fit(X, Y), GPRegressor(**EXACT).fit(X * unit, Y * unit)
    np.testing.assert_allclose(other.predict(NEW * unit), one.predict(NEW) * unit, rtol=1e-10)


def test_targets_that_are_missing() -> None:
    holes = Y.copy()
    holes[::7] = np.nan
    with pytest.warns(DataWarning, match="9 of 60 rows"):
        regressor = GPRegressor(**EXACT).fit(X, holes)
    assert regressor.report_.dropped == 9
    whole = np.isfinite(holes)
    expected = GPRegressor(**EXACT).fit(X[whole], Y[whole]).predict(NEW)
    np.testing.assert_array_equal(regressor.predict(NEW), expected)
    with pytest.warns(DataWarning):
        assert regressor.update(X[:8], holes[:8]).report_.rows == 51 + 6
    with pytest.raises(InputError, match="nothing to learn"):
        GPRegressor().fit(X, np.full(N, np.nan))


def test_what_is_refused() -> None:
    holes = X.copy()
    holes[3, 1] = np.nan
    cases: list[tuple[Any, Any, str]] = [
        (holes, Y, "contains NaN"),
        (X, np.r_[np.inf, Y[1:]], "contains infinity"),
        (X[:, 0], Y, "Reshape your data"),
        (X, Y[1:], "one row for each"),
        (X, np.zeros((N, 1, 1)), "dim 3"),
        (X, ["a"] * N, "could not convert"),
        (X, None, "requires y"),
        (X[:0], Y[:0], "0 sample"),
    ]
    for points, targets, words in cases:
        with pytest.raises(ValueError, match=words):
            GPRegressor().fit(points, targets)
    with pytest.raises(ValueError, match="contains NaN"):
        GPRegressor(**EXACT).fit(X, Y).predict(holes)
    with pytest.raises(MemoryLimitError, match="memory_limit"):
        GPRegressor(memory_limit="1MB").fit(X, Y)
    with pytest.raises(InputError, match="`y` spans more"):
        ExactGP().fit(X, np.where(np.arange(N) > 0, 1.7e308, -1.7e308))
    far = GPRegressor(**CG).fit(X, Y)
    with pytest.raises(InputError, match="overflows double"):
        far.predict(np.full((1, 2), 1e200))


WRONG: list[dict[str, Any]] = [
    *({"kernel": "none"}, {"kernel": 3}, {"kernel": RBF([1.0, 1.0, 1.0])}, {"ard": "no"}),
    *(
        {"lengthscale": [1.0, 2.0]},
        {"noise": None},
        {"noise_floor": 0.0},
        {"training__tol": "small"},
        {"solve__tol": math.nan},
        {"variances": "local"},
    ),
    *({"training__steps": 2.5}, {"training__steps": True}, {"solve__rank": -1}, {"solve__rank": 1.5}),
    *({"threads": 0}, {"threads": "all"}, {"checkpoint": 3}),
    *({"solve__preconditioner": 3}, {"solve__preconditioner": "none"}),
    *({"priors": 3}, {"memory_limit": []}, {"memory_limit": "much"}, {"precision": 3}),
    *({"backend": "none"}, {"method": []}, {"device": "tpu"}, {"mean": "quadratic"}),
]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_a_parameter_that_cannot_be_is_named(wrong: dict[str, Any]) -> None:
    name = "lengthscale" if isinstance(wrong.get("kernel"), RBF) else next(iter(wrong))
    with pytest.raises(InputError, match=f"`{name}`"):
        GPRegressor(**CG).set_params(**wrong).fit(X, Y)


# -------------------------------------------------------------------------------------------------- files


@BOTH
def test_a_file_gives_the_same_regressor(options: dict[str, Any], tmp_path: Path) -> None:
    kernel = 1.0 * RBF([1.0, 1.0]) + White(0.01)
    regressor = GPRegressor(kernel, **options).fit(X, Y)
    regressor.save(str(tmp_path / "m"))
    loaded = halfgp.load(str(tmp_path / "m"))
    assert isinstance(loaded, GPRegressor)
    for one, other in zip(
        loaded.predict(NEW, return_std=True), regressor.predict(NEW, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    assert loaded.history_ == regressor.history_
    assert loaded.report_ == regressor.report_
    assert loaded.noise_ == regressor.noise_
    assert loaded.n_features_in_ == 2
    assert not hasattr(loaded, "feature_names_in_")
    same = {name: value for name, value in regressor.get_params().items() if name != "kernel"}
    assert {name: value for name, value in loaded.get_params().items() if name != "kernel"} == same
    # A fit of the loaded one begins where the first began.
    np.testing.assert_array_equal(clone(loaded).fit(X, Y).predict(NEW), regressor.predict(NEW))


def test_files_that_are_none(fitted: GPRegressor, tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    fitted.save(good)
    bad.write_bytes(good.read_bytes()[:-100])
    with pytest.raises(FileError, match="damaged"):
        halfgp.load(bad)
    joblib.dump(fitted, bad)
    with pytest.raises(FileError, match="not a halfgp model"):
        halfgp.load(bad)
    save_file({"x": torch.zeros(1)}, bad)
    with pytest.raises(FileError, match="not one of halfgp"):
        halfgp.load(bad)
    with safe_open(good, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        later = {**file.metadata(), "format_version": str(FORMAT_VERSION + 1)}
    save_file(tensors, bad, metadata=later)
    with pytest.raises(FileError, match="upgrade"):
        halfgp.load(bad)
    for names in (b'\\"feature_names\\": 1234', b'\\"feature_names\\": ["]'):
        bad.write_bytes(good.read_bytes().replace(b'\\"feature_names\\": null', names))
        with pytest.raises(FileError, match=r"feature_names|damaged"):
            halfgp.load(bad)
    with pytest.raises(FileError, match="no file"):
        halfgp.load(tmp_path / "none")
    with pytest.raises(FileError, match="no directory"):
        fitted.save(tmp_path / "none" / "m")


def test_a_fit_that_fails_leaves_an_earlier_model_as_it_was() -> None:
    frame = pd.DataFrame(X, columns=["a", "b"])
    regressor = GPRegressor(**CG).fit(frame, Y)
    before = regressor.predict(frame)
    wide = np.concatenate([X, X], axis=1)
    for noise in (-np.ones(len(Y)), np.ones(3)):
        with pytest.raises(InputError, match="`noise`"):
            regressor.fit(wide, Y, noise=noise)
    assert regressor.n_features_in_ == 2
    assert list(regressor.feature_names_in_) == ["a", "b"]
    np.testing.assert_array_equal(regressor.predict(frame), before)
    fresh = GPRegressor(noise=-1)
    with pytest.raises(InputError, match="`noise`"):
        fresh.fit(X, Y)
    assert not hasattr(fresh, "n_features_in_")


def test_integers_that_would_be_rounded_are_refused() -> None:
    many = (np.arange(len(Y)) + 2**53).reshape(-1, 1)
    for points in (many, pd.DataFrame({"id": many[:, 0], "a": X[:, 0]})):
        with pytest.raises(InputError, match="`X` must hold numbers that float64 has; got 9007199254740993"):
            GPRegressor(**CG).fit(points, Y)
