"""Training times of the models of Table 1: on the largest sets, with compilation and without.

Figure 7, and A.6 and A.7 of the appendix.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from halfgp.paper.frame.context import Context
from halfgp.paper.frame.drawing import COLOURS, REFERENCE
from halfgp.paper.frame.part import Claim, Data, Outcome, Panel, Part, Verdict
from halfgp.paper.studies import keops
from halfgp.paper.studies.displays import draw_times, ours, theirs
from halfgp.paper.studies.plan import LARGE
from halfgp.paper.studies.published import NAMES, ROWS, SECONDS
from halfgp.paper.studies.records import CPU_TIMES, listed, published_ratios, ratios, records, sizes_note
from halfgp.report import words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LARGEST = ("3droad", "song", "buzz", "houseelectric")  # of the paper's sets
METHODS = ("single", "half")
BELOW = 100_000  # rows, as the paper has it
FEATURES = 16  # from so many on, half takes 16-bit integers


def _largest(context: Context) -> Outcome:
    """Times of Table 1, of the large sets alone."""
    found = [record for record in records(context) if record["set"] in LARGE]
    return Outcome(
        {
            "records": found,
            "here": ours(found, "fit_seconds", METHODS),
            "paper": theirs(LARGEST, "fit_seconds", METHODS),
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
    return listed(published_ratios("fit_seconds", LARGEST, "single", "half"), 2, "x")


def _largest_panels(data: Data) -> list[Panel]:
    """The paper's times and ours."""
    return [
        Panel("the paper, all rows on a V100", partial(draw_times, data["paper"])),
        Panel("here, fewer rows on a CPU", partial(draw_times, data["here"])),
    ]


def _compiled(context: Context) -> Outcome:
    """Times of Table 1, and how long KeOps compiles here."""
    found = records(context)
    compiled = None
    if keops.is_installed() and not context.quick:
        context.progress(0, 1, "compilation by KeOps")
        compiled = keops.compilation_seconds()
    return Outcome(
        {
            "records": found,
            "here": ours(found, "fit_seconds"),
            "paper": theirs(SECONDS, "fit_seconds"),
            "keops_seconds": compiled,
        },
        claims=(_slower(found), _fixed(compiled)),
        note=f"The models of Table 1. {sizes_note(found)} Ours are compiled when the package is built and"
        " never while it runs, so that these are also the times without compilation.",
    )


def _slower(found: Sequence[Data]) -> Claim:
    speed = ratios(found, "fit_seconds", "half", "single")
    small = [name for name in SECONDS if ROWS[name] < BELOW]
    paper = published_ratios("fit_seconds", small, "half", "single")
    return Claim(
        text="With compilation counted, half takes longer than single on sets below"
        f" {words.count(BELOW)} rows.",
        paper=f"Half's time over single's: {listed(paper, 3, 'x')}.",
        measured=f"Half's time over single's: {listed(speed, 3, 'x')}.",
        verdict=Verdict.of(*(value > 1 for value in speed.values())),
        reason=f"Nothing is compiled here while a model is fitted. {CPU_TIMES}",
    )


def _fixed(compiled: float | None) -> Claim:
    small = [name for name in SECONDS if ROWS[name] < BELOW]
    pairs = {name: SECONDS[name][:2] for name in small}
    extra = {
        NAMES[name]: half.value - single.value
        for name, (single, half) in pairs.items()
        if single is not None and half is not None
    }
    growth = (max(ROWS[name] for name in small) / min(ROWS[name] for name in small)) ** 2
    spread = max(extra.values()) / min(extra.values())
    paper = (
        f"KeOps 1.5 compiles for longer in half. Half less single: {listed(extra, 2, ' s')}, which differ by"
        f" a factor of {words.number(spread, 2)} where N² differs by {words.number(growth, 2)}."
    )
    text = "What half takes longer on small sets is a fixed time, in which KeOps compiles."
    if compiled is None:
        remedy = "The full report measures it where KeOps and a C++ compiler are installed."
        return Claim(text, paper, "How long KeOps compiles was not measured.", Verdict.OPEN, remedy)
    return Claim(
        text=text,
        paper=paper,
        measured="A product and its gradient in 26 features, single precision, on this CPU:"
        f" {words.duration(compiled)} of compilation by KeOps, once for each number of features.",
        verdict=Verdict.of(spread < growth / 2, compiled > 1),
        reason="Half itself cannot be tried: KeOps has it on graphics processors alone. A later KeOps than"
        " the paper's was measured.",
    )


def _compiled_panels(data: Data) -> list[Panel]:
    """The paper's times and ours."""
    return [
        Panel("the paper, compilation included", partial(draw_times, data["paper"])),
        Panel("here, where nothing is compiled", partial(draw_times, data["here"])),
    ]


def _uncompiled(context: Context) -> Outcome:
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


def _uncompiled_panels(data: Data) -> list[Panel]:
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


PARTS = (
    Part(
        name="fig7",
        title="Training times on the largest sets",
        place="Figure 7",
        module=__name__,
        measure=_largest,
        panels=_largest_panels,
        minutes=0.1,
    ),
    Part(
        name="appendix_times_with_compilation",
        title="Training times with compilation",
        place="Appendix, Figure A.6",
        module=__name__,
        measure=_compiled,
        panels=_compiled_panels,
        minutes=1.0,
    ),
    Part(
        name="appendix_times_without_compilation",
        title="Training times without compilation",
        place="Appendix, Figure A.7",
        module=__name__,
        measure=_uncompiled,
        panels=_uncompiled_panels,
        minutes=0.1,
    ),
)
