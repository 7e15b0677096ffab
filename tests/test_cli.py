"""The command line: every command from file to file, every failure in one line, and what a kill leaves."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from contracts import forked
from contracts.commands import flat, json_of, make_rows, run, start
from typer.testing import CliRunner

import halfgp.cli.doctor
from halfgp import doctor
from halfgp.archive import save_model
from halfgp.cli import app
from halfgp.cli.models import NamedModel
from halfgp.model import ExactGP
from halfgp.tables import read_table, write_table
from halfgp.version import __version__

COMMANDS = ("fit", "predict", "evaluate", "plan", "report", "doctor")
BY_STEPS = ("--method", "cg", "--subset", "0", "--threads", "1", "--quiet")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables to learn from and to test on, and a model."""
    folder = tmp_path_factory.mktemp("files")
    make_rows(folder / "train.csv", 80, 0)
    make_rows(folder / "test.csv", 40, 1)
    run("fit", folder / "train.csv", "--target", "power", "-o", folder / "model.safetensors", "--quiet")
    return folder


# ---------------------------------------------------------------------------------------------- commands


def test_version_is_the_package_version() -> None:
    assert run("--version").output.strip() == f"halfgp {__version__}"


def test_without_arguments_the_commands_are_listed() -> None:
    output = run(code=None).output
    assert all(command in output for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str) -> None:
    assert "--json" in run(command, "--help").output


def test_doctor_prints_one_screen() -> None:
    result = run("doctor")
    assert "halfgp doctor" in result.output
    assert len(result.output.splitlines()) <= 24


def test_doctor_as_json_is_the_report() -> None:
    printed = json_of("doctor")
    assert set(printed) == set(doctor.examine().as_dict())
    assert printed["versions"]["halfgp"] == __version__


def test_fit_tells_what_it_found(files: Path, tmp_path: Path) -> None:
    output = tmp_path / "model.safetensors"
    result = run("fit", files / "train.csv", "-t", "power", "-o", output, "--test-fraction", "0.25")
    for word in ("rows", "60", "Matérn 3/2", "noise", "leave-one-out", "held out", "wind", "slope", "█"):
        assert word in result.stdout
    assert not result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


def test_fit_as_json(files: Path, tmp_path: Path) -> None:
    found = json_of(
        "fit", files / "train.csv", "-t", "-1", "-o", tmp_path / "m", "--kernel", "rbf", "--seed", "3"
    )
    assert found["target"] == "power"
    assert found["fit"]["rows"] == 80
    assert found["test"] is None
    assert 0.3 < found["hyperparameters"]["noise_std"] < 0.8
    assert [feature["name"] for feature in found["hyperparameters"]["features"]] == ["wind", "slope"]
    assert found["leave_one_out"]["rmse"] < 1.5


def test_fit_says_nothing_when_quiet(files: Path, tmp_path: Path) -> None:
    assert run("fit", files / "train.csv", "-t", "power", "-o", tmp_path / "m", "-q").output == ""


def test_fit_takes_and_leaves_columns(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text(
        "name,a,b,y\n" + "".join(f"n{k},{k % 7},{k % 5},{(k % 7) + 0.1 * (k % 3)}\n" for k in range(40))
    )
    chosen = json_of("fit", tmp_path / "d.csv", "-t", "y", "-o", tmp_path / "m", "--features", "b, a")
    assert [f["name"] for f in chosen["hyperparameters"]["features"]] == ["b", "a"]
    left = json_of("fit", tmp_path / "d.csv", "-t", "y", "-o", tmp_path / "m", "--drop", "name,b")
    assert [f["name"] for f in left["hyperparameters"]["features"]] == ["a"]


def test_rows_without_a_target_are_left_out_with_a_warning(tmp_path: Path) -> None:
    path = make_rows(tmp_path / "d.csv", 50, 0)
    lines = path.read_text().splitlines()
    lines[3] = ",".join([*lines[3].split(",")[:2], ""])
    path.write_text("\n".join(lines))
    result = run("fit", path, "-t", "power", "-o", tmp_path / "m")
    assert "Warning: 1 of 50 rows have no target" in flat(result.stderr)
    assert "49, 1 more without a target left out" in result.stdout
    scores = json_of("evaluate", tmp_path / "m", path)
    assert (scores["rows"], scores["dropped"], scores["training_rows"]) == (49, 1, 49)


@pytest.mark.parametrize("command", ["fit", "plan", "predict", "evaluate", "report", "diagnose"])
def test_text_as_it_comes(command: str, files: Path, tmp_path: Path) -> None:
    """Semicolons, decimal commas and a header, from a file or from standard input."""
    table = (files / "test.csv").read_text()
    (tmp_path / "d.csv").write_text(table.replace(",", "|").replace(".", ","))
    how = ("--delimiter", "|", "--decimal", ",", "--header")
    before = () if command in ("fit", "plan", "diagnose") else (files / "model.safetensors",)
    after = () if before else ("-t", "power")
    output = {"fit": "m", "predict": "p.csv", "report": "r.html"}.get(command)
    after += () if output is None else ("-o", tmp_path / output)
    run(command, *before, tmp_path / "d.csv", *after, *how)
    guessed = table.replace(",", ";").replace(".", ",")
    result = CliRunner().invoke(app, [command, *map(str, before), "-", *map(str, after)], input=guessed)
    assert result.exit_code == 0, result.output
    assert (
        "--delimiter" in run(command, *before, tmp_path / "d.csv", *after, "--delimiter", "::", code=1).stderr
    )


def test_predictions_have_their_columns(files: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.csv"
    run("predict", files / "model.safetensors", files / "test.csv", "-o", output, "--error", "--samples", "2")
    names = read_table(output, target="mean").feature_names
    assert names == ("std", "lower_95", "upper_95", "mean_error", "std_error", "sample_1", "sample_2")
    values = dict(zip(names, read_table(output, target="mean").X.T, strict=True))
    mean = read_table(output, target="mean").y
    assert mean is not None
    model, points = (
        NamedModel.load(files / "model.safetensors"),
        read_table(files / "test.csv", target="power").X,
    )
    np.testing.assert_array_equal(model.gp.predict(points).mean, mean)
    interval = model.gp.predict_interval(points, 0.95)
    np.testing.assert_array_equal(values["lower_95"], interval.lower)
    np.testing.assert_array_equal(values["upper_95"], interval.upper)


def test_intervals_and_no_std(files: Path) -> None:
    model, table = files / "model.safetensors", files / "test.csv"
    several = json_of("predict", model, table, "--interval", "0.5", "--interval", "0.999")["columns"]
    assert list(several) == ["mean", "std", "lower_50", "upper_50", "lower_99.9", "upper_99.9"]
    wide = json_of("predict", model, table)["columns"]
    assert several["upper_50"][0] < wide["upper_95"][0] < several["upper_99.9"][0]
    assert several["lower_50"][0] > wide["lower_95"][0] > several["lower_99.9"][0]
    bare = json_of("predict", files / "model.safetensors", files / "test.csv", "--no-std")["columns"]
    assert set(bare) == {"mean"}
    assert bare["mean"] == wide["mean"]


def test_without_an_output_the_first_rows_are_shown(files: Path) -> None:
    output = run("predict", files / "model.safetensors", files / "test.csv").stdout
    assert "mean" in output
    assert "30 more rows" in output


def test_columns_are_matched_by_name(files: Path, tmp_path: Path) -> None:
    table = read_table(files / "test.csv", target="power")
    shuffled = {"slope": table.X[:, 1], "other": np.zeros(40), "wind": table.X[:, 0]}
    write_table(tmp_path / "shuffled.csv", shuffled)
    expected = json_of("predict", files / "model.safetensors", files / "test.csv")
    assert json_of("predict", files / "model.safetensors", tmp_path / "shuffled.csv") == expected


def test_columns_are_matched_by_position_without_names(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 2))
    save_model(ExactGP().fit(X, X.sum(axis=1)), tmp_path / "m")
    write_table(tmp_path / "new.csv", {"p": X[:, 0], "q": X[:, 1], "v": X.sum(axis=1)})
    assert "3" in run("predict", tmp_path / "m", tmp_path / "new.csv", code=1).stderr
    assert json_of("evaluate", tmp_path / "m", tmp_path / "new.csv", "--target", "v")["rmse"] < 0.1
    assert "--target" in run("evaluate", tmp_path / "m", tmp_path / "new.csv", code=1).stderr


def test_evaluate_prints_scores(files: Path) -> None:
    output = run("evaluate", files / "model.safetensors", files / "test.csv").stdout
    for word in ("RMSE", "MAE", "R²", "NLL", "constant std", "CRPS", "95 %"):
        assert word in output
    assert "normal ones" in output
    scores = json_of("evaluate", files / "model.safetensors", files / "test.csv", "--target", "power")
    assert scores["interval_coverage"].keys() == scores["coverage"].keys() > {"0.5", "0.9", "0.95"}
    assert scores["rmse"] < 1.5
    assert scores["training_rows"] == 0


def test_scores_of_training_rows_are_called_flattering(files: Path) -> None:
    result = run("evaluate", files / "model.safetensors", files / "train.csv")
    assert "100 % of these rows were trained on" in flat(result.stderr)


def test_plan_tells_before_work(files: Path) -> None:
    output = run("plan", files / "train.csv", "-t", "power").stdout
    assert "memory" in output
    assert "time" in output
    assert json_of("plan", files / "train.csv", "-t", "power")["fits"] is True


def test_a_plan_that_does_not_fit_fails(files: Path) -> None:
    arguments = ("plan", files / "train.csv", "-t", "power", "--memory-limit", "1MB")
    assert "does not fit" in run(*arguments, code=1).stderr
    assert json_of(*arguments, code=1)["fits"] is False


def test_report_writes_a_page(files: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    output = tmp_path / "report.html"
    run("report", files / "model.safetensors", files / "test.csv", "-o", output)
    assert "<svg" in output.read_text(encoding="utf-8")
    found = json_of("report", files / "model.safetensors", files / "test.csv", "-o", output)
    assert found["scores"]["rows"] == 40
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


# ---------------------------------------------------------------------------------------------- failures


@pytest.mark.parametrize("arguments", [("no-such-command",), ("doctor", "--no-such-option"), ("fit",)])
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_command_that_is_not_understood_ends_with_two(
    arguments: tuple[str, ...], more: tuple[str, ...]
) -> None:
    result = run(*arguments, *more, code=2)
    if more:
        assert json.loads(result.stdout)["error"]
    else:
        assert result.stdout == ""
        assert arguments[-1] in result.stderr


def failing_tables() -> dict[str, tuple[str, list[str]]]:
    """Tables by file name: what they hold, and what the error must say."""
    good = [f"{k % 7},{k % 5},{k}" for k in range(12)]
    holed = [*good[:4], ",1,2", *good[5:]]
    return {
        "empty.csv": ("", ["empty"]),
        "header.csv": ("a,b,y\n", ["no row"]),
        "one.csv": ("a,b,y\n1,2,3\n", ["2 rows"]),
        "constant.csv": ("a,b,y\n" + "".join(f"{k},1,7\n" for k in range(9)), ["vary", "7"]),
        "holes.csv": ("a,b,y\n" + "\n".join(holed), ["'a'", "row 5", "--drop"]),
        "words.csv": ("a,b,y\nred,2,3\nblue,3,4\n", ["'a'", "'red'", "--drop"]),
        "infinite.csv": ("a,b,y\n1,2,inf\n2,3,4\n3,4,5\n", ["infinity"]),
        "no_targets.csv": ("a,b,y\n1,2,\n2,3,\n", ["0"]),
    }


@pytest.mark.parametrize("name", sorted(failing_tables()))
def test_tables_that_cannot_be_learned_from(name: str, tmp_path: Path) -> None:
    text, expected = failing_tables()[name]
    (tmp_path / name).write_text(text)
    arguments = ("fit", tmp_path / name, "-t", "y", "-o", tmp_path / "m")
    result = run(*arguments, code=1)
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert all(part in result.stderr for part in ("Error:", *expected))
    assert json_of(*arguments, code=1)["error"] in result.stderr
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("fit", "absent.csv", "-t", "power", "-o", "m"), "absent.csv"),
        (("fit", "train.csv", "-t", "powr", "-o", "m"), "got 'powr'. Did you mean 'power'?"),
        (("fit", "train.csv", "-t", "power", "-o", "m", "--features", "wnd"), "Did you mean 'wind'?"),
        (("fit", "train.csv", "-t", "power", "-o", "m", "--features", "wind,,"), "--features"),
        (("fit", "train.csv", "-t", "power", "-o", "m", "--drop", "slop"), "Did you mean 'slope'?"),
        (("fit", "train.csv", "-t", "power", "-o", "absent/m"), "Make `absent` first"),
        (("fit", "train.csv", "-t", "power", "-o", "."), "is a directory"),
        (("fit", "train.csv", "-t", "power", "-o", "/proc/m"), "/proc/m"),
        (("fit", "train.csv", "-t", "power", "-o", "m", "--kernel", "mattern"), "`--kernel` must be"),
        (("fit", "train.csv", "-t", "power", "-o", "m", "--method", "magic"), "`--method` must be"),
        (("fit", "train.csv", "-t", "power", "-o", "m", "--noise-floor", "-1"), "`--noise-floor` must be"),
        (("fit", "train.csv", "-t", "power", "-o", "m", "--memory-limit", "much"), "`--memory-limit` must"),
        (("fit", "train.csv", "-t", "power", "-o", "m", "--memory-limit", "1MB"), "Raise `--memory-limit`"),
        (("fit", "train.csv", "-t", "power", "-o", "m", "--precision", "triple"), "triple"),
        (("fit", "train.csv", "-t", "power", "-o", "m", "--checkpoint", "c", "--no-checkpoint"), "one of"),
        (("predict", "absent", "test.csv"), "absent"),
        (("predict", "train.csv", "test.csv"), "train.csv"),
        (("predict", "model.safetensors", "absent.csv"), "absent.csv"),
        (("predict", "model.safetensors", "test.csv", "-o", "absent/out.csv"), "absent"),
        (("predict", "model.safetensors", "test.csv", "-o", "out.xlsx"), ".csv"),
        (("predict", "model.safetensors", "test.csv", "--interval", "95"), "0.95"),
        (("evaluate", "model.safetensors", "test.csv", "-t", "slopes"), "Did you mean 'slope'?"),
        (("report", "model.safetensors", "test.csv", "-o", "absent/r.html"), "absent"),
        (("plan", "train.csv", "-t", "powr"), "Did you mean 'power'?"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_said_in_one_line(
    arguments: tuple[str, ...], expected: str, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files)
    before = sorted(path.name for path in files.iterdir())
    result = run(*arguments, code=1)
    assert result.stdout == ""
    assert expected in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert expected in json_of(*arguments, code=1)["error"]
    assert sorted(path.name for path in files.iterdir()) == before


def test_a_table_without_a_column_of_the_model(files: Path, tmp_path: Path) -> None:
    write_table(tmp_path / "new.csv", {"wnd": np.zeros(3), "slope": np.zeros(3)})
    error = run("predict", files / "model.safetensors", tmp_path / "new.csv", code=1).stderr
    assert "The model needs a column" in error
    assert "'wind'" in error
    assert "'wnd'" in error


def test_a_column_named_by_a_number_is_not_taken_for_an_index(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    columns = {"a": rng.standard_normal(30), "1": rng.standard_normal(30), "y": rng.standard_normal(30)}
    write_table(tmp_path / "d.csv", columns)
    run("fit", tmp_path / "d.csv", "-t", "y", "-o", tmp_path / "m", "-q")
    write_table(tmp_path / "new.csv", {"a": columns["a"], "b": columns["1"]})
    assert "'1'" in run("predict", tmp_path / "m", tmp_path / "new.csv", code=1).stderr


def test_new_rows_with_holes(files: Path, tmp_path: Path) -> None:
    write_table(tmp_path / "new.csv", {"wind": np.array([0.0, np.nan]), "slope": np.zeros(2)})
    error = run("predict", files / "model.safetensors", tmp_path / "new.csv", code=1).stderr
    assert "'wind'" in error
    assert "row 2" in error


def test_models_that_are_none(files: Path, tmp_path: Path) -> None:
    whole = (files / "model.safetensors").read_bytes()
    (tmp_path / "cut").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "noise").write_bytes(bytes(range(256)))
    (tmp_path / "empty").write_bytes(b"")
    for name in ("cut", "noise", "empty"):
        assert name in run("predict", tmp_path / name, files / "test.csv", code=1).stderr
        assert json_of("evaluate", tmp_path / name, files / "test.csv", code=1)["kind"] == "FileError"


def test_a_model_whose_names_are_damaged(files: Path, tmp_path: Path) -> None:
    gp = NamedModel.load(files / "model.safetensors").gp
    for extra in ({"feature_names": ["one"]}, {"feature_names": [1, 2]}, {"target_name": 7}):
        save_model(gp, tmp_path / "m", extra)
        assert "damaged" in run("predict", tmp_path / "m", files / "test.csv", code=1).stderr


def test_a_model_of_several_targets_is_for_python(files: Path, tmp_path: Path) -> None:
    X = np.random.default_rng(0).standard_normal((20, 2))
    save_model(ExactGP().fit(X, X), tmp_path / "m")
    assert "halfgp.load" in run("predict", tmp_path / "m", files / "test.csv", code=1).stderr


def test_a_checkpoint_of_another_fit_is_not_taken(files: Path, tmp_path: Path) -> None:
    other = NamedModel.load(files / "model.safetensors")
    other.save(tmp_path / "m.checkpoint")
    error = run("fit", files / "train.csv", "-t", "power", "-o", tmp_path / "m", code=1).stderr
    assert "m.checkpoint" in error
    assert (tmp_path / "m.checkpoint").exists()
    run("fit", files / "train.csv", "-t", "power", "-o", tmp_path / "m", "--no-checkpoint")


def test_the_unexpected_is_one_line_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("lost [bold]\nmarbles")

    monkeypatch.setattr(halfgp.cli.doctor.doctor, "examine", fail)
    result = run("doctor", code=1)
    assert "RuntimeError: lost [bold] marbles" in result.stderr
    assert "HALFGP_DEBUG=1" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert json_of("doctor", code=1)["kind"] == "RuntimeError"
    monkeypatch.setenv("HALFGP_DEBUG", "1")
    shown = CliRunner().invoke(app, ["doctor"])
    assert shown.exit_code == 1
    assert "Traceback" in shown.stderr


# --------------------------------------------------------------------------------------------- processes


def test_a_real_process(files: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "halfgp", "evaluate", files / "model.safetensors", files / "test.csv"]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["rows"] == 40
    process = start("evaluate", tmp_path / "absent", files / "test.csv")
    out, err = process.communicate()
    assert (process.returncode, out) == (1, "")
    assert err.startswith("Error: ")


def wait_for_steps(process: forked.Program, checkpoint: Path, steps: int = 2) -> None:
    """Until the checkpoint has been written so many times after the first."""
    seen: set[int] = set()
    deadline = time.monotonic() + 60
    while len(seen) <= steps:
        assert process.poll() is None, "the fit ended before it could be stopped"
        assert time.monotonic() < deadline
        if checkpoint.exists():
            seen.add(checkpoint.stat().st_mtime_ns)
        time.sleep(0.01)


# Kills itself, as a machine that loses its power does, in the third step.
KILLED = """
import os, signal
from halfgp.cli import main
from halfgp.model.callbacks import Audience

def see_step(self, step, hyperparameters):
    if step.index == 2:
        os.kill(os.getpid(), signal.SIGKILL)

Audience.see_step = see_step
main()
"""


def test_a_killed_fit_resumes_to_the_same_predictions(tmp_path: Path) -> None:
    data, new = make_rows(tmp_path / "train.csv", 300, 0), make_rows(tmp_path / "new.csv", 50, 1)
    whole, killed = tmp_path / "whole.model", tmp_path / "killed.model"
    options = ("--steps", 5, *BY_STEPS)
    run("fit", data, "-t", "power", "-o", whole, *options)
    checkpoint = tmp_path / "killed.model.checkpoint"
    done = forked.run(KILLED, "fit", data, "-t", "power", "-o", killed, *options)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert checkpoint.exists()
    assert not killed.exists()
    said = run("fit", data, "-t", "power", "-o", killed, *options[:-1]).stderr
    assert f"Resuming: from the checkpoint {checkpoint}" in said
    assert not checkpoint.exists()
    for model in (whole, killed):
        run("predict", model, new, "-o", model.with_suffix(".csv"), "--error")
    assert whole.with_suffix(".csv").read_bytes() == killed.with_suffix(".csv").read_bytes()


def test_ctrl_c_saves_the_best_model_so_far(tmp_path: Path) -> None:
    """In a training that would not end by itself, however late the signal comes."""
    data, output = make_rows(tmp_path / "train.csv", 300, 0), tmp_path / "m"
    process = start("fit", data, "-t", "power", "-o", output, "--steps", 10**9, *BY_STEPS)
    wait_for_steps(process, tmp_path / "m.checkpoint")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130
    assert re.search(r"Interrupted: the best model so far is in \S*/m", flat(err))
    assert "Traceback" not in err
    report = NamedModel.load(output).gp.report
    assert report is not None
    assert report.interrupted


def test_ctrl_c_where_nothing_is_to_save(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(halfgp.cli.doctor.doctor, "examine", interrupt)
    assert "nothing was written" in run("doctor", code=130).stderr
    assert "nothing was written" in json_of("doctor", code=130)["error"]


def test_the_doctor_shows_no_markup():
    shown = CliRunner().invoke(app, ["doctor"]).stdout
    assert "backends" in shown
    assert "[bold" not in shown
    assert "[/]" not in shown
