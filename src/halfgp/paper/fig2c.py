"""Figure 2c: the time of full and truncated predictive means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from halfgp.paper.context import Context
from halfgp.paper.palette import SERIES
from halfgp.paper.part import Claim, Data, Outcome, Panel, Part, Verdict
from halfgp.paper.scales import count_axis, number_axis
from halfgp.paper.timing import best_times
from halfgp.paper.truncation import END, TEST, setting
from halfgp.report import words

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def measure(context: Context) -> Outcome:
    """Time both products at growing numbers of rows."""
    sizes = tuple(2**k for k in context.pick(quick=range(12, 18), full=range(12, 22)))
    data: Data = {"sizes": sizes, "full": [], "truncated": [], "kept": []}
    for done, rows in enumerate(sizes):
        context.progress(done, len(sizes), f"{words.count(rows)} rows")
        case = setting(rows, context.seed, solved=False)
        times = best_times({"full": case.full, "truncated": case.truncated})
        data["full"].append(times["full"])
        data["truncated"].append(times["truncated"])
        data["kept"].append(case.kept)
    return Outcome(
        data,
        claims=(_faster(data),),
        note=f"Means at {words.count(TEST)} points in [−1, 1] from rows drawn uniformly from"
        f" [−{END:g}, {END:g}], RBF with lengthscale 1, in half. Blocks of 256 rows"
        " whose covariances with all the points vanish in half are left out. Times are the best of several in"
        " one run, with the packing of points and the search for blocks.",
    )


def _faster(data: Data) -> Claim:
    ratio = [full / truncated for full, truncated in zip(data["full"], data["truncated"], strict=True)]
    growth = {name: data[name][-1] / data[name][0] for name in ("full", "truncated")}
    rows = [words.count(size) for size in data["sizes"]]
    return Claim(
        text="Truncated predictive means cost less than full ones, the more so the more rows there are.",
        paper="About 3/4 of the data are dropped, and the time grows at a significantly lower rate.",
        measured=f"{words.percent(data['kept'][-1], 0)} of the rows are kept. At {rows[-1]} rows the"
        f" truncated product takes {words.duration(data['truncated'][-1])}, the full one"
        f" {words.duration(data['full'][-1])}, {words.number(ratio[-1], 3)} times as long; at {rows[0]} rows"
        f" {words.number(ratio[0], 3)} times. From {rows[0]} to {rows[-1]} rows the times grow by"
        f" {words.number(growth['truncated'], 3)} and {words.number(growth['full'], 3)}.",
        verdict=Verdict.of(ratio[-1] > 1.5, growth["full"] > growth["truncated"]),
        reason="A quarter of the pairs is computed. What is the same for both, such as packing the new"
        " points, weighs less as rows are added.",
    )


def panels(data: Data) -> list[Panel]:
    """Milliseconds against rows."""

    def draw(axes: Axes) -> None:
        for name, colour in zip(("full", "truncated"), SERIES, strict=False):
            milliseconds = [1000 * seconds for seconds in data[name]]
            axes.plot(data["sizes"], milliseconds, "o-", color=colour, markersize=4, linewidth=2, label=name)
        count_axis(axes, data["sizes"])
        number_axis(axes)
        axes.set(xlabel="rows", ylabel="time (ms)")

    return [Panel("", draw)]


PART = Part(
    name="fig2c",
    title="Time of full and truncated predictive means",
    place="Figure 2c",
    module=__name__,
    measure=measure,
    panels=panels,
    minutes=0.1,
)
