"""`halfgp diagnose`: from a table, or a table and a model, to words, JSON and a picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import halfgp.cli.diagnose
from halfgp import GPRegressor
from halfgp.analysis import diagnose
from halfgp.archive import save_model
from halfgp.cli import app
from halfgp.cli.models import NamedModel
from halfgp.tables import write_table


def run(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": "100"})
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


def json_of(*arguments: object, code: int = 0) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(run(*arguments, "--json", code=code).stdout)
    return document


def columns(rows: int, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    wind, slope = rng.uniform(-2, 2, size=(2, rows))
    power = 50 + 10 * np.sin(wind) + 2 * slope + 0.5 * rng.standard_normal(rows)
    return {"wind": wind, "slope": slope, "power": power}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table and a model of it."""
    folder = tmp_path_factory.mktemp("files")
    write_table(folder / "data.csv", columns(120, 0))
    run("fit", folder / "data.csv", "-t", "power", "-o", folder / "model.safetensors", "--quiet")
    return folder


def flat(text: str) -> str:
    return " ".join(text.split())


def test_words_for_a_table(files: Path) -> None:
    shown = flat(run("diagnose", files / "data.csv", "--target", "power").stdout)
    for topic in ("data", "kernel", "precision", "pairs", "dimension", "rank"):
        assert topic in shown
    assert "120 rows with 2 features" in shown
    assert "where a fit starts" in shown
    assert "half entries (ρ =" in shown.lower()


def test_json_is_the_diagnosis(files: Path) -> None:
    document = json_of("diagnose", files / "data.csv", "-t", "power")
    table = columns(120, 0)
    expected = diagnose(np.stack([table["wind"], table["slope"]], axis=1), table["power"])
    assert document["effective_dimension"] == pytest.approx(expected.effective_dimension)
    assert document["recommended_rank"] == expected.recommended_rank
    assert document["words"]["precision"] == expected.sentences()["precision"]
    assert {entry["name"] for entry in document["formats"]} == {entry.name for entry in expected.formats}
    assert document["output"] is None


def test_a_model_brings_kernel_noise_and_target(files: Path) -> None:
    document = json_of("diagnose", files / "data.csv", "--model", files / "model.safetensors")
    gp = NamedModel.load(files / "model.safetensors").gp
    assert document["origin"] == "fitted"
    assert document["noise"] == pytest.approx(float(gp.hyperparameters.noise.value))
    assert "as fitted" in document["words"]["kernel"]


def test_options_reach_the_diagnosis(files: Path) -> None:
    data = (files / "data.csv", "-t", "power")
    noisy = json_of("diagnose", *data, "--noise", "2", "--kernel", "rbf", "--tol", "0.1", "--rows", "50")
    assert (noisy["noise"], noisy["tol"], noisy["sampled"], noisy["rows"]) == (2.0, 0.1, 50, 120)
    assert noisy["kernel"].startswith("RBF")
    assert json_of("diagnose", *data, "--drop", "slope")["features"] == 1
    assert json_of("diagnose", *data, "--features", "slope", "--threads", "1")["features"] == 1
    first, second = (json_of("diagnose", *data, "--rows", "50", "--seed", seed) for seed in (0, 1))
    assert first["effective_dimension"] != second["effective_dimension"]


@pytest.mark.parametrize(("suffix", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_a_picture_is_written_whole(files: Path, tmp_path: Path, suffix: str, start: bytes) -> None:
    pytest.importorskip("matplotlib")
    output = tmp_path / f"picture.{suffix}"
    document = json_of("diagnose", files / "data.csv", "-t", "power", "-o", output)
    assert document["output"] == str(output)
    assert output.read_bytes().startswith(start)
    assert [path.name for path in tmp_path.iterdir()] == [output.name]


def test_rows_without_a_target_are_told_of(files: Path, tmp_path: Path) -> None:
    table = columns(60, 1)
    table["power"][:5] = np.nan
    write_table(tmp_path / "holes.csv", table)
    for more in (("-t", "power"), ("--model", files / "model.safetensors")):
        result = run("diagnose", tmp_path / "holes.csv", *more)
        assert "Warning: 5 " in result.stderr
        assert "55 rows" in flat(result.stdout)


def test_what_cannot_be_done_is_said_in_one_line(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files)
    write_table(files / "flat.csv", {**columns(20, 2), "power": np.ones(20)})
    write_table(files / "few.csv", columns(5, 2))
    before = sorted(path.name for path in files.iterdir())
    for arguments, expected in (
        (("absent.csv", "-t", "power"), "absent.csv"),
        (("data.csv",), "`--target` must name the column to learn, or `--model` a model"),
        (("data.csv", "-t", "powr"), "Did you mean 'power'?"),
        (("flat.csv", "-t", "power"), "must vary"),
        (("few.csv", "-t", "power"), "at least 8 rows"),
        (("data.csv", "-t", "power", "--noise", "-1"), "`--noise` must be"),
        (("data.csv", "-t", "power", "--kernel", "mattern"), "`--kernel` must be"),
        (("data.csv", "-t", "power", "--tol", "2"), "`--tol` must be"),
        (("data.csv", "-t", "power", "--rows", "3"), "`--rows` must be"),
        (("data.csv", "-t", "power", "-o", "absent/p.png"), "Make `absent` first"),
        (("data.csv", "-t", "power", "-o", "picture.jpeg"), ".png, .svg, .pdf"),
        (("data.csv", "--model", "absent"), "absent"),
        (("data.csv", "--model", "data.csv"), "data.csv"),
        (("data.csv", "--model", "model.safetensors", "--kernel", "rbf"), "exclude each other"),
        (("data.csv", "--model", "model.safetensors", "--drop", "wind"), "exclude each other"),
    ):
        result = run("diagnose", *arguments, code=1)
        assert result.stdout == ""
        assert expected in result.stderr
        assert len(result.stderr.splitlines()) == 1
        assert expected in json_of("diagnose", *arguments, code=1)["error"]
    assert sorted(path.name for path in files.iterdir()) == before


def test_a_model_whose_rows_had_variances_is_for_python(files: Path, tmp_path: Path) -> None:
    table = columns(40, 3)
    X = np.stack([table["wind"], table["slope"]], axis=1)
    gp = GPRegressor().fit(X, table["power"], noise=np.full(40, 0.25))
    save_model(gp.model_, tmp_path / "m", {"feature_names": ["wind", "slope"], "target_name": "power"})
    assert "variances" in run("diagnose", files / "data.csv", "--model", tmp_path / "m", code=1).stderr


def test_without_matplotlib_no_work_is_done(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(halfgp.cli.diagnose, "find_spec", lambda name: None)
    result = run("diagnose", files / "data.csv", "-t", "power", "-o", files / "picture.png", code=1)
    assert "halfgp[plot]" in result.stderr


def test_help_says_what_it_is_for() -> None:
    shown = flat(run("diagnose", "--help").output)
    assert "which precision is safe" in shown
    assert "--json" in shown
