"""Appendix, Figure A.7: training times without compilation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from halfgp.paper.by_set import draw_times, ours
from halfgp.paper.context import Context
from halfgp.paper.palette import COLOURS, REFERENCE
from halfgp.paper.part import Claim, Data, Outcome, Panel, Part, Verdict
from halfgp.paper.uci_claims import CPU_TIMES
from halfgp.paper.uci_records import listed, ratios, records, sizes_note

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FEATURES = 16  # from so many on, half takes 16-bit integers


def measure(context: Context) -> Outcome:
    """Times of Table 1, which have no compilation in them, and what half gains by the number of features."""
    found = records(context)
    features = {record["set"]: record["features"] for record in found if record["method"] == "half"}
    speed = {
        method: [
            [features[name], value] for name, value in ratios(found, "fit_seconds", "single", method).items()
        ]
        for method in ("half", "bfloat16")
    }
    return Outcome(
        {"records": found, "here": ours(found, "fit_seconds"), "speed": speed},
        claims=(_always(found), _features(found, features)),
        note=f"The models of Table 1. {sizes_note(found)} Times are of one run of each seed. The paper shows"
        " its times without compilation in a picture alone, without figures.",
    )


def _always(found: Sequence[Data]) -> Claim:
    speed = ratios(found, "fit_seconds", "single", "half")
    return Claim(
        text="Without compilation half is always faster than single.",
        paper="Always faster, by its Figure A.7.",
        measured=f"Single's time over half's: {listed(speed, 3, 'x')}.",
        verdict=Verdict.of(*(value > 1 for value in speed.values())),
        reason=CPU_TIMES,
    )


def _features(found: Sequence[Data], features: dict[str, int]) -> Claim:
    speed = ratios(found, "fit_seconds", "single", "half")
    many = {name: value for name, value in speed.items() if features[name] >= FEATURES}
    few = {name: value for name, value in speed.items() if features[name] < FEATURES}
    gain = [sum(group.values()) / len(group) for group in (many, few) if group]
    return Claim(
        text=f"On this CPU half gains from {FEATURES} features on.",
        paper="Nothing of the kind: on its V100 half is said to gain whatever the features.",
        measured=f"Single's time over half's with at least {FEATURES} features: {listed(many, 3, 'x')}; with"
        f" fewer: {listed(few, 3, 'x')}.",
        verdict=Verdict.of(len(gain) == 2 and gain[0] > gain[1], *(value > 1 for value in many.values())),
        reason="From there on squared distances are summed in 16-bit integers, two for each of single's"
        " multiply-adds.",
    )


def panels(data: Data) -> list[Panel]:
    """Times by set, and speed by features."""
    return [
        Panel("here", partial(draw_times, data["here"])),
        Panel("single's time over that of 16 bits", partial(_draw_speed, data["speed"])),
    ]


def _draw_speed(speed: Data, axes: Axes) -> None:
    for method, points in speed.items():
        if points:
            axes.plot(*zip(*points, strict=True), "o", color=COLOURS[method], label=method)
    axes.axhline(1, color=REFERENCE, linewidth=1.5)
    axes.axvline(FEATURES, color=REFERENCE, linestyle=":", linewidth=1.5)
    axes.set(xlabel="features", ylabel="times as fast")


PART = Part(
    name="appendix_times_without_compilation",
    title="Training times without compilation",
    place="Appendix, Figure A.7",
    module=__name__,
    measure=measure,
    panels=panels,
    minutes=0.1,
    optional=("gpytorch",),
)
