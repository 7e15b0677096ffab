"""A diagnosis: what is measured is right, what is carried over to all rows is near, and words say it."""

from __future__ import annotations

import json
import math
import os
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from halfgp import RBF, GPRegressor, KernelOperator, Linear, Matern, White
from halfgp.analysis import Diagnosis, diagnose, effective_dimension, eigenvalues, entry_error_norm
from halfgp.analysis.diagnosis import RANKS
from halfgp.errors import DataWarning, InputError
from halfgp.model import ExactGP

REFERENCE = {"backend": "reference", "ranks": (0, 15)}


def problem(n: int = 400, d: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, np.sin(2 * X[:, 0]) + X[:, -1] + 0.3 * rng.standard_normal(n)


def by_name(found: Diagnosis) -> dict[str, object]:
    return {entry.name: entry for entry in found.formats}


@pytest.fixture(scope="module")
def found() -> Diagnosis:
    return diagnose(*problem(), backend="reference")


def test_all_rows_are_measured_as_they_are(found):
    X, _ = problem()
    x = torch.from_numpy((X - X.mean(axis=0)) / X.std(axis=0))
    kernel, noise = Matern(1.5, [math.sqrt(3) / 2] * 3), 0.1  # where a fit starts
    assert (found.rows, found.sampled, found.dropped, found.features) == (400, 400, 0, 3)
    assert found.origin == "default"
    assert found.noise == noise
    values = eigenvalues(kernel, x)
    torch.testing.assert_close(found.eigenvalues, values / noise, rtol=1e-9, atol=1e-10)
    assert found.effective_dimension == pytest.approx(effective_dimension(values, noise), rel=1e-9)
    inputs = entry_error_norm(kernel, x, "half", rounding="inputs")
    assert by_name(found)["half inputs"].rho == pytest.approx(inputs / noise, rel=0.03)


def test_the_default_is_where_a_fit_starts():
    X, y = problem(60)
    start = ExactGP(training__subset_iterations=0).fit(X, y).hyperparameters
    given, default = (
        diagnose(X, y, start.kernel, float(start.noise.value), **REFERENCE),
        diagnose(X, y, **REFERENCE),
    )
    assert default.noise == pytest.approx(given.noise, rel=1e-6)
    torch.testing.assert_close(default.eigenvalues, given.eigenvalues, rtol=1e-6, atol=1e-6)
    assert default.trials == given.trials


def test_formats_from_worst_to_best(found):
    bfloat16, half, inputs, single = found.formats
    assert [entry.name for entry in found.formats] == [
        "bfloat16 entries", "half entries", "half inputs", "single"
    ]  # fmt: skip
    assert bfloat16.rho > half.rho >= 0.9 * inputs.rho > single.rho
    assert bfloat16.residual > half.residual > single.residual
    assert single.verdict == "safe"
    assert single.rho < 1e-3
    assert bfloat16.negligible >= half.negligible >= single.negligible
    assert half.vanishing == inputs.vanishing >= bfloat16.vanishing


def test_verdicts_follow_rho():
    X, y = problem(300, 1)
    verdicts = []
    for noise in (1.0, 0.03, 1e-5):
        entry = by_name(diagnose(X, y, "rbf", noise, **REFERENCE))["half entries"]
        expected = "safe" if entry.rho <= 0.1 else "inexact" if entry.residual < 1 else "unsafe"
        assert entry.verdict == expected
        verdicts.append(entry.verdict)
    assert verdicts == ["safe", "inexact", "unsafe"]


def test_the_residual_is_what_a_solve_in_the_format_leaves(found):
    X, y = problem()
    x, b = torch.from_numpy((X - X.mean(axis=0)) / X.std(axis=0)), torch.from_numpy((y - y.mean()) / y.std())
    kernel = 1.0 * Matern(1.5, [math.sqrt(3) / 2] * 3)
    options = {"noise": 0.1, "backend": "reference"}
    stored = KernelOperator(kernel, x, precision="half", storage="stored", **options).to_dense().double()
    exact = KernelOperator(kernel, x, precision="double", **options).to_dense()
    left = b - exact @ torch.linalg.solve(stored, b)
    assert by_name(found)["half entries"].residual == pytest.approx(float(left.norm() / b.norm()), rel=1e-3)


def test_a_sample_stands_for_all_rows():
    X, y = problem(1200, 3, seed=1)
    kernel = Matern(1.5, 1.2)
    whole = diagnose(X, y, kernel, 0.05, rows=1200, backend="reference", ranks=(0, 50))
    part = diagnose(X, y, kernel, 0.05, rows=300, backend="reference", ranks=(0, 50))
    assert (part.rows, part.sampled) == (1200, 300)
    assert len(part.eigenvalues) == 150
    assert part.effective_dimension == pytest.approx(whole.effective_dimension, rel=0.2)
    torch.testing.assert_close(part.eigenvalues[:5], whole.eigenvalues[:5], rtol=0.3, atol=0)
    for mine, theirs in zip(part.formats, whole.formats, strict=True):
        assert mine.rho == pytest.approx(theirs.rho, rel=0.5)
        if theirs.rho < 0.3:  # beyond it, one may be indefinite and the other not quite
            assert 0.4 < mine.residual / theirs.residual < 2.5
    for mine, theirs in zip(part.trials, whole.trials, strict=True):
        assert mine.iterations == pytest.approx(theirs.iterations, rel=0.4)


def test_outputscale_changes_nothing_but_with_the_noise():
    X, y = problem(200)
    once = diagnose(X, y, Matern(1.5, 0.5), 0.1, **REFERENCE)
    scaled = diagnose(X, y, 2.0**20 * Matern(1.5, 0.5), 2.0**20 * 0.1, **REFERENCE)
    assert scaled.effective_dimension == pytest.approx(once.effective_dimension, rel=1e-9)
    for mine, theirs in zip(scaled.formats, once.formats, strict=True):
        assert mine.rho == pytest.approx(theirs.rho, rel=1e-6)
        assert (mine.vanishing, mine.negligible) == (theirs.vanishing, theirs.negligible)


def test_white_is_noise():
    X, y = problem(200)
    inside = diagnose(X, y, Matern(1.5) + White(0.06), 0.04, **REFERENCE)
    beside = diagnose(X, y, Matern(1.5), 0.1, **REFERENCE)
    assert inside.noise == pytest.approx(0.1)
    assert inside.effective_dimension == pytest.approx(beside.effective_dimension, rel=1e-9)
    assert inside.trials == beside.trials


def test_noise_of_every_row():
    X, y = problem(200)
    one = diagnose(X, y, noise=0.1, **REFERENCE)
    same = diagnose(X, y, noise=np.full(200, 0.1), **REFERENCE)
    assert same.as_dict() == one.as_dict()
    uneven = diagnose(X, y, noise=np.linspace(0.1, 1.0, 200), **REFERENCE)
    assert uneven.noise == 0.1
    assert uneven.effective_dimension < one.effective_dimension


def test_a_fitted_model_brings_its_own():
    X, y = problem(150)
    X, y = 5 + 100 * X, 7 * y
    gp = GPRegressor().fit(X, y)
    of_model = diagnose(X, y, model=gp, **REFERENCE)
    of_values = diagnose(X, y, gp.kernel_, gp.noise_, **REFERENCE)
    assert (of_model.origin, of_values.origin) == ("fitted", "given")
    assert {**of_model.as_dict(), "origin": "given"} == of_values.as_dict()
    assert diagnose(X, y, model=gp.model_, **REFERENCE).as_dict() == of_model.as_dict()
    # New rows are scaled as those of the fit were.
    moved = diagnose(X[:100] + 500.0, model=gp, **REFERENCE)
    assert moved.effective_dimension == pytest.approx(
        diagnose(X[:100], model=gp, **REFERENCE).effective_dimension, rel=1e-6
    )


def test_a_model_whose_rows_have_variances():
    X, y = problem(100)
    variances = np.full(100, 0.05)
    gp = GPRegressor().fit(X, y, noise=variances)
    found = diagnose(X, y, noise=variances, model=gp, **REFERENCE)
    assert found.noise == pytest.approx(0.05 / y.var())
    with pytest.raises(InputError, match="`noise` must be given"):
        diagnose(X, y, model=gp)


def test_the_advised_rank_has_the_fewest_passes_or_nearly():
    X, y = problem(500, 2)
    hard = diagnose(X, y, "rbf", 1e-4, backend="reference")
    fewest = min(trial.passes for trial in hard.trials)
    chosen = next(trial for trial in hard.trials if trial.rank == hard.recommended_rank)
    assert chosen.passes <= 1.05 * fewest
    assert all(trial.passes > 1.05 * fewest for trial in hard.trials if trial.rank < chosen.rank)
    assert hard.recommended_rank > 0
    assert [trial.rank for trial in hard.trials] == list(RANKS)
    easy = diagnose(X, y, "rbf", 1e4, backend="reference")
    assert easy.recommended_rank == 0


def test_words_say_what_was_found(found):
    text = str(found)
    assert len(text.splitlines()) == len(found.sentences()) == 6
    assert "400 rows with 3 features, all of them measured" in text
    assert "Matérn 3/2 with lengthscale 0.866" in text
    assert f"is {found.effective_dimension:,.0f}." in text
    for entry in found.formats:
        assert re.search(rf"{entry.name} \(ρ = {re.escape(f'{entry.rho:.1g}')}\)", text, re.IGNORECASE)
    safe = text[: text.index(" safe.")]
    assert all(name in safe for name in found.safe_formats)
    assert "nan" not in text
    assert "None" not in text


@pytest.mark.parametrize("noise", [100.0, 0.03, 1e-6])
@pytest.mark.parametrize("rows", [60, 2000])
def test_words_for_every_outcome(noise, rows):
    X, y = problem(120, 1)
    text = str(diagnose(X, y, "rbf", noise, rows=rows, backend="reference"))
    assert all(line[0].isupper() or line[0].isdigit() for line in text.splitlines())
    assert all(line.endswith(".") for line in text.splitlines())
    assert ("unsafe" in text) == (noise == 1e-6)
    assert ("carried over" in text) == (rows == 60)


def test_kernels_in_words():
    X, y = problem(50)
    both = diagnose(X, y, 2.0 * RBF([0.5, 1.0, 4.0]) + Linear(), **REFERENCE)
    assert both.kernel == "RBF with lengthscales from 0.5 to 4 and linear"


def test_points_that_half_cannot_hold():
    X, y = problem(60, 1)
    found = diagnose(1e6 * X, y, RBF(1.0), standardise=False, **REFERENCE)
    half = by_name(found)["half inputs"]
    assert (half.rho, half.residual, half.verdict) == (math.inf, math.inf, "unsafe")
    assert "Half inputs cannot hold the points." in str(found)
    json.dumps(found.as_dict())
    pytest.importorskip("matplotlib")
    found.plot()


def test_rows_without_targets_are_left_out():
    X, y = problem(100)
    y[:10] = np.nan
    with pytest.warns(DataWarning, match="10 of 100"):
        found = diagnose(X, y, **REFERENCE)
    assert (found.rows, found.dropped) == (90, 10)
    assert found.effective_dimension == diagnose(X[10:], y[10:], **REFERENCE).effective_dimension


def test_without_targets_and_with_several():
    X, y = problem(100)
    assert diagnose(X, **REFERENCE).trials[0].iterations > 0
    both = diagnose(X, np.stack([y, -y], axis=1), **REFERENCE)
    assert both.trials == diagnose(X, y, **REFERENCE).trials


def test_the_same_seed_gives_the_same_diagnosis():
    X, y = problem(300)
    first, again, other = (diagnose(X, y, rows=100, seed=seed, **REFERENCE).as_dict() for seed in (0, 0, 1))
    assert first == again
    assert first != other


def test_as_dict_is_plain(found):
    document = json.loads(json.dumps(found.as_dict()))
    assert document["recommended_rank"] == found.recommended_rank
    assert document["safe_formats"] == list(found.safe_formats)
    spectrum = document["spectrum"]
    assert spectrum["index"][0] == 1
    assert spectrum["index"][-1] == 400
    assert len(spectrum["index"]) == len(set(spectrum["index"])) == len(spectrum["eigenvalue_over_noise"])
    assert spectrum["eigenvalue_over_noise"] == sorted(spectrum["eigenvalue_over_noise"], reverse=True)
    assert [entry["name"] for entry in document["formats"]] == [entry.name for entry in found.formats]


def test_a_picture_of_three_panels(found, tmp_path):
    pytest.importorskip("matplotlib")
    figure = found.plot()
    spectrum, shares, ranks = figure.axes
    curve, noise, *errors = spectrum.get_lines()
    np.testing.assert_allclose(np.sort(curve.get_ydata())[::-1], found.eigenvalues[found.eigenvalues > 0])
    assert list(noise.get_ydata()) == [1.0, 1.0]
    assert [line.get_ydata()[0] for line in errors] == [entry.rho for entry in found.formats]
    heights = [patch.get_height() for patch in shares.patches if patch.get_height() > 0]
    assert 100 * by_name(found)["half entries"].negligible in heights
    assert [label.get_text().rstrip("*") for label in ranks.get_xticklabels()] == [
        str(trial.rank) for trial in found.trials
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure.savefig(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes()[:4] == b"\x89PNG"


def test_mistakes_are_named():
    X, y = problem(50)
    constant = np.ones(50)
    for match, arguments, options in (
        ("`X` must be finite", (np.full((50, 2), np.nan), y), {}),
        ("`X` must have shape", (X[:, 0], y), {}),
        ("at least 8 rows", (X[:7], y[:7]), {}),
        ("`y` must have shape", (X, y[:-1]), {}),
        ("`y` must vary", (X, constant), {}),
        ("`y` must not hold infinity", (X, np.full(50, np.inf)), {}),
        ("`kernel` must be a kernel", (X, y, "mattern"), {}),
        ("`lengthscale` must be", (X, y, RBF([1.0, 2.0])), {}),
        ("`noise` must be finite", (X, y, None, -1.0), {}),
        ("`noise` must be positive", (X, y, None, 0.0), {}),
        ("`noise` must be a number", (X, y, None, np.ones(3)), {}),
        ("`rows` must be", (X, y), {"rows": 2}),
        ("`tol` must be", (X, y), {"tol": 0.0}),
        ("`ranks` must be", (X, y), {"ranks": (5, 15)}),
        ("exclude each other", (X, y, RBF()), {"model": GPRegressor()}),
        ("must be a fitted", (X, y), {"model": GPRegressor()}),
        ("must be a fitted", (X, y), {"model": "model.safetensors"}),
    ):
        with pytest.raises(InputError, match=match):
            diagnose(*arguments, **options)
    gp = ExactGP(training__subset_iterations=1).fit(X, y)
    with pytest.raises(InputError, match="must have 3 columns"):
        diagnose(X[:, :2], y, model=gp)
    with pytest.raises(InputError, match="must have 1 targets"):
        diagnose(X, np.stack([y, y], axis=1), model=gp)
    with pytest.raises(InputError, match="`noise` must be given"):
        diagnose(X, y, noise=0.1, model=gp)


@pytest.mark.data
def test_a_sample_of_real_rows_stands_for_more_of_them():
    from halfgp.datasets import load_uci

    directory = os.environ.get("HALFGP_DATA")
    if directory is None or not Path(directory, "uci", "protein").exists():
        pytest.skip("HALFGP_DATA has no uci/protein")
    data = load_uci("protein")
    rows = np.random.default_rng(0).permutation(len(data.y))[:1200]
    whole, part = (
        diagnose(data.X[rows], data.y[rows], rows=n, backend="reference", ranks=(0,)) for n in (1200, 300)
    )
    assert part.effective_dimension == pytest.approx(whole.effective_dimension, rel=0.2)
    for mine, theirs in zip(part.formats, whole.formats, strict=True):
        assert mine.rho == pytest.approx(theirs.rho, rel=0.5)
