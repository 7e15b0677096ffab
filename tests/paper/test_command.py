"""`halfgp paper`: parts from the shell, and how each way of ending is told."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from paper.fakes import claim, outcome, panels, part, runs
from typer.testing import CliRunner, Result

from halfgp.cli import app
from halfgp.paper.frame.part import Part, Verdict

pytest.importorskip("matplotlib")


@pytest.fixture
def contents(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Puts parts in place of those of the paper."""
    monkeypatch.chdir(tmp_path)

    def use(*parts: Part) -> None:
        monkeypatch.setattr("halfgp.paper.contents.PARTS", parts)

    return use


def command(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["paper", *map(str, arguments)], env={"COLUMNS": "100"})
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


def json_of(*arguments: object, code: int = 0) -> dict[str, Any]:
    return json.loads(command(*arguments, "--json", code=code).stdout)


def fail(context):
    raise ZeroDivisionError("of something")


def test_all_parts_are_run_into_a_folder_by_mode(contents, tmp_path: Path) -> None:
    contents(part("one", panels=panels), part("two"))
    result = command("run", "--quick")
    assert "2 claims: 2 holds." in result.stdout
    assert "paper-quick/index.html" in result.stdout
    assert [line.split()[0] for line in result.stderr.splitlines()] == ["one", "two"]
    command("run", "--quiet")
    assert "quick report" in (tmp_path / "paper-quick" / "index.html").read_text()
    assert "quick report" not in (tmp_path / "paper-full" / "index.html").read_text()


def test_parts_can_be_chosen_and_run_again(contents, tmp_path: Path) -> None:
    contents(part("one"), part("two"), part("three"))
    out = tmp_path / "deep" / "out"
    command("run", "three", "one", "--output", out)
    assert [runs(out, name) for name in ("one", "two", "three")] == [1, 0, 1]
    command("run", "one", "-o", out)
    assert runs(out, "one") == 1
    command("run", "one", "-o", out, "--again")
    assert [runs(out, name) for name in ("one", "two", "three")] == [2, 0, 1]


def test_an_unknown_part_is_answered_with_the_nearest(contents, tmp_path: Path) -> None:
    contents(part("fig2a"), part("fig2b"), part("table1"))
    assert "There is no part 'fig2'. Did you mean fig2b or fig2a?" in command("run", "fig2", code=1).stderr
    assert "paper list" in command("run", "zzz", code=1).stderr
    assert not list(tmp_path.iterdir())


def test_json_tells_every_claim(contents) -> None:
    contents(part("one", lambda c: (sys.stdout.write("noise of a peer"), outcome())[1]), part("two", fail))
    printed = json_of("run", "--quick", code=1)
    assert [found["status"] for found in printed["parts"]] == ["done", "failed"]
    assert printed["parts"][0]["claims"][0]["verdict"] == "holds"
    assert printed["parts"][1]["reason"] == "ZeroDivisionError: of something"
    assert Path(printed["page"]).exists()


def test_a_part_that_fails_gives_the_exit_code(contents) -> None:
    contents(part("one", fail), part("two"))
    result = command("run", "--quick", code=1)
    assert "failed: ZeroDivisionError: of something" in result.stderr
    assert runs(Path("paper-quick"), "two") == 1
    command("run", "two", "--quick")


@pytest.mark.parametrize("verdict", [Verdict.IN_PART, Verdict.FAILS, Verdict.OPEN])
def test_a_required_claim_that_does_not_hold_gives_the_exit_code(contents, verdict: Verdict) -> None:
    contents(part("one", lambda c: outcome(claim(verdict, required=True))))
    result = command("run", "--quick", code=1)
    assert f"Required: one: It is so. ({verdict.value}: It was, by 3.)" in result.stderr
    contents(part("one", lambda c: outcome(claim(verdict))))
    command("run", "--quick", "--again")


def test_absent_data_are_told_and_are_no_failure(contents, tmp_path: Path) -> None:
    contents(part("one", lambda c: c.rows("pol")))
    result = command("run", "--quick", "--data", tmp_path / "nowhere")
    assert "skipped: `name` must be a set in" in result.stderr
    assert "Set HALFGP_DATA" in result.stderr


def test_ctrl_c_tells_how_to_go_on(contents) -> None:
    def interrupt(context):
        raise KeyboardInterrupt

    contents(part("one"), part("two", interrupt))
    assert "the same command goes on from there" in command("run", "--quick", code=130).stderr
    assert json_of("run", "--quick", code=130)["kind"] == "KeyboardInterrupt"
    assert runs(Path("paper-quick"), "one") == 1


def test_an_output_that_cannot_be_made_is_refused_at_once(contents, tmp_path: Path) -> None:
    contents(part("one"))
    (tmp_path / "file").write_text("")
    assert "cannot be made" in command("run", "-o", tmp_path / "file" / "below", code=1).stderr
    assert "cannot be made" in command("run", "-o", tmp_path / "file", code=1).stderr


def test_without_matplotlib_nothing_is_begun(contents, monkeypatch: pytest.MonkeyPatch) -> None:
    contents(part("one"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "halfgp[paper]" in command("run", "--quick", code=1).stderr
    assert runs(Path("paper-quick"), "one") == 0


def test_the_list_is_in_the_order_of_the_paper(contents) -> None:
    contents(part("one", minutes=90.0), part("two"))
    lines = command("list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["part", "one", "two"]
    assert "90 min" in lines[1]
    assert [found["name"] for found in json_of("list")["parts"]] == ["one", "two"]


def test_the_papers_own_parts_are_listed() -> None:
    assert "fig2a" in command("list").stdout
