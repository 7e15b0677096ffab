"""Every Python block of the documentation runs, in the order of its page, and so does every example."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
# Sizes that a page shows are those of a reader's data; here fewer rows tell as much.
SMALLER = {"20_000": "400"}
ARGUMENTS = {
    "bayesian_optimisation": ["--rows", "900", "--steps", "1", "--iterations", "1"],
    "terrain_demo": ["--rows", "200"],
    "product_demo": ["--rows", "2000"],
}


def blocks(page: Path) -> list[str]:
    """The code of a page, with sizes of its own."""
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    for shown, here in SMALLER.items():
        found = [block.replace(shown, here) for block in found]
    return found


def readers() -> dict[str, object]:
    """What a reader has: rows, targets and points to predict."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 5))
    return {"X": x, "y": np.sin(x).sum(axis=1), "b": np.ones(200), "X_new": rng.standard_normal((10, 5))}


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.name)
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks(page)), encoding="utf-8")
    runpy.run_path(str(script), init_globals=readers())


def test_there_is_python_to_run():
    assert sum(len(blocks(page)) for page in PAGES) >= 8


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_an_example_runs(example, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(example), *ARGUMENTS[example.stem]])
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out
