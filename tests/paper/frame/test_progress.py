"""How far a run is, and the time left."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from paper.fakes import fail, outcome, part
from rich.console import Console

from halfgp.paper.frame.context import Context
from halfgp.paper.frame.progress import RunProgress
from halfgp.paper.frame.run import run

pytest.importorskip("matplotlib")


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(quick=True, output=tmp_path)


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
    monkeypatch.setattr("halfgp.paper.frame.progress.time", SimpleNamespace(monotonic=lambda: now))
    progress.begin(part("two"))
    assert progress.seconds_left() == 30.0
    now += 2.0
    progress.step(1, 4, "a quarter")
    assert progress.seconds_left() == 3 * 2.0  # as long again for each of the quarters to come
