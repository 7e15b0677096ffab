"""Products in half by the way they are summed: accuracy and time.

Figure 4b, and A.1a of the appendix.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from halfgp.analysis import product_errors
from halfgp.backends.emulation import emulated_matmul
from halfgp.kernels import RBF
from halfgp.paper.frame.context import Context
from halfgp.paper.frame.drawing import REFERENCE, SERIES, count_axis, number_axis
from halfgp.paper.frame.part import Claim, Data, Outcome, Panel, Part, Verdict
from halfgp.paper.studies.timing import best_times
from halfgp.precision import HALF, SINGLE
from halfgp.report import words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAMES = {
    "plain": "plain half",
    "block_half": "blocks in half",
    "block_single": "blocks in single",
    "kahan": "Kahan in half",
    "single": "single",
}
CLAIMED = 10_000  # columns at which strategies are compared
LENGTHSCALE = math.log(2.0)  # where the paper's training starts
BLOCK = 192
VECTORS = {"targets": "targets", "positive": "uniform numbers", "normal": "normal numbers"}


def _errors(context: Context) -> Outcome:
    """Compare with double at growing numbers of columns, for three vectors."""
    sizes = context.pick(quick=(300, 3000, CLAIMED), full=(300, 1000, 3000, CLAIMED, 30_000, 100_000))
    count = context.pick(quick=64, full=256)
    rows = context.rows("houseelectric", most=max(sizes))
    generator = torch.Generator().manual_seed(context.seed)
    vectors = {
        "targets": rows.y,
        "positive": torch.rand(max(sizes), dtype=torch.float64, generator=generator),
        "normal": torch.randn(max(sizes), dtype=torch.float64, generator=generator),
    }
    data: Data = {"sizes": sizes, "errors": {}}
    for done, (name, v) in enumerate(vectors.items()):
        context.progress(done, len(vectors), VECTORS[name])
        found = product_errors(
            RBF(LENGTHSCALE), rows.x, sizes, tuple(NAMES), v=v, rows=count, seed=context.seed
        )
        data["errors"][name] = found.errors
    at = sizes.index(CLAIMED)
    return Outcome(
        data,
        claims=(
            _wide_sums(data, at),
            _random_vectors(data, at),
            _accurate(data, at),
            _blocks_in_half(data),
        ),
        note=f"Relative errors of K v, RBF with lengthscale {LENGTHSCALE:.2f}, where the paper’s training"
        f" starts, on rows of houseelectric, over {count} random rows of K, against double. Entries, vector,"
        " products and sums are rounded one by one; blocks are of 192 columns. The vector is that of the"
        " targets, with which CG begins, or of numbers uniform on [0, 1], or standard normal; the paper does"
        " not tell its own.",
    )


def _at(data: Data, at: int, vector: str) -> dict[str, float]:
    """Errors by strategy."""
    return {name: values[at] for name, values in data["errors"][vector].items()}


def _factors(errors: dict[str, float]) -> tuple[float, float]:
    """How far blocks in single and Kahan's are apart, and by how much plain half is worse than either."""
    better, worse = sorted((errors["block_single"], errors["kahan"]))
    return worse / better, errors["plain"] / worse


def _wide_sums(data: Data, at: int) -> Claim:
    errors = _at(data, at, "targets")
    apart, gained = _factors(errors)
    return Claim(
        text="Block sums in single and Kahan’s are about equally accurate, and far better than plain half.",
        paper="Both are nearly as accurate as single; block summation in half is significantly less so.",
        measured=f"K y with the targets, {words.count(data['sizes'][at])} columns: "
        + ", ".join(f"{NAMES[name]} {words.number(error, 2)}" for name, error in errors.items())
        + f". The two differ by a factor of {words.number(apart, 2)}, and plain half is"
        f" {words.number(gained, 2)} times worse than either.",
        verdict=Verdict.of(apart <= 5, gained >= 10),
        reason="A sum in half stops growing once its terms are below its spacing. Blocks are short enough not"
        " to get there, and Kahan’s carries along what was lost. The claim is taken for a factor of 5 and of"
        f" 10. Single is {words.number(errors['kahan'] / errors['single'], 2)} times better still, since"
        " entries and result are rounded to half in any case.",
        required=True,
    )


def _random_vectors(data: Data, at: int) -> Claim:
    factors = {name: _factors(_at(data, at, name)) for name in ("positive", "normal")}
    return Claim(
        text="With random vectors too, these two are about equally accurate, and far better than plain half.",
        paper="",
        measured="; ".join(
            f"{VECTORS[name]}: a factor of {words.number(apart, 2)} between the two, plain half"
            f" {words.number(gained, 2)} times worse than either"
            for name, (apart, gained) in factors.items()
        )
        + ".",
        verdict=Verdict.of(
            *(apart <= 5 for apart, _ in factors.values()), *(g >= 10 for _, g in factors.values())
        ),
        reason="Terms of both signs cancel, so that the sum stays small, and plain half loses less of them.",
    )


def _accurate(data: Data, at: int) -> Claim:
    errors = {vector: _at(data, at, vector)["block_single"] for vector in VECTORS}
    return Claim(
        text="With block sums in single the relative error of a product is below 0.1 %.",
        paper="Less than 0.1 % on average.",
        measured="; ".join(
            f"{VECTORS[vector]}: {words.percent(error, 3)}" for vector, error in errors.items()
        )
        + f", at {words.count(data['sizes'][at])} columns.",
        verdict=Verdict.of(*(error < 1e-3 for error in errors.values())),
        reason="A unit of round-off in half is 0.05 %, and a block of 192 terms in half adds a few of them.",
    )


def _blocks_in_half(data: Data) -> Claim:
    ratio = {}
    for vector in VECTORS:
        errors = _at(data, -1, vector)
        ratio[vector] = errors["block_half"] / errors["block_single"]
    return Claim(
        text="Adding up the blocks in half is significantly less accurate than in single.",
        paper="Significantly less accurate.",
        measured="; ".join(
            f"{VECTORS[vector]}: {words.number(factor, 3)} times the error"
            for vector, factor in ratio.items()
        )
        + f", at {words.count(data['sizes'][-1])} columns.",
        verdict=Verdict.of(*(factor > 2 for factor in ratio.values())),
        reason="There are as many additions in half as blocks, and each rounds what has been summed so far:"
        " it takes many blocks until that is more than what is lost within them. “Significantly” is taken for"
        " twice.",
    )


def _error_panels(data: Data) -> list[Panel]:
    """One for each kind of vector: errors against columns."""
    return [
        Panel(title, partial(_draw, data["sizes"], data["errors"][vector]))
        for vector, title in VECTORS.items()
    ]


def _draw(sizes: list[int], errors: dict[str, list[float]], axes: Axes) -> None:
    for (name, values), colour in zip(errors.items(), SERIES, strict=True):
        axes.semilogy(sizes, values, "o-", color=colour, markersize=4, linewidth=2, label=NAMES[name])
    axes.axhline(1e-3, color=REFERENCE, linestyle=":", linewidth=1.5)
    count_axis(axes, sizes)
    axes.set(xlabel="columns", ylabel="relative error")


def _times(context: Context) -> Outcome:
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


def _time_panels(data: Data) -> list[Panel]:
    """Milliseconds against columns."""

    def draw(axes: Axes) -> None:
        for (name, values), colour in zip(data["seconds"].items(), SERIES, strict=True):
            shown = [1000 * value for value in values]
            axes.plot(data["sizes"], shown, "o-", color=colour, markersize=4, linewidth=2, label=NAMES[name])
        count_axis(axes, data["sizes"])
        number_axis(axes)
        axes.set(xlabel="columns", ylabel="time (ms), emulated")

    return [Panel("", draw)]


PARTS = (
    Part(
        name="fig4b",
        title="Accuracy of a product by summation",
        place="Figure 4b",
        module=__name__,
        measure=_errors,
        panels=_error_panels,
        minutes=1.1,
    ),
    Part(
        name="appendix_summation_times",
        title="Times of ways to sum",
        place="Appendix, Figure A.1a",
        module=__name__,
        measure=_times,
        panels=_time_panels,
        minutes=0.8,
    ),
)
