"""The frame of the paper's parts: what is kept, what is run again, and what one part's failure does."""

from __future__ import annotations

import json
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
from contracts import forked
from paper.fakes import KILLED, claim, fail, outcome, panels, part, runs, table, warned

from halfgp.errors import FileError, InputError
from halfgp.paper.frame import store
from halfgp.paper.frame.context import Context
from halfgp.paper.frame.part import Verdict
from halfgp.paper.frame.run import run
from halfgp.paper.frame.store import Status

pytest.importorskip("matplotlib")


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(quick=True, output=tmp_path)


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
        "from paper.fakes import KILLED; from halfgp.paper.frame.context import Context\n"
        "from halfgp.paper.frame.run import run\n"
        "run(KILLED, Context(quick=True, output=Path(sys.argv[2])), contents=KILLED)"
    )
    tests = Path(__file__).parents[2]
    process = forked.Program(program, tests, tmp_path)
    waiting = tmp_path / "waiting"
    until = time.monotonic() + 120
    while not waiting.exists():
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert "Title of first" in (tmp_path / "index.html").read_text()  # what was done is on the page
    done = run(KILLED, Context(quick=True, output=tmp_path), contents=KILLED)
    assert [result.status for result in done.results] == [Status.DONE] * 3
    assert [runs(tmp_path, name) for name in ("first", "second", "third")] == [1, 2, 1]
