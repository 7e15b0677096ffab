"""The report: one page that needs nothing else, and in which nothing from a file is more than text."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from contracts.outline import Outline

from halfgp import RBF, Linear
from halfgp.compact import COMPACT
from halfgp.errors import FileError
from halfgp.json_text import as_json
from halfgp.model import ExactGP
from halfgp.replacement import write_whole
from halfgp.report import Evaluation, build_page, words
from halfgp.report.pictures import VARIABLES, _columns, drawn, embedded
from halfgp.report.summary import how_it_was_fitted, leave_one_out_scores, summarise, training_rows

pytest.importorskip("matplotlib")

HOSTILE = ("<script>alert(1)</script>", '" onload="alert(1)', "$x^$ &amp; ${title}")
HOSTILE_TARGET = "</style><img src=x onerror=alert(1)> 標高 $y$"


def make_rows(rows: int, seed: int, features: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, features))
    return X, 100 + 20 * np.sin(X[:, 0]) + rng.standard_normal(rows)


def page_of(gp: ExactGP, X: np.ndarray, y: np.ndarray, **options: str) -> str:
    names = tuple(f"x{k}" for k in range(X.shape[1]))
    return build_page(gp, Evaluation.of(gp, X, y, feature_names=names, target_name="y", **options))


@pytest.fixture(scope="module")
def gp() -> ExactGP:
    return ExactGP().fit(*make_rows(60, 0))


@pytest.fixture(scope="module")
def solved() -> ExactGP:
    return ExactGP(method="cg", training__subset=0, training__steps=2).fit(*make_rows(80, 0))


@pytest.fixture(scope="module")
def page(gp: ExactGP) -> str:
    return page_of(gp, *make_rows(40, 1), model="m.safetensors", data="test.csv")


@pytest.fixture(scope="module")
def page_of_solves(solved: ExactGP) -> str:
    return page_of(solved, *make_rows(40, 1))


def test_a_page_has_its_sections(page: str) -> None:
    outline = Outline(page)
    assert outline.tags.count("svg") == 6
    for word in (
        "m.safetensors on test.csv", "RMSE", "NLL", "CRPS", "inside 95 % intervals", "relevance", "noise",
        "leave-one-out", "Calibration", "Residuals", "Loss", "Numerical error", "Cholesky", "memory", "torch",
    ):  # fmt: skip
        assert word in outline.text


def test_both_calibrations_are_on_the_page(gp: ExactGP) -> None:
    X, y = make_rows(40, 1)
    evaluation = Evaluation.of(gp, X, y, feature_names=("a", "b", "c"), target_name="y")
    page = Outline(build_page(gp, evaluation))
    found = evaluation.scores
    assert found.coverage is not None
    assert found.interval_coverage is not None
    for level in (0.5, 0.9, 0.95):
        lower, upper = gp.predict_interval(X, level)
        inside = float(((lower <= y) & (y <= upper)).mean())
        assert found.interval_coverage[level] == inside
        assert f"{100 * inside:.1f} %; normal ones {100 * found.coverage[level]:.1f} %" in page.text
    assert "normal intervals" in page.text
    assert (np.diff(evaluation.inside) >= 0).all()


def test_a_page_about_solves_shows_them(page_of_solves: str) -> None:
    page = Outline(page_of_solves)
    assert page.tags.count("svg") == 7
    assert "passes over K" in page.text
    assert "tolerance" in page.text


def test_a_page_needs_nothing_else(page_of_solves: str) -> None:
    text, page = page_of_solves, Outline(page_of_solves)
    assert "script" not in page.tags
    assert "link" not in page.tags
    assert all(reference.startswith("#") for reference in page.references)
    assert not re.search(r"url\((?!#)", text)
    assert "@import" not in text
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text


def test_ids_are_unique_and_every_reference_is_there(page_of_solves: str) -> None:
    text, page = page_of_solves, Outline(page_of_solves)
    assert len(page.ids) == len(set(page.ids))
    used = {reference[1:] for reference in page.references} | set(re.findall(r"url\(#([^)]+)\)", text))
    assert used <= set(page.ids)


def test_names_from_files_are_text(gp: ExactGP) -> None:
    X, y = make_rows(40, 1)
    evaluation = Evaluation.of(
        gp, X, y, feature_names=HOSTILE, target_name=HOSTILE_TARGET, model="<b>&.model", data="</title>.csv"
    )
    page = Outline(build_page(gp, evaluation))
    assert not {"script", "img", "b"} & set(page.tags)
    assert not page.handlers
    for text in (*HOSTILE, HOSTILE_TARGET, "<b>&.model", "</title>.csv"):
        assert text in page.text


def test_colours_and_font_are_those_of_the_page(page: str) -> None:
    svg = page[page.index("<svg") :]
    assert "var(--accent)" in svg
    assert "DejaVu" not in svg
    assert not any(colour in svg for colour in VARIABLES)


def test_the_same_model_and_rows_give_the_same_page(solved: ExactGP, page_of_solves: str) -> None:
    assert page_of(solved, *make_rows(40, 1)) == page_of_solves


def test_rows_that_were_trained_on_are_noticed(gp: ExactGP) -> None:
    X, y = make_rows(60, 0)
    assert training_rows(gp, X[:7]) == 7
    assert training_rows(gp, X + 1e-9) == 0
    assert "100 % of the scored rows were trained on" in page_of(gp, X, y)
    assert "trained on" not in page_of(gp, *make_rows(40, 1))


def test_rows_of_a_model_of_ranks_are_noticed_also_after_an_update(gp: ExactGP) -> None:
    """They are held in single, and so are new ones."""
    fitted = gp.fitted
    problem = fitted.posterior.problem
    compact = replace(problem, points=problem.points.to(COMPACT))
    posterior = replace(fitted.posterior, equations=replace(fitted.posterior.equations, problem=compact))
    model = ExactGP.restored(gp.settings, replace(fitted, posterior=posterior))
    X, more = make_rows(60, 0)[0], make_rows(10, 3)
    assert training_rows(model, X[:7]) == 7
    model.update(*more)
    assert training_rows(model, np.concatenate([X[:7], more[0]])) == 17


@pytest.mark.parametrize("rows", [1, 2])
def test_few_rows(gp: ExactGP, rows: int) -> None:
    X, y = make_rows(rows, 1)
    assert "RMSE" in page_of(gp, X, y)
    assert "–" in page_of(gp, X, np.full(rows, 3.0))  # no share of a variance that is zero


def test_many_rows_are_sampled(gp: ExactGP) -> None:
    page = page_of(gp, *make_rows(3000, 1))
    assert "A random 1,000 of 3,000 rows." in page
    assert len(page) < 1_000_000


def test_other_kernels_and_no_training() -> None:
    X, y = make_rows(40, 0)
    composed = ExactGP(RBF() + Linear(), training__subset_iterations=0).fit(X, y)
    page = Outline(page_of(composed, *make_rows(20, 1)))
    assert "no lengthscale of its own" in page.text
    assert "was not trained" in page.text
    assert "RBF" in page.text


def test_a_summary_is_in_the_units_of_its_columns() -> None:
    X, y = make_rows(200, 0, features=2)
    plain = summarise(ExactGP().fit(X, y), ("a", "b"))
    scaled = summarise(ExactGP().fit(X * [1000.0, 1.0], 10 * y), ("a", "b"))
    assert plain.noise_std is not None
    assert scaled.noise_std is not None
    assert 0.7 < plain.noise_std < 1.4
    assert scaled.noise_std == pytest.approx(10 * plain.noise_std, rel=1e-3)
    assert scaled.signal_std == pytest.approx(10 * plain.signal_std, rel=1e-3)
    assert scaled.mean == pytest.approx(10 * plain.mean, rel=1e-3)
    a, b = plain.features[0].lengthscale, scaled.features[0].lengthscale
    assert a is not None
    assert b == pytest.approx(1000 * a, rel=1e-3)
    assert plain.by_relevance()[0].name == "a"


def test_leave_one_out_only_where_it_is_cheap(gp: ExactGP, monkeypatch: pytest.MonkeyPatch) -> None:
    found = leave_one_out_scores(gp)
    assert found is not None
    assert found.rows == 60
    monkeypatch.setattr("halfgp.report.summary.CHEAP_ROWS", 59)
    assert leave_one_out_scores(gp) is None


def test_how_it_was_fitted(gp: ExactGP, solved: ExactGP) -> None:
    assert gp.report is not None
    assert solved.report is not None
    assert "exact" in dict(how_it_was_fitted(gp.report))["training"]
    facts = dict(how_it_was_fitted(solved.report))
    assert "over K" in facts["solve"]
    assert "relative" in facts["residual"]
    assert "of a predictive deviation" in facts["numerical error"]
    unsolved = replace(solved.report, solved=False, error=3.0)
    assert dict(how_it_was_fitted(unsolved))["numerical error"].startswith("3")
    assert "NOT SOLVED" in dict(how_it_was_fitted(unsolved))["numerical error"]


def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    write_whole(path, "old")
    write_whole(path, "new €")
    assert path.read_text(encoding="utf-8") == "new €"
    with pytest.raises(FileError, match="cannot be written"):
        write_whole(tmp_path / "absent" / "page.html", "x")
    assert [p.name for p in tmp_path.iterdir()] == ["page.html"]


def test_short_logarithmic_axes_have_plain_numbers() -> None:
    short = drawn(lambda axes: axes.loglog([2000, 8000], [1e-7, 2e-7]))
    assert {"2,000", "4,000", "8,000", "2·10⁻⁷"} <= set(re.findall(">([^<>]+)</text>", short))
    long = drawn(lambda axes: axes.semilogy([1, 2], [1.0, 1e6]))
    assert "·10" not in long
    assert "1,000" not in long


def test_a_legend_has_as_many_columns_as_fit() -> None:
    assert _columns(["double", "single", "half", "bfloat16"]) == 4
    assert _columns(["blocks in single precision", "blocks in half precision", "plain"]) == 2
    assert _columns(["a label that is so long that none fits beside it, by far"] * 2) == 1


def test_json_is_strict_and_takes_arrays() -> None:
    document = {
        "a": np.array([1.0, np.inf]),
        "b": torch.ones(2),
        "c": (np.float64("nan"), Path("x")),
        1: True,
    }
    assert json.loads(as_json(document), parse_constant=pytest.fail) == {
        "a": [1.0, None], "b": [1.0, 1.0], "c": [None, "x"], "1": True,
    }  # fmt: skip


def test_pictures_are_named_for_who_cannot_see_them() -> None:
    svg = embedded(
        '<?xml?><svg width="1pt" height="2pt" viewBox="0 0 1 2"><g id="a"/><use xlink:href="#a"/></svg>', "n"
    )
    assert svg.startswith('<svg role="img" aria-label="n" viewBox')
    assert 'id="n-a"' in svg
    assert 'href="#n-a"' in svg


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (words.number(0.97771), "0.9777"),
        (words.number(-2.5), "−2.5"),
        (words.number(2.2e-7, 2), "2.2·10⁻⁷"),
        (words.number(None), "–"),
        (words.number(float("nan")), "–"),
        (words.number(float("-inf")), "−∞"),
        (words.duration(0.012), "12 ms"),
        (words.duration(3.21), "3.2 s"),
        (words.duration(75), "75 s"),
        (words.duration(600), "10 min"),
        (words.duration(9000), "2 h 30 min"),
        (words.size(999), "999 bytes"),
        (words.size(4.6e8), "460 MB"),
        (words.size(3e15), "3e+03 TB"),
        (words.percent(0.9534), "95.3 %"),
        (words.plural(1, "pass"), "1 pass"),
        (words.plural(2000, "pass"), "2,000 passes"),
        (words.plural(2, "row"), "2 rows"),
        (words.bar(1.0, 4), "████"),
        (words.bar(0.5, 4), "██"),
        (words.bar(0.03, 4), "▏"),
        (words.bar(0.0, 4), ""),
    ],
)
def test_numbers_in_words(text: str, expected: str) -> None:
    assert text == expected
