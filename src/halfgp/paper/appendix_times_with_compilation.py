"""Appendix, Figure A.6: training times with what is compiled on the way."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from halfgp.paper import keops
from halfgp.paper.by_set import draw_times, ours, theirs
from halfgp.paper.context import Context
from halfgp.paper.part import Claim, Data, Outcome, Panel, Part, Verdict
from halfgp.paper.published import NAMES, ROWS, SECONDS
from halfgp.paper.uci_claims import CPU_TIMES
from halfgp.paper.uci_records import listed, published_ratios, ratios, records, sizes_note
from halfgp.report import words

BELOW = 100_000  # rows, as the paper has it


def measure(context: Context) -> Outcome:
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


def panels(data: Data) -> list[Panel]:
    """The paper's times and ours."""
    return [
        Panel("the paper, compilation included", partial(draw_times, data["paper"])),
        Panel("here, where nothing is compiled", partial(draw_times, data["here"])),
    ]


PART = Part(
    name="appendix_times_with_compilation",
    title="Training times with compilation",
    place="Appendix, Figure A.6",
    module=__name__,
    measure=measure,
    panels=panels,
    minutes=1.0,
    optional=("gpytorch", "pykeops"),
)
