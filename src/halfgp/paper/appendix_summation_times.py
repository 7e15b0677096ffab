"""Appendix, Figure A.1a: the time of products in half by the way they are summed, emulated."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from halfgp.backends.emulation import emulated_matmul
from halfgp.kernels import RBF
from halfgp.paper.context import Context
from halfgp.paper.palette import SERIES
from halfgp.paper.part import Claim, Data, Outcome, Panel, Part, Verdict
from halfgp.paper.scales import count_axis, number_axis
from halfgp.paper.summations import NAMES
from halfgp.paper.timing import best_times
from halfgp.precision import HALF, SINGLE
from halfgp.report import words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLOCK = 192


def measure(context: Context) -> Outcome:
    """Time the emulation of every strategy at growing numbers of columns."""
    sizes = context.pick(quick=(500, 1000, 2000), full=(1000, 2000, 4000, 8000, 16_000))
    count = context.pick(quick=512, full=2048)
    rows = context.rows("houseelectric", most=max(sizes))
    v = torch.randn(max(sizes), 1, dtype=torch.float64, generator=torch.Generator().manual_seed(context.seed))
    data: Data = {"sizes": sizes, "rows": count, "seconds": {name: [] for name in NAMES}}
    for done, size in enumerate(sizes):
        context.progress(done, len(sizes), f"{words.count(size)} columns")
        actions: dict[str, Callable[[], object]] = {}
        for name in NAMES:
            how: dict[str, Any] = {"format": SINGLE} if name == "single" else _strategy(name)
            x = rows.x[: min(count, size)]
            actions[name] = partial(emulated_matmul, RBF(), x, rows.x[:size], v[:size], block=BLOCK, **how)
        for name, seconds in best_times(actions, context.pick(quick=0.25, full=5.0), most=5).items():
            data["seconds"][name].append(seconds)
    return Outcome(
        data,
        claims=(_blocks(data), _kahan(data)),
        note=f"Products of up to {words.count(count)} rows of K with a vector, houseelectric, RBF with"
        " lengthscale 1, emulated: this processor has no arithmetic in half, so that each operation is one in"
        " single and a rounding. Kernel entries are computed in double and rounded, which is most of the"
        " time. Times say how much more one way does than another, not what a GPU would take.",
    )


def _strategy(name: str) -> dict[str, Any]:
    return {"format": HALF, "summation": name}


def _blocks(data: Data) -> Claim:
    seconds = {name: values[-1] for name, values in data["seconds"].items()}
    ratio = seconds["block_single"] / seconds["block_half"]
    return Claim(
        text="Adding blocks up in single costs no more than in half.",
        paper="It adds negligible overhead.",
        measured=f"At {words.count(data['sizes'][-1])} columns it takes {words.number(ratio, 3)} times as"
        " long.",
        verdict=Verdict.of(ratio < 1.1),
        reason="One addition in 192 is in single, the others are the same.",
    )


def _kahan(data: Data) -> Claim:
    seconds = {name: values[-1] for name, values in data["seconds"].items()}
    ratio = seconds["kahan"] / seconds["plain"]
    return Claim(
        text="Kahan’s summation is only slightly slower.",
        paper="All in half behave similarly, Kahan’s being slightly slower than the other two.",
        measured=f"At {words.count(data['sizes'][-1])} columns it takes {words.number(ratio, 3)} times as"
        " long as the plain sum, which is in the same order; blocks in half take"
        f" {words.number(seconds['block_half'] / seconds['plain'], 3)} times.",
        verdict=Verdict.of(ratio < 1.5),
        reason="It has four additions where a plain sum has one; beside the evaluation of the kernel that is"
        " little.",
    )


def panels(data: Data) -> list[Panel]:
    """Milliseconds against columns."""

    def draw(axes: Axes) -> None:
        for (name, values), colour in zip(data["seconds"].items(), SERIES, strict=True):
            shown = [1000 * value for value in values]
            axes.plot(data["sizes"], shown, "o-", color=colour, markersize=4, linewidth=2, label=NAMES[name])
        count_axis(axes, data["sizes"])
        number_axis(axes)
        axes.set(xlabel="columns", ylabel="time (ms), emulated")

    return [Panel("", draw)]


PART = Part(
    name="appendix_summation_times",
    title="Times of ways to sum",
    place="Appendix, Figure A.1a",
    module=__name__,
    measure=measure,
    panels=panels,
    minutes=0.8,
)
