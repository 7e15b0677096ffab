"""Appendix, Figure A.1c: the difference of truncated and full predictive means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from halfgp.paper.context import Context
from halfgp.paper.palette import SERIES
from halfgp.paper.part import Claim, Data, Outcome, Panel, Part, Verdict
from halfgp.paper.scales import count_axis
from halfgp.paper.truncation import SUMMATIONS, emulated_difference, engine_difference, setting
from halfgp.precision import HALF
from halfgp.report import words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAMES = {
    "plain": "plain, in half",
    "block_half": "blocks, in half",
    "block_single": "blocks, in single",
    "kahan": "Kahan, in half",
}
ENGINE, MOVED = "the engine", "the engine, centre moved"


def measure(context: Context) -> Outcome:
    """Compare at growing numbers of rows, by every way to sum."""
    sizes = tuple(2**k for k in context.pick(quick=range(11, 14), full=range(11, 17)))
    data: Data = {"sizes": sizes, "difference": {name: [] for name in (*NAMES.values(), ENGINE, MOVED)}}
    for done, rows in enumerate(sizes):
        context.progress(done, len(sizes), f"{words.count(rows)} rows")
        case, shifted = setting(rows, context.seed), setting(rows, context.seed, symmetric=False)
        for summation in SUMMATIONS:
            data["difference"][NAMES[summation]].append(emulated_difference(shifted, summation))
        data["difference"][ENGINE].append(engine_difference(case))
        data["difference"][MOVED].append(engine_difference(shifted))
    return Outcome(
        data,
        claims=(_exact(data),),
        note="The setting of Figure 2c; largest differences relative to the largest mean. In half as the"
        " paper has it (entries, weights, products and sums rounded one by one, 64 points, blocks of 192"
        " rows), and by the engine (1,000 points, blocks of 256). Left out are whole blocks whose entries are"
        " zero after rounding, so that what remains is summed in the same order, the same blocks and on the"
        " same scale. The engine takes points relative to the mean of the rows: with rows that lie"
        " symmetrically it is the same for some as for all, otherwise it moves.",
    )


def _exact(data: Data) -> Claim:
    exact = {name: values for name, values in data["difference"].items() if name != MOVED}
    sizes = data["sizes"]
    return Claim(
        text="Truncated predictive means equal the full ones exactly.",
        paper="The error is zero: the predictive mean does not change at all.",
        measured=f"From {words.count(sizes[0])} to {words.count(sizes[-1])} rows the largest differences are "
        + ", ".join(f"{words.number(max(values), 2)} ({name})" for name, values in exact.items())
        + ".",
        verdict=Verdict.of(*(max(values) == 0.0 for values in exact.values())),
        reason="A zero adds nothing, whatever the rounding, as long as order, blocks, scale and centre of the"
        " sum are kept. With rows that do not lie symmetrically the engine takes the rest relative to another"
        f" centre: the largest relative difference is then {words.number(max(data['difference'][MOVED]), 2)},"
        " the rounding of single, magnified where weights of both signs cancel. Half’s unit round-off is"
        f" {words.number(HALF.unit_roundoff, 2)}.",
        required=True,
    )


def panels(data: Data) -> list[Panel]:
    """Differences against rows, zero included."""

    def draw(axes: Axes) -> None:
        exact = [values for name, values in data["difference"].items() if name != MOVED]
        worst = [max(column) for column in zip(*exact, strict=True)]
        axes.plot(data["sizes"], worst, "o-", color=SERIES[0], markersize=4, linewidth=2, label="same centre")
        axes.plot(
            data["sizes"],
            data["difference"][MOVED],
            "s--",
            color=SERIES[1],
            markersize=4,
            label="centre moved",
        )
        count_axis(axes, data["sizes"])
        axes.set_yscale("symlog", linthresh=1e-9)
        axes.set(xlabel="rows", ylabel="relative difference", ylim=(-2e-10, 1e-3))

    caption = "Same centre: the largest of the four emulated sums and the engine’s."
    return [Panel("", draw, caption)]


PART = Part(
    name="appendix_truncation_error",
    title="Error of truncated predictive means",
    place="Appendix, Figure A.1c",
    module=__name__,
    measure=measure,
    panels=panels,
    minutes=0.3,
)
