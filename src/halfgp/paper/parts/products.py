"""Figure 4a: the time of kernel products in half and in single."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from halfgp.kernels import RBF
from halfgp.operators import KernelOperator
from halfgp.paper.frame.context import Context
from halfgp.paper.frame.drawing import COLOURS, count_axis, number_axis
from halfgp.paper.frame.part import Claim, Data, Outcome, Panel, Part, Verdict
from halfgp.paper.studies.timing import best_times
from halfgp.report import words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PRECISIONS = ("single", "half", "bfloat16")


@dataclass(frozen=True)
class Case:
    """A set, where entries are held, and how many rows at most in quick and in full."""

    set_name: str
    storage: str
    quick: int
    full: int


CASES = {
    "on the fly": Case("houseelectric", "on_the_fly", 8000, 128_000),
    "entries in memory": Case("houseelectric", "stored", 8000, 32_000),
    "on the fly, many features": Case("covtype_elev", "on_the_fly", 8000, 64_000),
}
LEAST = 2000


def _measure(context: Context) -> Outcome:
    """Time K v at growing numbers of rows."""
    data: Data = {"features": {}, "sizes": {}, "seconds": {}}
    for done, (label, case) in enumerate(CASES.items()):
        context.progress(done, len(CASES), label)
        most = context.pick(quick=case.quick, full=case.full)
        x = context.rows(case.set_name, most=most).x
        sizes = [LEAST * 2**k for k in range((most // LEAST).bit_length())]
        times = [_times(context, x[:n], case.storage) for n in sizes]
        data["features"][label] = x.shape[1]
        data["sizes"][label] = sizes
        data["seconds"][label] = {name: [found[name] for found in times] for name in PRECISIONS}
    return Outcome(
        data,
        claims=(_twice_as_fast(data),),
        note="One product with one vector, RBF with lengthscale 1 on rows of houseelectric,"
        f" {data['features']['on the fly']} features, and of covtype,"
        f" {data['features']['on the fly, many features']}; the best of several in one run. “On the fly”"
        " computes the entries anew in every product, as the paper does; in memory they are held in the"
        " format.",
    )


def _times(context: Context, x: Tensor, storage: str) -> dict[str, float]:
    """Seconds of a product by precision."""
    v = torch.randn(len(x), 1, generator=torch.Generator().manual_seed(context.seed))
    actions: dict[str, Callable[[], object]] = {}
    for name in PRECISIONS:
        operator = KernelOperator(RBF(), x, precision=name, storage=storage)
        actions[name] = partial(operator.__matmul__, v)
    return best_times(actions, context.pick(quick=0.2, full=3.0))


def _twice_as_fast(data: Data) -> Claim:
    speedup = {label: times["single"][-1] / times["half"][-1] for label, times in data["seconds"].items()}
    return Claim(
        text="A product in half takes about half the time of one in single.",
        paper="Consistently about twice as fast, on one V100.",
        measured="; ".join(
            f"{label}, {words.count(data['sizes'][label][-1])} rows: {words.number(factor, 3)} times as fast"
            for label, factor in speedup.items()
        )
        + ".",
        verdict=Verdict.of(*(factor >= 1.6 for factor in speedup.values())),
        reason="This processor has no arithmetic in half. With few features products in half are those in"
        " single; from 16 on they are in integers of 16 bits, where it has such instructions. Entries in"
        " memory take half the bytes. “About half the time” is taken for 1.6 times as fast.",
    )


def _panels(data: Data) -> list[Panel]:
    """One for each case: milliseconds against rows."""
    return [Panel(label, partial(_draw, data["sizes"][label], data["seconds"][label])) for label in CASES]


def _draw(sizes: list[int], seconds: dict[str, list[float]], axes: Axes) -> None:
    for name, values in seconds.items():
        style = "o--" if name == "bfloat16" else "o-"
        milliseconds = [1000 * value for value in values]
        axes.plot(sizes, milliseconds, style, color=COLOURS[name], markersize=4, linewidth=2, label=name)
    count_axis(axes, sizes)
    number_axis(axes)
    axes.set(xlabel="rows", ylabel="time (ms)")


PARTS = (
    Part(
        name="fig4a",
        title="Time of a product in half and single",
        place="Figure 4a",
        module=__name__,
        measure=_measure,
        panels=_panels,
        minutes=0.8,
    ),
)
