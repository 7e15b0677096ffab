"""A model comes back from its file to the last bit, or the file is refused in words."""

from __future__ import annotations

import functools
import json
import math
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from halfgp import (
    RBF,
    ExactGP,
    Gamma,
    LogNormal,
    Matern,
    Nystrom,
    Overall,
    PivotedCholesky,
    Precision,
    SparseInverseCholesky,
    White,
)
from halfgp.archive import load_model, save_model
from halfgp.archive.settings_json import NOT_STORED
from halfgp.backends.reference import ReferenceBackend
from halfgp.errors import FileError, InputError, NotFittedError
from halfgp.persistence import FORMAT_VERSION, _checksum, read_file, write_file
from halfgp.prediction import Variances
from halfgp.settings import SolveOptions, TrainingOptions, VarianceOptions

N = 120
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, 2))
Y = np.sin(2 * X[:, 0]) + 0.1 * RNG.standard_normal(N)
NEW = RNG.standard_normal((30, 2)) * 1.5
QUICK: dict[str, Any] = {"training__subset": 40, "training__subset_iterations": 4, "training__steps": 2}
CG: dict[str, Any] = {**QUICK, "method": "cg"}


def assert_same_bits(one: ExactGP, other: ExactGP) -> None:
    for question in (
        {"return_std": True, "return_error": True},
        {"return_cov": True},
        {"include_noise": False},
    ):
        first, second = one.predict(NEW, **question), other.predict(NEW, **question)  # type: ignore[arg-type]
        for a, b in zip(_flatten(first), _flatten(second), strict=True):
            np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(one.sample(NEW, 2, seed=3), other.sample(NEW, 2, seed=3))


def _flatten(value: Any) -> list[Any]:
    return [part for inner in value for part in _flatten(inner)] if isinstance(value, tuple) else [value]


MODELS: dict[str, dict[str, Any]] = {
    "cholesky": {**QUICK, "method": "cholesky"},
    "cg with a factor": {**CG, "variances__method": "cholesky"},
    "cg with neighbours": {**CG, "variances__method": "local", "variances__neighbours": 10},
    "every object": {
        **CG,
        "kernel": 1.5 * RBF([1.0, 2.0]) + Matern(0.5, active_dims=[1]) + White(0.01),
        "solve__preconditioner": PivotedCholesky(rank=20),
        "precision": Precision.resolve("half"),
        "priors": {
            "noise": Gamma(1.5, 2.0),
            "outputscale": LogNormal(1.0, 2.0),
            "lengthscale": Overall(LogNormal(1.0, 0.5)),
        },
        "backend": ReferenceBackend(),
        "variances": VarianceOptions("local"),
        "training": TrainingOptions(probes=7, tol=0.1),
        "solve": SolveOptions(tol=1e-3),
        "memory_limit": "2 GB",
        "mean": "zero",
    },
    "neighbours": {**CG, "solve__preconditioner": SparseInverseCholesky(neighbours=5, landmarks=3, seed=2)},
    "every other": {
        **CG,
        "priors": None,
        "solve__preconditioner": Nystrom(rank=9, seed=2),
        "solve__rank": 3,
        "threads": 1,
    },
}


@functools.cache
def fitted(name: str, order: Any = "C") -> ExactGP:
    """Of these options; for tests that leave it as it is."""
    return ExactGP(**MODELS[name]).fit(np.asarray(X, order=order), Y)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("order", ["C", "F"])
def test_predictions_are_the_same_to_the_last_bit(name: str, order: Any, tmp_path: Path) -> None:
    model = fitted(name, order)
    save_model(model, tmp_path / "m", {"mine": [1, None]})
    loaded, extra = load_model(tmp_path / "m")
    assert extra == {"mine": [1, None]}
    assert_same_bits(model, loaded)
    assert loaded.log_marginal_likelihood() == model.log_marginal_likelihood()
    assert loaded.history == model.history
    assert loaded.report == model.report
    for field, value in model.settings.as_dict().items():
        if field in (*NOT_STORED, "kernel"):
            continue
        if field in ("precision", "backend") and not isinstance(value, str):
            value = value.name
        assert getattr(loaded.settings, field) == value
    assert repr(loaded.settings.kernel) == repr(model.settings.kernel)


def test_a_file_of_a_file_holds_the_same(tmp_path: Path) -> None:
    save_model(fitted("every object"), tmp_path / "one")
    save_model(load_model(tmp_path / "one")[0], tmp_path / "two")
    one, two = (read_file(tmp_path / name, "model") for name in ("one", "two"))
    assert one.header == two.header
    assert set(one.tensors) == set(two.tensors)
    assert all(torch.equal(one.tensors[name], two.tensors[name]) for name in one.tensors)


@pytest.mark.parametrize("name", ["cholesky", "cg with neighbours"])
def test_several_targets_and_the_solve(name: str, tmp_path: Path) -> None:
    model = ExactGP(**MODELS[name]).fit(X, np.stack([Y, 3 * Y + X[:, 1]], axis=1))
    save_model(model, tmp_path / "m")
    loaded, _ = load_model(tmp_path / "m")
    assert_same_bits(model, loaded)
    assert loaded.predict(NEW).mean.shape == (len(NEW), 2)
    assert str(loaded.posterior.solve) == str(model.posterior.solve)


@pytest.mark.parametrize("name", ["cholesky", "cg with neighbours"])
def test_variances_of_the_rows_and_later_rows(name: str, tmp_path: Path) -> None:
    noise = RNG.uniform(0.01, 0.1, N)
    model = ExactGP(**MODELS[name]).fit(X, Y, noise)
    save_model(model, tmp_path / "m")
    loaded, _ = load_model(tmp_path / "m")
    assert_same_bits(model, loaded)
    for one in (model, loaded):  # it is not only the predictions that go on
        one.update(NEW, NEW[:, 0], noise[: len(NEW)])
    assert_same_bits(model, loaded)
    save_model(model, tmp_path / "m")
    assert_same_bits(model, load_model(tmp_path / "m")[0])


def test_numbers_of_numpy_and_a_limit_in_floating_point(tmp_path: Path) -> None:
    options = {
        **CG,
        "training__steps": np.int64(1),
        "threads": np.int32(1),
        "training__tol": np.float32(0.5),
        "memory_limit": 2e9,
    }
    model = ExactGP(**options).fit(X, Y)
    save_model(model, tmp_path / "m")
    loaded, _ = load_model(tmp_path / "m")
    assert loaded.settings.as_dict() == model.settings.as_dict()
    assert_same_bits(model, loaded)


def test_a_target_of_one_column_stays_one(tmp_path: Path) -> None:
    model = ExactGP(**QUICK).fit(X, Y[:, None])
    save_model(model, tmp_path / "m")
    assert load_model(tmp_path / "m")[0].predict(NEW).mean.shape == (len(NEW), 1)


def test_what_is_not_finite_in_the_history_comes_back(tmp_path: Path) -> None:
    model = ExactGP(**QUICK).fit(X, Y)
    model.history[0] = replace(model.history[0], loss=float("inf"), loss_error=float("-inf"))
    save_model(model, tmp_path / "m")
    assert load_model(tmp_path / "m")[0].history[0] == model.history[0]


def test_priors_as_files_had_them_before_there_were_others(saved: Path, tmp_path: Path) -> None:
    stored = read_file(saved, "model")
    stored.header["settings"]["priors"] = {"noise": {"concentration": 1.5, "rate": 2.0}}
    write_file(tmp_path / "m", "model", stored.header, stored.tensors)
    loaded, _ = load_model(tmp_path / "m")
    assert loaded.settings.priors == {"noise": Gamma(1.5, 2.0)}
    assert_same_bits(load_model(saved)[0], loaded)


def sixth_format(header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Products looked at all covariances, and nobody told."""
    del header["report"]["skipped"]


def test_a_file_of_the_sixth_format_left_nothing_out(tmp_path: Path) -> None:
    model = ExactGP(**MODELS["cg with neighbours"]).fit(X, Y)
    save_model(model, tmp_path / "new")
    loaded, _ = load_model(rewrite(tmp_path / "new", tmp_path / "old", sixth_format, format_version="6"))
    assert loaded.report == replace(model.report, skipped=0.0)
    assert_same_bits(model, loaded)


def fifth_format(header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Some settings that are in groups now stand on the first level."""
    sixth_format(header, tensors)
    settings = header["settings"]
    for group, names in {
        "training": ("subset", "subset_iterations", "steps"),
        "solve": ("preconditioner", "rank"),
    }.items():
        settings.update({name: settings[group].pop(name) for name in names})


@pytest.mark.parametrize("name", MODELS)
def test_a_file_of_the_fifth_format_is_the_same_model(name: str, tmp_path: Path) -> None:
    model = fitted(name)
    save_model(model, tmp_path / "new")
    loaded, _ = load_model(rewrite(tmp_path / "new", tmp_path / "old", fifth_format, format_version="5"))
    assert loaded.settings.training == model.settings.training
    assert loaded.settings.solve == model.settings.solve
    assert loaded.report == model.report
    assert_same_bits(model, loaded)


def fourth_format(header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Without residuals of rows that were left out."""
    fifth_format(header, tensors)
    del tensors["residuals"]


@pytest.mark.parametrize("name", MODELS)
def test_a_file_of_the_fourth_format_finds_its_residuals(name: str, tmp_path: Path) -> None:
    model = fitted(name)
    save_model(model, tmp_path / "new")
    loaded, _ = load_model(rewrite(tmp_path / "new", tmp_path / "old", fourth_format, format_version="4"))
    assert_same_bits(model, loaded)
    # Of their errors no more is known than a bound, by which quantiles differ.
    error = model.report.error * model.predict(NEW, return_std=True).std
    for new, old in zip(
        model.predict_interval(NEW, [0.5, 0.99]), loaded.predict_interval(NEW, [0.5, 0.99]), strict=True
    ):
        assert (np.abs(old - new) <= error + 1e-4).all()
    save_model(loaded, tmp_path / "again")
    assert len(read_file(tmp_path / "again", "model").tensors["residuals"]) == N


def third_format(header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """What a posterior of the only kind knows stands in the header itself, and all settings on one level."""
    fourth_format(header, tensors)
    posterior = header.pop("posterior")
    assert posterior.pop("kind") == "exact"
    header.update(posterior)
    settings = header["settings"]
    training, solve, variances = (settings.pop(name) for name in ("training", "solve", "variances"))
    settings.update(training)
    settings.update(test_tol=solve["tol"], test_max_iterations=solve["max_iterations"])
    settings.update(unsolved=solve["unsolved"], variance=variances["method"])
    settings.update(neighbours=variances["neighbours"], calibrate=variances["calibrate"])


@pytest.mark.parametrize("name", MODELS)
def test_a_file_of_the_third_format_is_the_same_model(name: str, tmp_path: Path) -> None:
    model = fitted(name)
    save_model(model, tmp_path / "new")
    loaded, _ = load_model(rewrite(tmp_path / "new", tmp_path / "old", third_format, format_version="3"))
    assert loaded.report == model.report
    assert_same_bits(model, loaded)


@pytest.mark.parametrize("name", ["cholesky", "cg with neighbours"])
def test_a_file_of_the_first_format_is_solved_again(name: str, tmp_path: Path) -> None:
    """It does not tell how exact its weights are."""
    model = fitted(name)
    save_model(model, tmp_path / "new")

    def first_format(header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        third_format(header, tensors)
        header["method"] = header["report"]["method"]
        for field in ("route", "error", "solved"):
            del header["report"][field]
        del header["settings"]["unsolved"], header["accuracy"]
        for tensor in ("x.constant", "x.held", "floor", "shares", "variance_known"):
            del tensors[tensor]
        if header["method"] == "cholesky":
            header["solve"] = None
            del tensors["solve.residual_norms"], tensors["solve.history"]

    loaded, _ = load_model(rewrite(tmp_path / "new", tmp_path / "old", first_format, format_version="1"))
    assert loaded.report.solved
    for new, old in zip(
        model.predict(NEW, return_std=True)[:2], loaded.predict(NEW, return_std=True)[:2], strict=True
    ):
        np.testing.assert_allclose(old, new, rtol=1e-3)


@pytest.mark.parametrize("name", MODELS)
def test_a_file_of_the_second_format_predicts_as_it_did(name: str, tmp_path: Path) -> None:
    """It has one share for all targets, and a scale of local variances whatever they are."""
    model = fitted(name)
    posterior: Any = model.posterior
    shrinkage = replace(posterior.variances.shrinkage, known=math.inf)
    posterior = replace(posterior, variances=replace(posterior.variances, shrinkage=shrinkage))
    model = ExactGP.restored(model.settings, replace(model.fitted, posterior=posterior))
    save_model(model, tmp_path / "new")

    def second_format(header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        third_format(header, tensors)
        header["accuracy"]["share"] = float(tensors["shares"].max())
        del tensors["shares"], tensors["variance_known"]

    loaded, _ = load_model(rewrite(tmp_path / "new", tmp_path / "old", second_format, format_version="2"))
    assert loaded.report == model.report
    assert loaded.posterior.accuracy.share == model.posterior.accuracy.share
    for new, old in zip(
        model.predict(NEW, return_std=True)[:2], loaded.predict(NEW, return_std=True)[:2], strict=True
    ):
        np.testing.assert_array_equal(old, new)


def test_intervals_are_the_same_to_the_last_bit_and_nothing_is_left_out_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = fitted("cg with neighbours")
    save_model(model, tmp_path / "m")
    loaded, _ = load_model(tmp_path / "m")
    monkeypatch.delattr(Variances, "left_out")
    for new, old in zip(model.predict_interval(NEW), loaded.predict_interval(NEW), strict=True):
        np.testing.assert_array_equal(old, new)


def test_a_recipe_of_the_eighth_format_has_rows_that_share_no_neighbours(tmp_path: Path) -> None:
    recipe = SparseInverseCholesky(neighbours=5, landmarks=3, seed=2, group=1)
    save_model(ExactGP(**CG, solve__preconditioner=recipe).fit(X, Y), tmp_path / "new")

    def eighth_format(header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        del header["settings"]["solve"]["preconditioner"]["fields"]["group"]

    old = rewrite(tmp_path / "new", tmp_path / "old", eighth_format, format_version="8")
    assert load_model(old)[0].settings.solve.preconditioner == recipe


# ---------------------------------------------------------------------------------------------- refusals


class Homemade:
    def build(self, operator: object) -> Any:
        return PivotedCholesky(rank=5).build(operator)  # type: ignore[arg-type]


class Flat:
    def log_density(self, value: Tensor) -> Tensor:
        return torch.zeros_like(value)


def test_what_cannot_be_saved_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFittedError, match="Call `fit` first"):
        save_model(ExactGP(), tmp_path / "m")
    with pytest.raises(InputError, match=r"`solve__preconditioner` must be one of .*Nystrom.*got Homemade"):
        save_model(ExactGP(**CG, solve__preconditioner=Homemade()).fit(X, Y), tmp_path / "m")
    with pytest.raises(InputError, match=r"`priors` must be one of Gamma, .* to be stored; got Flat"):
        save_model(ExactGP(**QUICK, priors={"noise": Flat()}).fit(X, Y), tmp_path / "m")
    broken = ExactGP(**QUICK).fit(X, Y)
    broken.posterior.weights[3] = float("nan")
    with pytest.raises(InputError, match="must be finite to be saved; its weights"):
        save_model(broken, tmp_path / "m")
    with pytest.raises(InputError, match="JSON"):
        save_model(fitted("cholesky"), tmp_path / "m", {"a": object()})
    assert not (tmp_path / "m").exists()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("archive") / "m"
    save_model(ExactGP(**MODELS["every object"]).fit(X[:40], Y[:40]), path)
    return path


Change = Callable[[dict[str, Any], dict[str, Tensor]], Any]


def rewrite(source: Path, target: Path, change: Change, **metadata: str) -> Path:
    """The same file with something changed in its header or tensors."""
    with safe_open(source, framework="pt") as file:
        about = dict(file.metadata())
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    header = json.loads(about["header"])
    change(header, tensors)
    about = {**about, "header": json.dumps(header), **metadata}
    del about["checksum"]
    if about["format_version"] != "1":
        about["checksum"] = _checksum(about, tensors)
    save_file(tensors, target, metadata=about)
    return target


def put(*path: Any, value: Any) -> Change:
    def change(header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        inner: Any = header
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value

    return change


def tensor(name: str, change: Callable[[Tensor], Tensor]) -> Change:
    return lambda header, tensors: tensors.update({name: change(tensors[name])})


def spoil(value: float) -> Callable[[Tensor], Tensor]:
    return lambda t: t.index_fill(0, torch.tensor([0]), value)


OVERALL = ("settings", "priors", "lengthscale", "fields", "density")
DAMAGE: dict[str, tuple[Change, str]] = {
    "no settings": (lambda h, t: h.pop("settings"), "header"),
    "unknown field": (put("more", value=1), "header"),
    "no kernel setting": (lambda h, t: h["settings"].pop("kernel"), "settings"),
    "foreign kernel": (put("kernel", "class", value="os.system"), "kernel.*class"),
    "kernel of other columns": (put("kernel", value={"class": "RBF"}), "kernel"),
    "recipe": (
        put("settings", "solve", "preconditioner", "class", value="Popen"),
        "solve.preconditioner.class",
    ),
    "recipe field": (put("settings", "solve", "preconditioner", "fields", "rank", value="9"), "rank"),
    "recipe value": (put("settings", "solve", "preconditioner", "fields", "rank", value=-9), "`rank`"),
    "prior": (put("settings", "priors", "noise", value=[1, 2]), "settings.priors.noise"),
    "prior class": (
        put("settings", "priors", "noise", "class", value="Popen"),
        "settings.priors.noise.class",
    ),
    "prior value": (put("settings", "priors", "noise", "fields", "rate", value=-1.0), "Gamma"),
    "prior field": (
        put("settings", "priors", "outputscale", "fields", "mode", value="1"),
        "outputscale.*mode",
    ),
    "prior of a prior": (
        put(*OVERALL, value={"class": "Overall", "fields": {}}),
        "settings.priors.lengthscale.fields.density.class",
    ),
    "prior without a density": (put(*OVERALL[:-1], value={}), "settings.priors.lengthscale.fields"),
    "bool for int": (put("settings", "training", "steps", value=True), "settings.training.steps"),
    "null for bool": (put("settings", "ard", value=None), "settings.ard"),
    "text for number": (put("settings", "training", "tol", value="small"), "settings.training.tol"),
    "huge integer": (put("settings", "training", "tol", value=10**400), "settings.training.tol"),
    "no group": (put("settings", "solve", value=None), "settings.solve"),
    "setting out of range": (put("settings", "training", "tol", value=-1.0), "`training__tol`"),
    "unknown method": (put("report", "method", value="magic"), "`report.method`"),
    "unknown route": (put("report", "route", value="magic"), "`report.route`"),
    "accuracy": (put("posterior", "accuracy", "rounding", value="small"), "accuracy.rounding"),
    "accuracy in half": (put("posterior", "accuracy", "precision", value="half"), "accuracy.precision"),
    "no solve": (put("posterior", "solve", value=None), "`solve`"),
    "status": (put("posterior", "solve", "status", value="fine"), "solve.status"),
    "too many columns": (
        put("posterior", "solve", "column_status", value=["converged"] * 2),
        "column_status",
    ),
    "passes": (put("posterior", "solve", "passes_by_precision", value={"half": 1.5}), "passes_by_precision"),
    "climbs": (put("posterior", "solve", "climbs", value=[{"iteration": 1}]), "solve.climbs.0"),
    "no posterior": (put("posterior", value=None), "`posterior`"),
    "kind of posterior": (put("posterior", "kind", value="os.system"), "posterior.kind"),
    "report": (put("report", value=None), "`report`"),
    "report of other rows": (put("report", "rows", value=41), "report.rows"),
    "history": (put("history", value={}), "`history`"),
    "step": (put("history", 0, "loss", value=[1.0]), "history.0.loss"),
    "step values": (put("history", 0, "hyperparameters", value={"noise": "x"}), "history.0.hyperparameters"),
    "squeeze": (put("squeeze", value=1), "`squeeze`"),
    "extra": (put("extra", value=[]), "`extra`"),
    "mean without tensor": (put("settings", "mean", value="constant"), "`mean`"),
    "missing tensor": (lambda h, t: t.pop("weights"), "weights"),
    "unknown tensor": (lambda h, t: t.update(more=torch.zeros(1)), "more"),
    "no noise": (lambda h, t: t.pop("noise"), "`noise`"),
    "two noises": (lambda h, t: t.update(fixed_noise=torch.ones(40).double()), "`noise`"),
    "noise below its bound": (tensor("noise", spoil(0.0)), "`noise`"),
    "noise not a number": (tensor("noise", spoil(float("nan"))), "`noise`"),
    "negative bound": (tensor("noise", lambda t: t.new_tensor([1.0, -1.0, 2.0])), "`noise`"),
    "NaN in x": (tensor("x", spoil(float("nan"))), "`x`"),
    "infinity in weights": (tensor("weights", spoil(float("inf"))), "`weights`"),
    "fewer weights": (tensor("weights", lambda t: t[1:].clone()), "`weights`"),
    "flat correction": (tensor("correction", lambda t: t[:, 0].clone()), "`correction`"),
    "half x": (tensor("x", lambda t: t.half()), "`x`"),
    "other columns": (tensor("x", lambda t: t[:, :1].clone()), "active|column"),
    "other rows": (tensor("y", lambda t: t[1:].clone()), "`y`"),
    "no rows": (
        lambda h, t: t.update({k: t[k][:0].clone() for k in ("x", "y", "weights", "correction")}),
        "empty",
    ),
    "scale": (tensor("x.scale", spoil(0.0)), "x.scale"),
    "scale of one": (tensor("x.scale", lambda t: t[:1].clone()), "x.scale"),
    "residual norms": (tensor("solve.residual_norms", lambda t: t.repeat(2)), "solve.residual_norms"),
    "residuals out of order": (tensor("residuals", spoil(1e9)), "`residuals`"),
    "flat residuals": (tensor("residuals", lambda t: t[:, 0].clone()), "`residuals`"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_every_field_is_checked(name: str, saved: Path, tmp_path: Path) -> None:
    change, words = DAMAGE[name]
    path = rewrite(saved, tmp_path / "bad", change)
    with pytest.raises(FileError, match=words) as caught:
        load_model(path)
    assert str(path) in str(caught.value)


def test_the_untouched_file_is_not_refused(saved: Path, tmp_path: Path) -> None:
    load_model(rewrite(saved, tmp_path / "good", lambda header, tensors: None))


def test_no_value_of_the_header_gets_past_unchecked(saved: Path, tmp_path: Path) -> None:
    """Whatever stands where a number, a text or a list should be: a model or a `FileError`, nothing else."""
    with safe_open(saved, framework="pt") as file:
        header = json.loads(file.metadata()["header"])

    def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        if isinstance(value, list | dict) and len(value):
            inner = value.items() if isinstance(value, dict) else list(enumerate(value))[:1]
            return [path, *(place for key, part in inner for place in places(part, (*path, key)))]
        return [path]

    refused = 0
    for place in places(header):
        if not place or place[0] == "extra":
            continue
        for value in (None, -1, "x", [[]], {}):
            path = rewrite(saved, tmp_path / "bad", put(*place, value=value))
            try:
                load_model(path)
            except FileError:
                refused += 1
    assert refused > 300


def test_foreign_newer_truncated_and_empty_files(saved: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    data = saved.read_bytes()
    for size in (0, 1, 7, 8, 100, len(data) // 2, len(data) - 1):
        bad.write_bytes(data[:size])
        with pytest.raises(FileError, match="bad"):
            load_model(bad)
    bad.write_bytes(struct.pack("<Q", 2**60) + data[8:])
    with pytest.raises(FileError, match="damaged"):
        load_model(bad)
    save_file({"x": torch.zeros(1)}, bad)
    with pytest.raises(FileError, match="not one of halfgp"):
        load_model(bad)
    nothing: Change = lambda header, tensors: None  # noqa: E731
    with pytest.raises(FileError, match="upgrade"):
        load_model(rewrite(saved, bad, nothing, format_version=str(FORMAT_VERSION + 1)))
    with pytest.raises(FileError, match="this is a checkpoint"):
        load_model(rewrite(saved, bad, nothing, kind="checkpoint"))
    with pytest.raises(FileError, match="no file"):
        load_model(tmp_path / "none")
