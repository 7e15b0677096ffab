"""Appendix, Figure A.2a: the largest eigenvalue of a Matérn-1/2 kernel in each format against double."""

from __future__ import annotations

from typing import TYPE_CHECKING

from halfgp.analysis import largest_eigenvalue_difference
from halfgp.kernels import Matern
from halfgp.paper.context import Context
from halfgp.paper.palette import COLOURS
from halfgp.paper.part import Claim, Data, Outcome, Panel, Part, Verdict
from halfgp.paper.scales import count_axis
from halfgp.paper.spectra import points
from halfgp.precision import HALF
from halfgp.report import words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = ("single", "half", "bfloat16")


def measure(context: Context) -> Outcome:
    """Of growing matrices, by format."""
    sizes = context.pick(quick=(250, 500), full=(250, 500, 1000, 2000))
    x = points(max(sizes), context.seed)
    kernel = Matern(nu=0.5)
    data: Data = {"sizes": sizes, "difference": {name: [] for name in FORMATS}}
    for done, size in enumerate(sizes):
        context.progress(done, len(sizes), f"{words.count(size)} rows")
        for name in FORMATS:
            found = largest_eigenvalue_difference(kernel, x[:size], name, rounding="evaluation")
            data["difference"][name].append(found)
    return Outcome(
        data,
        claims=(_same(data),),
        note="Relative differences of λ_max from double, Matérn-1/2 with lengthscale 1 on points drawn"
        " uniformly from [−3, 3]; points and every operation of the kernel are in the format.",
    )


def _same(data: Data) -> Claim:
    worst = {name: max(values) for name, values in data["difference"].items()}
    return Claim(
        text="The largest eigenvalue is nearly the same in every format.",
        paper="Extremely small relative differences.",
        measured="The largest relative differences are "
        + ", ".join(f"{words.number(worst[name], 2)} in {name}" for name in FORMATS)
        + ".",
        verdict=Verdict.of(worst["single"] < HALF.unit_roundoff, worst["half"] < HALF.unit_roundoff),
        reason="It is a sum over all entries, whose rounding errors mostly cancel: it stays below one unit of"
        f" round-off of half, {words.number(HALF.unit_roundoff, 2)}.",
    )


def panels(data: Data) -> list[Panel]:
    """Differences against rows."""

    def draw(axes: Axes) -> None:
        for name, values in data["difference"].items():
            style = "o--" if name == "bfloat16" else "o-"
            axes.semilogy(
                data["sizes"], values, style, color=COLOURS[name], linewidth=2, markersize=4, label=name
            )
        count_axis(axes, data["sizes"])
        axes.set(xlabel="rows", ylabel="relative difference of λ_max")

    return [Panel("", draw)]


PART = Part(
    name="appendix_eigenvalue_difference",
    title="Difference of the largest eigenvalue",
    place="Appendix, Figure A.2a",
    module=__name__,
    measure=measure,
    panels=panels,
    minutes=0.3,
)
