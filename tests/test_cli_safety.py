"""What a command must not do: overwrite what it reads, lose a fit, or let a file command the terminal."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contracts import forked
from contracts.commands import flat, json_of, make_rows, run
from contracts.textbook import points, targets

import halfgp
import halfgp.persistence
from halfgp.errors import FileError, UnsolvedError, UnsolvedWarning
from halfgp.model import ExactGP
from halfgp.model.callbacks import Audience
from halfgp.preconditioners.recipes import RECIPES
from halfgp.settings import Settings, SolveOptions, VarianceOptions
from halfgp.tables import write_table


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    make_rows(folder / "train.csv", 60, 0)
    make_rows(folder / "test.csv", 20, 1)
    run("fit", folder / "train.csv", "--target", "power", "-o", folder / "m", "--quiet")
    (folder / "link.csv").symlink_to(folder / "train.csv")
    os.link(folder / "test.csv", folder / "hard.csv")
    (folder / "locked.csv").write_text("precious")
    (folder / "locked.csv").chmod(0o444)
    return folder


# ---------------------------------------------------------------------------------------------- outputs


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("fit", "train.csv", "-t", "power", "-o", "train.csv"), "`train.csv` of this command"),
        (("fit", "train.csv", "-t", "power", "-o", "./link.csv"), "is the file `train.csv`"),
        (("fit", "link.csv", "-t", "power", "-o", "../{here}/train.csv"), "is the file `link.csv`"),
        (("fit", "train.csv", "-t", "power", "-o", "n", "--checkpoint", "n"), "is the file `n`"),
        (("fit", "train.csv", "-t", "power", "-o", "n", "--checkpoint", "train.csv"), "overwrite"),
        (("fit", "train.csv", "-t", "power", "-o", "n.solve", "--checkpoint", "n"), "overwrite"),
        (("fit", "train.csv", "-t", "power", "-o", "locked.csv"), "read-only"),
        (("fit", "train.csv", "-t", "power", "-o", "/dev/null"), "not a regular file"),
        (("predict", "m", "test.csv", "-o", "test.csv"), "overwrite"),
        (("predict", "m", "test.csv", "-o", "hard.csv"), "is the file `test.csv`"),
        (("predict", "m", "test.csv", "-o", "locked.csv"), "read-only. Give another path, or allow it"),
        (("report", "m", "test.csv", "-o", "m"), "is the file `m`"),
        (("report", "m", "test.csv", "-o", "test.csv"), "overwrite"),
        (("diagnose", "test.csv", "--model", "m", "-o", "m"), "is the file `m`"),
    ],
)
def test_an_output_that_should_not_be_written_is_refused_before_any_work(
    arguments: tuple[str, ...], expected: str, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files)
    monkeypatch.setattr("halfgp.tables.read_table", None)
    before = {path.name: path.read_bytes() for path in files.iterdir()}
    given = [argument.format(here=files.name) for argument in arguments]
    assert expected in run(*given, code=1).stderr
    assert {path.name: path.read_bytes() for path in files.iterdir()} == before


def test_an_earlier_output_is_replaced(files: Path, tmp_path: Path) -> None:
    for _ in range(2):
        run("predict", files / "m", files / "test.csv", "-o", tmp_path / "out.csv")


def test_a_format_is_refused_before_any_work(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("halfgp.cli.predict.NamedModel", None)
    assert ".csv" in run("predict", files / "m", files / "test.csv", "-o", tmp_path / "o.xlsx", code=1).stderr


# ------------------------------------------------------------------------------------- fits that are lost


@contextmanager
def stopped(error: BaseException) -> Iterator[None]:
    """Within, fits end by an exception where their last solve begins."""

    def fail(*arguments: object) -> None:
        raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("halfgp.model.fitting.condition", fail)
        yield


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Every step of training from now on."""
    seen: list[object] = []
    see = Audience.see_step

    def tell(self: Audience, step: Any, hyperparameters: Any) -> None:
        seen.append(step)
        see(self, step, hyperparameters)

    monkeypatch.setattr(Audience, "see_step", tell)
    return seen


def test_ctrl_c_in_the_final_solve_says_how_to_go_on(
    files: Path, tmp_path: Path, steps: list[object]
) -> None:
    arguments = ("fit", files / "train.csv", "-t", "power", "-o", tmp_path / "m")
    with stopped(KeyboardInterrupt()):
        said = run(*arguments, code=130).stderr
    assert f"Interrupted: no model was written. The training so far is in {tmp_path / 'm.checkpoint'}" in said
    assert "the same command goes on from there" in said
    assert steps
    steps.clear()
    assert "Resuming" in run(*arguments).stderr
    assert not steps
    assert [path.name for path in tmp_path.iterdir()] == ["m"]
    with stopped(KeyboardInterrupt()):
        error = json_of(*arguments, "--no-checkpoint", code=130)["error"]
    assert error == "Interrupted: no model was written."


# Ctrl-C comes soon after an iteration of the last solve that the first argument names: in a product, mostly.
IN_THE_SOLVE = """
import os, signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)
import halfgp.training.run
from halfgp.cli import main
from halfgp.model.callbacks import Audience
from halfgp.preconditioners.recipes import RECIPES

halfgp.training.run.ROUNDS = (1,)
RECIPES["auto"] = RECIPES["pivoted_cholesky"]
at = int(sys.argv.pop(1))
seen = []

def observe(self, iteration, *_):
    seen.append(iteration)
    if iteration == at:
        threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT)).start()
    if at <= iteration:
        time.sleep(0.005)  # so that the solve is not over before the signal comes

Audience.see_iteration = observe
try:
    main()
finally:
    print("iterations", *seen, file=sys.stderr)
"""


@pytest.mark.slow
def test_ctrl_c_in_the_final_solve_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes are ended in it, one after the other; a third fit, which is not, goes on."""
    seen: list[int] = []
    monkeypatch.setattr("halfgp.training.run.ROUNDS", (1,))  # training is not what is ended
    monkeypatch.setitem(RECIPES, "auto", RECIPES["pivoted_cholesky"])  # whose solve is long enough for that
    monkeypatch.setattr(Audience, "see_iteration", lambda self, iteration, *_: seen.append(iteration))
    x, new = points(800), points(30, seed=9)
    names = dict(zip("abc", x.numpy().T, strict=True))
    write_table(tmp_path / "train.csv", {**names, "y": targets(x, noise=1e-6)[:, 0].numpy()})
    write_table(tmp_path / "new.csv", dict(zip("abc", new.numpy().T, strict=True)))
    how = shlex.split(
        "--kernel matern52 --noise 1e-5 --noise-floor 1e-7 --method cg --variance local --threads 1"
    )
    how += shlex.split("--subset 100 --steps 0")

    def arguments(output: str) -> list[object]:
        return ["fit", tmp_path / "train.csv", "-t", "y", "-o", tmp_path / output, *how]

    run(*arguments("whole"))
    end = seen[-1]
    last = 0
    for at in (5, 12):
        done = forked.run(IN_THE_SOLVE, at, *arguments("m"))
        said, _, iterations = done.stderr.rpartition("iterations")
        assert done.returncode == 130, done.stderr
        assert "Traceback" not in said
        assert "Interrupted: no model was written. The training so far is in" in flat(said)
        assert f", and the solve in {tmp_path / 'm.checkpoint.solve'}: the same command goes on" in flat(said)
        first, *_, latest = map(int, iterations.split())
        assert (first > 1) == (last > 0)
        assert at <= latest < end
        last = latest
    seen.clear()
    assert "Resuming" in run(*arguments("m")).stderr
    assert seen[0] in (last, last + 1)  # the one that was under way
    assert seen[-1] == end
    assert {path.name for path in tmp_path.iterdir()} == {"train.csv", "new.csv", "whole", "m"}
    for model in ("whole", "m"):
        run("predict", tmp_path / model, tmp_path / "new.csv", "-o", tmp_path / f"{model}.csv", "--error")
    assert (tmp_path / "whole.csv").read_bytes() == (tmp_path / "m.csv").read_bytes()


def test_a_full_disk_at_the_last_write_loses_nothing(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: list[object]
) -> None:
    arguments = ("fit", files / "train.csv", "-t", "power", "--checkpoint", tmp_path / "c")
    save = halfgp.persistence.save_file

    def fail(tensors: Any, path: Any, metadata: dict[str, str]) -> None:
        if metadata["kind"] == "model":
            raise OSError(28, "No space left on device")
        save(tensors, path, metadata)

    with monkeypatch.context() as patch:
        patch.setattr(halfgp.persistence, "save_file", fail)
        said = run(*arguments, "-o", tmp_path / "m", code=1).stderr
    assert "No space left on device" in said
    assert f"one with another output and --checkpoint {tmp_path / 'c'}, goes on from there" in said
    steps.clear()
    run(*arguments, "-o", tmp_path / "n", "--quiet")
    assert not steps
    assert [path.name for path in tmp_path.iterdir()] == ["n"]


def test_an_unsolved_fit_keeps_its_training(files: Path, tmp_path: Path, steps: list[object]) -> None:
    arguments = ("fit", files / "train.csv", "-t", "power", "-o", tmp_path / "m")
    error = UnsolvedError(
        'Too far off. Or fit with `solve__unsolved="warn"`: deviations then include that error.'
    )
    with stopped(error):
        said = run(*arguments, code=1).stderr
    assert "Or fit with `--unsolved warn`: deviations" in said
    assert (
        "with one of `--unsolved`, `--memory-limit` and `--solve-max-iterations` this command goes on" in said
    )
    steps.clear()
    run(*arguments, "--unsolved", "warn", "--solve-max-iterations", "2000")
    assert not steps


def test_ctrl_c_after_the_model_is_written(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("halfgp.cli.fit._tell", interrupt)
    said = run("fit", files / "train.csv", "-t", "power", "-o", tmp_path / "m", code=130).stderr
    assert f"Interrupted: the model is in {tmp_path / 'm'}" in said


# ------------------------------------------------------------------------------------------------ words


def test_options_of_the_model_reach_it(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Settings] = []

    def fit(self: ExactGP, X: object, y: object, callbacks: object) -> None:
        seen.append(self.settings)
        raise FileError("enough")

    monkeypatch.setattr(ExactGP, "fit", fit)
    given = {
        "priors": "none", "mean": "zero", "noise": 0.3, "solve_tol": 1e-4, "unsolved": "warn",
        "variance": "local", "solve_max_iterations": 7,
    }  # fmt: skip
    more = [part for name, value in given.items() for part in ("--" + name.replace("_", "-"), value)]
    run("fit", files / "train.csv", "-t", "power", "-o", tmp_path / "m", "--no-ard", *more, code=1)
    run("fit", files / "train.csv", "-t", "power", "-o", tmp_path / "m", code=1)
    wanted = Settings(
        ard=False,
        priors=None,
        mean="zero",
        noise=0.3,
        solve=SolveOptions(tol=1e-4, unsolved="warn", max_iterations=7),
        variances=VarianceOptions("local"),
        checkpoint=seen[0].checkpoint,
    )
    assert seen == [wanted, Settings(checkpoint=seen[1].checkpoint)]
    for name, value in (("priors", "strong"), ("unsolved", "maybe"), ("mean", "linear"), ("noise", -1)):
        said = run(
            "fit", files / "train.csv", "-t", "power", "-o", tmp_path / "m", f"--{name}", value, code=1
        ).stderr
        assert f"`--{name}` must be" in said


@pytest.mark.parametrize(
    ("option", "value"), [("--seed", -1), ("--seed", 2**64), ("--threads", 10**9), ("--threads", 0)]
)
def test_numbers_out_of_range_are_not_understood(option: str, value: int, files: Path) -> None:
    for command in (("fit", "-t", "power", "-o", files / "n"), ("diagnose", "-t", "power")):
        said = run(command[0], files / "train.csv", *command[1:], option, value, code=2).stderr
        assert option in said
    assert option in run("predict", files / "m", files / "test.csv", option, value, code=2).stderr


def test_columns_are_named_in_warnings(tmp_path: Path) -> None:
    make_rows(tmp_path / "d.csv", 40, 0, still=np.ones(40))
    said = run("fit", tmp_path / "d.csv", "-t", "power", "-o", tmp_path / "m", "-q").stderr
    assert "Warning: 1 of the 3 columns have one value in all rows" in said
    assert said.rstrip().endswith(": still.")
    assert len(said.splitlines()) == 1


def test_warnings_are_lines_in_terms_of_options(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fit(self: ExactGP, X: object, y: object, callbacks: object) -> None:
        warnings.warn("Off by\nfar. Raise `noise_floor` or `rank`.", UnsolvedWarning, stacklevel=2)
        raise FileError("enough")

    monkeypatch.setattr(ExactGP, "fit", fit)
    said = run("fit", files / "train.csv", "-t", "power", "-o", tmp_path / "m", code=1).stderr.splitlines()
    assert said == [r"Warning: Off by\nfar. Raise `--noise-floor` or `rank`.", "Error: enough"]


def test_names_do_not_command_the_terminal(tmp_path: Path) -> None:
    evil = "a\x1b[2J\x9b31m\u202e"
    make_rows(tmp_path / "d.csv", 40, 0, **{evil: np.arange(40.0) % 7, evil + "b": np.ones(40)})
    result = run("fit", tmp_path / "d.csv", "-t", "power", "-o", tmp_path / "m")
    shown = result.stdout + result.stderr
    shown += run("fit", tmp_path / "d.csv", "-t", evil, "-o", tmp_path / "n").stdout
    shown += run("evaluate", tmp_path / "n", tmp_path / "d.csv").stdout
    assert r"a\x1b[2J\x9b31m\u202e" in shown
    assert not any(character in shown for character in "\x1b\x9b\u202e")
    write_table(tmp_path / "e.csv", {"a\nb": np.arange(9.0), "y": np.ones(9)})
    assert (
        len(run("fit", tmp_path / "e.csv", "-t", "c\nd", "-o", tmp_path / "n", code=1).stderr.splitlines())
        == 1
    )


# ------------------------------------------------------------------------------------------- processes

# Ctrl-C is pressed while the command line is being imported.
INTERRUPTED = """
import builtins, os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
plain = builtins.__import__
def press(name, *rest, **more):
    if name == "halfgp.cli":
        os.kill(os.getpid(), signal.SIGINT)
    return plain(name, *rest, **more)
builtins.__import__ = press
from halfgp.__main__ import main
main()
"""


def test_ctrl_c_during_imports() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "Interrupted: nothing was written.\n"


def test_every_public_name_is_there() -> None:
    assert set(halfgp.__all__) == {"__version__", *halfgp._MODULES}
    assert all(getattr(halfgp, name) is not None for name in halfgp.__all__)
    assert not hasattr(halfgp, "random")
    exec("from halfgp import *; cg", {})


# An interpreter imports what takes seconds, and then ends in some ways: forks of it end as it would itself.
ENDS = """
import os, sys
import halfgp.cli.doctor
from halfgp.cli import main

def full():
    os.dup2(os.open("/dev/full", os.O_WRONLY), 1)

def closed():
    os.close(1)
    sys.stdout = sys.__stdout__ = None  # where it is closed from the start

def unread():
    reader, writer = os.pipe()
    os.close(reader)
    os.dup2(writer, 1)

folder = sys.argv[1]
ends = [(what, end) for what in ("doctor", "--help", "--version") for end in (full, unread)]
for what, end in [("doctor", closed), *ends]:
    child = os.fork()
    if not child:
        os.dup2(os.open(os.path.join(folder, what + " " + end.__name__), os.O_WRONLY | os.O_CREAT), 2)
        sys.argv[1:] = [what]
        end()
        main()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is full")
def test_a_standard_output_that_takes_nothing(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", ENDS, tmp_path], capture_output=True, text=True, timeout=60)
    # What Rich prints before there is a command it ends by itself, with 1, where nobody reads it.
    assert done.stdout.split() == ["0", "1", "141", *["1", "1"] * 2], done.stderr
    for said in tmp_path.iterdir():
        if said.name.endswith("full"):
            assert said.read_text().startswith("Error: Standard output cannot be written: No space left")
            assert len(said.read_text().splitlines()) == 1
        else:
            assert said.read_text() == ""


def test_a_standard_output_that_is_closed_from_the_start() -> None:
    command = f"exec {shlex.quote(sys.executable)} -m halfgp --help >&-"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
