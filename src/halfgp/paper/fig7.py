"""Figure 7: training times on the largest sets."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from halfgp.paper.by_set import draw_times, ours, theirs
from halfgp.paper.context import Context
from halfgp.paper.part import Claim, Data, Outcome, Panel, Part, Verdict
from halfgp.paper.uci_claims import CPU_TIMES
from halfgp.paper.uci_plan import LARGE
from halfgp.paper.uci_records import listed, published_ratios, ratios, records, sizes_note

PAPERS = ("3droad", "song", "buzz", "houseelectric")
METHODS = ("single", "half")


def measure(context: Context) -> Outcome:
    """Times of Table 1, of the large sets alone."""
    found = [record for record in records(context) if record["set"] in LARGE]
    return Outcome(
        {
            "records": found,
            "here": ours(found, "fit_seconds", METHODS),
            "paper": theirs(PAPERS, "fit_seconds", METHODS),
        },
        claims=(_faster(found), _thrice(found)),
        note=f"The models of Table 1. {sizes_note(found)} The paper’s times have the compilation of KeOps in"
        " them.",
    )


def _faster(found: Sequence[Data]) -> Claim:
    speed = ratios(found, "fit_seconds", "single", "half")
    return Claim(
        text="On the largest sets half is faster than single.",
        paper=f"Single's time over half's: {_published()}.",
        measured=f"Single's time over half's: {listed(speed, 3, 'x')}.",
        verdict=Verdict.of(*(value > 1 for value in speed.values())),
        reason=CPU_TIMES,
    )


def _thrice(found: Sequence[Data]) -> Claim:
    speed = ratios(found, "fit_seconds", "single", "half")
    fastest = max(speed, key=lambda name: speed[name])
    return Claim(
        text="On the largest sets half is up to three times as fast as single.",
        paper=f"Up to 3x on Song and HouseElectric, in the text; Table 1 has {_published()}.",
        measured=f"At most {listed({fastest: speed[fastest]}, 3, 'x')}.",
        verdict=Verdict.of(speed[fastest] >= 3),
        reason="A 16-bit product has half the bits and, with integers, half the multiply-adds: exponentials"
        " and sums stay as they are, so that less than two is left. The paper's own table has no three.",
    )


def _published() -> str:
    return listed(published_ratios("fit_seconds", PAPERS, "single", "half"), 2, "x")


def panels(data: Data) -> list[Panel]:
    """The paper's times and ours."""
    return [
        Panel("the paper, all rows on a V100", partial(draw_times, data["paper"])),
        Panel("here, fewer rows on a CPU", partial(draw_times, data["here"])),
    ]


PART = Part(
    name="fig7",
    title="Training times on the largest sets",
    place="Figure 7",
    module=__name__,
    measure=measure,
    panels=panels,
    minutes=0.1,
    optional=("gpytorch",),
)
