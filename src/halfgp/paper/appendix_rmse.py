"""Appendix, Figure A.8: RMSE by set in single and half, and of SVGP."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from halfgp.paper.by_set import draw_bars, ours, theirs
from halfgp.paper.context import Context
from halfgp.paper.part import Claim, Data, Outcome, Panel, Part, Verdict
from halfgp.paper.published import RMSE
from halfgp.paper.uci_claims import NEAR
from halfgp.paper.uci_records import changes, published_ratios, ratios, records, sizes_note
from halfgp.report import words


def measure(context: Context) -> Outcome:
    """The RMSE of Table 1."""
    found = records(context)
    data = {"records": found, "here": ours(found, "rmse"), "paper": theirs(RMSE, "rmse")}
    return Outcome(data, (_almost_the_same(found),), f"The models of Table 1. {sizes_note(found)}")


def _almost_the_same(found: Sequence[Data]) -> Claim:
    kept = ratios(found, "rmse", "half", "single")
    paper = published_ratios("rmse", RMSE, "half", "single")
    as_near = sum(value <= 1 + NEAR for value in paper.values())
    return Claim(
        text="Half keeps almost the performance of single, on all sets.",
        paper=f"Half against single: {changes(paper)}.",
        measured=f"Half against single: {changes(kept, 2)}.",
        verdict=Verdict.of(*(value <= 1 + NEAR for value in kept.values())),
        reason=f"“Almost” is taken for {words.percent(NEAR, 0)}, which the paper's own table keeps on"
        f" {as_near} of {len(paper)} sets. Ours rounds vectors and points, the paper's entries too.",
    )


def panels(data: Data) -> list[Panel]:
    """The paper's and ours."""
    return [
        Panel("the paper", partial(draw_bars, data["paper"], "RMSE")),
        Panel("here", partial(draw_bars, data["here"], "RMSE")),
    ]


PART = Part(
    name="appendix_rmse",
    title="RMSE by set",
    place="Appendix, Figure A.8",
    module=__name__,
    measure=measure,
    panels=panels,
    minutes=0.1,
    optional=("gpytorch",),
)
