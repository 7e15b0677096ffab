"""The page of the paper: it needs nothing else, and nothing in it is more than text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from contracts.outline import Outline
from paper.fakes import HOSTILE, claim, outcome, panels, part, table

from halfgp.paper.frame.context import Context
from halfgp.paper.frame.part import Claim, Outcome, Panel, Table, Verdict
from halfgp.paper.frame.run import run

pytest.importorskip("matplotlib")


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(quick=True, output=tmp_path)


def page_of(context: Context, *parts) -> str:
    return run(parts, context, contents=parts).page.read_text(encoding="utf-8")


def test_a_page_needs_nothing_else(context: Context) -> None:
    def image(data):
        return [Panel("", lambda axes: axes.imshow([[0.0, 1.0], [1.0, 0.0]]))]

    text = page_of(context, part("one", panels=panels, table=table), part("two", panels=image))
    page = Outline(text)
    assert not {"script", "link", "iframe", "img"} & set(page.tags)
    assert page.tags.count("svg") == 3
    assert all(reference.startswith(("#", "data:image/png;base64,")) for reference in page.references)
    assert any(reference.startswith("data:") for reference in page.references)
    assert not re.search(r"url\((?!#)", text)
    assert "@import" not in text
    assert "prefers-color-scheme: dark" in text


def test_ids_are_unique_and_every_reference_is_there(context: Context) -> None:
    text = page_of(context, part("one", panels=panels), part("two", panels=panels), part("one_two"))
    page = Outline(text)
    assert len(page.ids) == len(set(page.ids))
    used = {reference[1:] for reference in page.references if reference.startswith("#")}
    used |= set(re.findall(r"url\(#([^)]+)\)", text))
    assert {"one", "two"} <= used
    assert used <= set(page.ids)


def test_everything_is_text(context: Context) -> None:
    def measure(context: Context) -> Outcome:
        told = Claim(HOSTILE, HOSTILE, HOSTILE, Verdict.IN_PART, HOSTILE)
        return Outcome({"cell": HOSTILE}, (told,), HOSTILE)

    def fail(context: Context) -> Outcome:
        raise ValueError(HOSTILE)

    parts = (
        part(
            "one",
            measure,
            place=HOSTILE,
            table=lambda data: Table(("a", HOSTILE), ((HOSTILE, data["cell"]),), HOSTILE),
            panels=lambda data: [Panel(HOSTILE, lambda axes: axes.plot([1, 2]), HOSTILE)],
        ),
        part("two", fail),
    )
    page = Outline(page_of(context, *parts))
    assert not {"script", "img"} & set(page.tags)
    assert page.tags.count("style") == 2  # the page's, and one in its picture
    assert not page.handlers
    # In the summary: place and claim. Below: place, panel, caption, two cells, heading, caption, claim with
    # the paper's words, measured and reason, note. And the reason of the failure.
    assert page.text.count(HOSTILE) >= 14


def test_parts_stand_in_order_with_verdicts_and_code(context: Context) -> None:
    verdicts = list(Verdict)
    parts = (
        part("one", lambda c: outcome(*map(claim, verdicts))),
        part("extra", place="Appendix, Figure A.1"),
        part("two"),
    )
    text = page_of(context, *parts)
    page = Outline(text)
    # The appendix comes last whatever the order in which parts are listed.
    assert text.index('id="one"') < text.index('id="two"') < text.index('id="extra"')
    for verdict, count in zip(verdicts, (3, 1, 1, 1), strict=True):
        name = verdict.name.lower().replace("_", "-")
        # Each claim has a badge in the summary and one in its part.
        assert text.count(f'<span class="badge {name}">{verdict.value}</span>') == 2 * count
    for word in ("It was, by 3.", "Because.", "Noted.", "the paper", "measured", "def wait_to_be_killed"):
        assert word in page.text
    assert "fakes.py" in page.text
    assert text.count('<a href="#one">') == 4


def test_pictures_take_the_colours_of_the_page(context: Context) -> None:
    from halfgp.paper.frame.drawing import COLOURS

    def one(data):
        return [Panel("", lambda axes: axes.plot([1, 2], color=COLOURS["half"]))]

    text = page_of(context, part("one", panels=one))
    svg = text[text.index("<svg") : text.index("</svg>")]
    assert "var(--second)" in svg
    assert COLOURS["half"] not in svg
    assert COLOURS["half"] in (context.output / "one.svg").read_text()  # alone it has its own
    assert 'aria-label="Figure one, Title of one"' in svg


def test_the_same_results_give_the_same_page(context: Context) -> None:
    parts = (part("one", panels=panels, table=table),)
    assert page_of(context, *parts) == page_of(context, *parts)


def test_a_result_of_earlier_code_says_so(context: Context) -> None:
    path = context.output / "one.json"
    one, two = part("one"), part("two")
    assert "by earlier code" not in page_of(context, one)
    path.write_text(re.sub(r'"fingerprint": "\w{4}', '"fingerprint": "0000', path.read_text()))
    assert "by earlier code" in run((two,), context, contents=(one, two)).page.read_text()
