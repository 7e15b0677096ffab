"""The frame of the paper's parts: what is kept, what is run again, and what one part's failure does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from paper.fakes import KILLED, claim, outcome, panels, part, runs, table, warned
from rich.console import Console

from halfgp.datasets import MissingData
from halfgp.errors import FileError, InputError
from halfgp.paper import store
from halfgp.paper.context import Context
from halfgp.paper.part import Verdict
from halfgp.paper.progress import RunProgress
from halfgp.paper.run import run
from halfgp.paper.sources import path_of, sources_of
from halfgp.paper.store import Status

pytest.importorskip("matplotlib")


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(quick=True, output=tmp_path)


def fail(context: Context):
    raise ZeroDivisionError("of <something>")


def test_results_are_json_with_pictures_beside_them(context: Context) -> None:
    parts = (part("one", panels=panels, table=table), part("two", panels=lambda data: panels(data)[:1]))
    done = run(parts, context, contents=parts)
    document = json.loads((context.output / "one.json").read_text(), parse_constant=pytest.fail)
    assert document["data"]["x"] == [1.0, 2.0, None]  # strict JSON has no infinity
    assert document["claims"][0]["verdict"] == "holds"
    assert {path.name for path in context.output.glob("*.svg")} == {"one-1.svg", "one-2.svg", "two.svg"}
    assert [result.status for result in done.results] == [Status.DONE] * 2
    assert store.read(context.output, "one") == done.results[0]
    assert done.page.exists()
    assert not [path for path in context.output.iterdir() if path.name.startswith(".")]


def test_what_is_finished_is_kept(context: Context) -> None:
    parts = (part("one", panels=panels),)
    first = run(parts, context, contents=parts)
    (context.output / "one-2.svg").unlink()
    (context.output / "one-1.svg").unlink()
    second = run(parts, context, contents=parts)
    assert runs(context.output, "one") == 1
    assert second.results == first.results
    assert len(store.picture_paths(context.output, "one")) == 2  # drawn anew, from the data
    run(parts, context, contents=parts, again=True)
    assert runs(context.output, "one") == 2


def test_a_change_of_code_version_seed_or_packages_runs_a_part_again(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = part("one")
    before = store.fingerprint_of(one, context)
    assert store.fingerprint_of(one, context) == before
    assert store.fingerprint_of(one, replace(context, seed=1)) != before
    assert store.fingerprint_of(replace(one, optional=("torch",)), context) != before
    absent = store.fingerprint_of(replace(one, optional=("no_such_package",)), context)
    assert absent != store.fingerprint_of(replace(one, optional=("torch",)), context)
    assert store.fingerprint_of(replace(one, module="halfgp.paper.palette"), context) != before
    monkeypatch.setattr(store, "__version__", "0")
    assert store.fingerprint_of(one, context) != before


def test_quick_results_never_take_the_place_of_full_ones(context: Context) -> None:
    parts = (part("one"), part("two"))
    run(parts[:1], replace(context, quick=False), contents=parts)
    with pytest.raises(InputError, match=r"another mode than quick; .* has one in full\. Give another"):
        run(parts[1:], context, contents=parts)
    assert runs(context.output, "two") == 0


def test_a_part_that_fails_does_not_end_the_run(context: Context) -> None:
    def cannot_draw(data):
        raise KeyError("absent")

    parts = (part("one", fail), part("two", panels=cannot_draw), part("three"))
    done = run(parts, context, contents=parts)
    assert [result.status for result in done.results] == [Status.FAILED, Status.FAILED, Status.DONE]
    assert done.results[0].reason == "ZeroDivisionError: of <something>"
    assert "Traceback" in (context.output / "one.log").read_text()
    assert "cannot_draw" in (context.output / "two.log").read_text()
    assert done.failed == done.results[:2]
    page = done.page.read_text()
    assert "Failed: ZeroDivisionError: of &lt;something&gt;" in page
    assert "2 parts failed: Fig. one, Fig. two." in page
    run((part("one"), *parts[1:]), context, contents=parts)  # it is tried again; what was done is not
    assert runs(context.output, "one") == 2
    assert runs(context.output, "three") == 1
    assert not (context.output / "one.log").exists()


def test_a_part_without_its_data_is_skipped_with_the_remedy(context: Context) -> None:
    context = replace(context, data=context.output / "nowhere")
    one, two = (
        part(name, lambda c, s=s: c.rows(s)) for name, s in (("one", "pol"), ("two", "houseelectric"))
    )
    done = run((one, two), context, contents=(one, two))
    assert [result.status for result in done.results] == [Status.SKIPPED] * 2
    assert all("Set HALFGP_DATA" in result.reason for result in done.results)
    assert not done.failed
    assert "2 parts skipped: Fig. one, Fig. two." in done.page.read_text()


@pytest.mark.parametrize("verdict", list(Verdict))
def test_a_required_claim_must_hold(context: Context, verdict: Verdict) -> None:
    parts = (part("one", lambda c: outcome(claim(verdict, required=True), claim(Verdict.FAILS))),)
    done = run(parts, context, contents=parts)
    assert len(done.unmet) == (verdict is not Verdict.HOLDS)
    assert (f"Required, but {verdict.value}: Figure one" in done.page.read_text()) == (
        verdict is not Verdict.HOLDS
    )


def test_verdicts_of_several_cases() -> None:
    assert Verdict.of(True, True) is Verdict.HOLDS
    assert Verdict.of(True, False) is Verdict.IN_PART
    assert Verdict.of(False, False) is Verdict.FAILS
    assert Verdict.of() is Verdict.OPEN


def test_warnings_are_kept_once_each(context: Context) -> None:
    parts = (part("one", warned),)
    done = run(parts, context, contents=parts)
    assert done.results[0].warnings == ("A warning to keep.",)
    assert "1 warning" in done.page.read_text()


def test_the_page_shows_all_results_and_names_what_is_missing(context: Context) -> None:
    parts = (part("one"), part("two"), part("three"))
    run(parts[:1], context, contents=parts)
    page = run(parts[1:2], context, contents=parts).page.read_text()
    assert page.index("Title of one") < page.index("Title of two")
    assert "Not run yet: Fig. three." in page


def test_a_file_that_is_no_result_is_refused(context: Context) -> None:
    (context.output / "one.json").write_text("{}")
    with pytest.raises(FileError, match=r"one.json` is no result of this version: .*Delete it"):
        run((part("one"),), context, contents=(part("one"),))


def test_a_killed_run_goes_on_where_it_was(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1])\n"
        "from paper.fakes import KILLED; from halfgp.paper.context import Context\n"
        "from halfgp.paper.run import run\n"
        "run(KILLED, Context(quick=True, output=Path(sys.argv[2])), contents=KILLED)"
    )
    tests = Path(__file__).parent.parent
    process = subprocess.Popen([sys.executable, "-c", program, str(tests), str(tmp_path)])
    waiting = tmp_path / "waiting"
    until = time.monotonic() + 120
    while not waiting.exists():
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert "Title of first" in (tmp_path / "index.html").read_text()  # what was done is on the page
    done = run(KILLED, Context(quick=True, output=tmp_path), contents=KILLED)
    assert [result.status for result in done.results] == [Status.DONE] * 3
    assert [runs(tmp_path, name) for name in ("first", "second", "third")] == [1, 2, 1]


def test_progress_tells_lines_and_the_time_left(context: Context) -> None:
    with (context.output / "told").open("w") as file:
        progress = RunProgress(Console(file=file, width=200))
        parts = (part("one", lambda c: (c.progress(1, 2, "half way"), outcome())[1]), part("two", fail))
        run(parts, context, contents=parts, progress=progress)
        assert progress.seconds_left() == 0.0
        run(parts, context, contents=parts, progress=progress)
    lines = (context.output / "told").read_text().splitlines()
    assert lines[0].split()[0] == "one"
    assert lines[0].endswith("1 holds")
    assert lines[1].endswith("failed: ZeroDivisionError: of <something>")
    assert lines[2].split()[1] == "kept"


def test_the_time_left_follows_what_finished_parts_took(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress = RunProgress(quiet=True)
    progress.expect({"one": 10.0, "two": 30.0})
    assert progress.seconds_left() == 40.0
    parts = (part("one"),)
    result = run(parts, context, contents=parts).results[0]
    progress.end(replace(result, seconds=20.0))  # ten more than foreseen, with thirty to come
    assert progress.seconds_left() == 30.0 * (20.0 + 30.0) / (10.0 + 30.0)
    now = 1000.0
    monkeypatch.setattr("halfgp.paper.progress.time", SimpleNamespace(monotonic=lambda: now))
    progress.begin(part("two"))
    assert progress.seconds_left() == 30.0
    now += 2.0
    progress.step(1, 4, "a quarter")
    assert progress.seconds_left() == 3 * 2.0  # as long again for each of the quarters to come


def test_sources_are_of_a_part_and_its_studies() -> None:
    found = sources_of("halfgp.paper.fig2a")
    assert list(found) == ["halfgp.paper.fig2a", "halfgp.paper.distances"]
    assert path_of("halfgp.paper.fig2a") == "src/halfgp/paper/fig2a.py"


def make_uci(folder: Path, name: str, rows: int = 50) -> Path:
    (folder / name).mkdir(parents=True)
    rng = np.random.default_rng(0)
    values = np.column_stack([rng.uniform(5, 9, rows), np.full(rows, 3.0), rng.standard_normal(rows)])
    np.savetxt(folder / name / "data.csv.gz", values, delimiter=",")
    np.savetxt(folder / name / "test_mask.csv.gz", np.arange(rows)[:, None] % 5 == np.arange(3), "%d", ",")
    return folder


def test_rows_are_standardised_by_the_training_rows(tmp_path: Path) -> None:
    context = Context(quick=True, output=tmp_path, data=make_uci(tmp_path, "tiny"))
    rows = context.rows("tiny")
    assert rows.x.shape == (40, 2)
    assert rows.x_test.shape == (10, 2)
    assert rows.available == 40
    torch.testing.assert_close(rows.y.mean(), torch.zeros((), dtype=torch.float64), atol=1e-15, rtol=0)
    torch.testing.assert_close(rows.x[:, 0].square().mean(), torch.ones((), dtype=torch.float64))
    assert rows.x[:, 1].abs().max() == 0.0  # a constant column
    some = context.rows("tiny", most=7, most_test=3)
    assert (len(some.x), len(some.y), len(some.x_test), len(some.y_test)) == (7, 7, 3, 3)
    assert torch.equal(some.y, rows.y[:7])  # the first of the same order
    other = context.rows("tiny", split=1)
    assert not torch.equal(other.y, rows.y)
    with pytest.raises(MissingData, match="absent"):
        context.rows("absent")


def test_rows_of_a_large_set_are_sampled(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    values = np.random.default_rng(0).standard_normal((200, 2))
    parquet.write_table(
        pyarrow.table({"a": values[:, 0], "target": values[:, 1]}), tmp_path / "covtype_elev.parquet"
    )
    context = Context(quick=True, output=tmp_path, data=tmp_path)
    rows = context.rows("covtype_elev", most=90)
    assert (len(rows.y), len(rows.y_test)) == (90, 10)
    assert len(context.rows("covtype_elev").y) == 180
