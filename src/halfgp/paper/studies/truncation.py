"""Predictive means from all rows and from those whose covariances are not zero in half: time and error.

Figure 2c, and A.1c of the appendix.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from halfgp.backends.emulation import BLOCK as EMULATED_BLOCK
from halfgp.backends.emulation import Summation, column_scales, emulated_matmul
from halfgp.hyperparameters import Hyperparameters
from halfgp.kernels import RBF
from halfgp.operators import KernelOperator
from halfgp.paper.frame.context import Context
from halfgp.paper.frame.drawing import SERIES, count_axis, number_axis
from halfgp.paper.frame.part import Claim, Data, Outcome, Panel, Part, Verdict
from halfgp.paper.studies.timing import best_times
from halfgp.parameters import positive
from halfgp.precision import HALF
from halfgp.preconditioners import PivotedCholesky
from halfgp.problem import Problem
from halfgp.report import words
from halfgp.solvers import cg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NOISE = 0.1
END = 27.5  # rows lie in [-27.5, 27.5]: of these a quarter has covariances above zero with [-1, 1]
TEST = 1000
GRID = 2.0**-12  # coordinates are multiples of it, so that sums of them are exact
SUMMATIONS: dict[Summation, str] = {
    "plain": "plain, in half",
    "block_half": "blocks, in half",
    "block_single": "blocks, in single",
    "kahan": "Kahan, in half",
}
ENGINE = "the engine"


@dataclass(frozen=True)
class Setting:
    """A one-dimensional problem of which new points see a quarter.

    Attributes:
        x: rows (n, 1), sorted.
        new: points (m, 1) in [-1, 1].
        weights: (K + noise)^-1 y, (n, 1).
    """

    x: Tensor
    new: Tensor
    weights: Tensor

    def operator(self, truncate: bool) -> KernelOperator:
        """K(new, x) in half, by all tiles or by those that are not zero."""
        return KernelOperator(RBF(), self.new, self.x, precision="half", truncate=truncate)

    def full(self) -> Tensor:
        """K(new, x) w, (m, 1)."""
        return torch.as_tensor(self.operator(False) @ self.weights)

    def truncated(self) -> Tensor:
        """The same from the rows within reach."""
        return torch.as_tensor(self.operator(True) @ self.weights)

    @property
    def kept(self) -> float:
        """Share of the covariances that are computed."""
        return 1.0 - self.operator(True).skipped


def setting(rows: int, seed: int, *, solved: bool = True) -> Setting:
    """Rows that are uniform on [-27.5, 27.5], targets that are a noisy sine, and the solve for weights.

    Args:
        rows: a multiple of two blocks.
        seed: of rows and targets.
        solved: solve for weights; otherwise they are the targets, which a product does not take longer for.
    """
    generator = torch.Generator().manual_seed(seed)
    most = round(END / GRID)
    steps = torch.randint(-most, most, (rows,), generator=generator)
    x = (GRID * steps.double()).sort().values[:, None]
    y = x.sin() + NOISE**0.5 * torch.randn(x.shape, dtype=torch.float64, generator=generator)
    new = 2.0 * torch.rand(TEST, 1, dtype=torch.float64, generator=generator) - 1.0
    new[:2] = torch.tensor([[-1.0], [1.0]])
    hyperparameters = Hyperparameters(RBF(), positive("noise", NOISE), None)
    problem = Problem(x, y)
    weights = y
    if solved:
        recipe: Any = PivotedCholesky(rank=100)
        found = cg(problem.operator(hyperparameters), y, preconditioner=recipe, tol=1e-3)
        weights = torch.as_tensor(found.solution)
    return Setting(x, new, weights)


def emulated_difference(case: Setting, summation: Summation, points: int = 64) -> float:
    """The largest difference of means that are computed in half, operation by operation, as the paper's are.

    Entries, weights, products and partial sums are rounded to half. Blocks of rows whose entries are all zero
    after rounding are left out; the others stay as they are, on the same scale.
    """
    new = case.new[:points]
    weights = case.weights / column_scales(case.weights)
    entries = RBF()(new, case.x).to(HALF.dtype)
    block = torch.arange(len(case.x)) // EMULATED_BLOCK
    near = torch.isin(block, block[(entries != 0).any(dim=0)])
    product = partial(emulated_matmul, RBF(), new, format=HALF, summation=summation, scale=False)
    whole, some = product(case.x, weights), product(case.x[near], weights[near])
    return float((whole - some).abs().max() / whole.abs().max())


def engine_difference(case: Setting) -> float:
    """The largest difference of the engine's means, relative to the largest mean."""
    whole, some = case.full(), case.truncated()
    return float((whole - some).abs().max() / whole.abs().max())


def _times(context: Context) -> Outcome:
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
        f" [−{END:g}, {END:g}], RBF with lengthscale 1, in half. Blocks of rows"
        " whose covariances with all the points vanish in half are left out. Times are the best of several in"
        " one run, with the ordering and packing of points and the search for blocks.",
    )


def _faster(data: Data) -> Claim:
    ratio = [full / truncated for full, truncated in zip(data["full"], data["truncated"], strict=True)]
    growth = {name: data[name][-1] / data[name][0] for name in ("full", "truncated")}
    rows = [words.count(size) for size in data["sizes"]]
    return Claim(
        text="Truncated predictive means cost less than full ones, the more so the more rows there are.",
        paper="About 3/4 of the data are dropped, and the time grows at a significantly lower rate.",
        measured=f"{words.percent(data['kept'][-1], 0)} of the covariances are computed. At {rows[-1]} rows"
        f" the truncated product takes {words.duration(data['truncated'][-1])}, the full one"
        f" {words.duration(data['full'][-1])}, {words.number(ratio[-1], 3)} times as long; at {rows[0]} rows"
        f" {words.number(ratio[0], 3)} times. From {rows[0]} to {rows[-1]} rows the times grow by"
        f" {words.number(growth['truncated'], 3)} and {words.number(growth['full'], 3)}.",
        verdict=Verdict.of(ratio[-1] > 1.5, growth["full"] > growth["truncated"]),
        reason="A quarter of the pairs is computed. What is the same for both, such as packing the new"
        " points, weighs less as rows are added.",
    )


def _time_panels(data: Data) -> list[Panel]:
    """Milliseconds against rows."""

    def draw(axes: Axes) -> None:
        for name, colour in zip(("full", "truncated"), SERIES, strict=False):
            milliseconds = [1000 * seconds for seconds in data[name]]
            axes.plot(data["sizes"], milliseconds, "o-", color=colour, markersize=4, linewidth=2, label=name)
        count_axis(axes, data["sizes"])
        number_axis(axes)
        axes.set(xlabel="rows", ylabel="time (ms)")

    return [Panel("", draw)]


def _errors(context: Context) -> Outcome:
    """Compare at growing numbers of rows, by every way to sum."""
    sizes = tuple(2**k for k in context.pick(quick=range(11, 14), full=range(11, 17)))
    data: Data = {"sizes": sizes, "difference": {name: [] for name in (*SUMMATIONS.values(), ENGINE)}}
    for done, rows in enumerate(sizes):
        context.progress(done, len(sizes), f"{words.count(rows)} rows")
        case = setting(rows, context.seed)
        for summation, name in SUMMATIONS.items():
            data["difference"][name].append(emulated_difference(case, summation))
        data["difference"][ENGINE].append(engine_difference(case))
    return Outcome(
        data,
        claims=(_exact(data),),
        note="The setting of Figure 2c; largest differences relative to the largest mean. In half as the"
        " paper has it (entries, weights, products and sums rounded one by one, 64 points, blocks of 192"
        " rows), and by the engine (1,000 points, blocks of 256). Left out are whole blocks whose entries are"
        " zero after rounding, so that what remains is summed in the same order, the same blocks and on the"
        " same scale.",
    )


def _exact(data: Data) -> Claim:
    exact, sizes = data["difference"], data["sizes"]
    return Claim(
        text="Truncated predictive means equal the full ones exactly.",
        paper="The error is zero: the predictive mean does not change at all.",
        measured=f"From {words.count(sizes[0])} to {words.count(sizes[-1])} rows the largest differences are "
        + ", ".join(f"{words.number(max(values), 2)} ({name})" for name, values in exact.items())
        + ".",
        verdict=Verdict.of(*(max(values) == 0.0 for values in exact.values())),
        reason="A zero adds nothing, whatever the rounding, as long as order, blocks, scale and centre of the"
        " sum are kept.",
        required=True,
    )


def _error_panels(data: Data) -> list[Panel]:
    """Differences against rows, zero included."""

    def draw(axes: Axes) -> None:
        worst = [max(column) for column in zip(*data["difference"].values(), strict=True)]
        axes.plot(data["sizes"], worst, "o-", color=SERIES[0], markersize=4, linewidth=2)
        count_axis(axes, data["sizes"])
        axes.set_yscale("symlog", linthresh=1e-9)
        axes.set(xlabel="rows", ylabel="relative difference", ylim=(-2e-10, 1e-3))

    caption = "The largest of the four emulated sums and the engine’s."
    return [Panel("", draw, caption)]


PARTS = (
    Part(
        name="fig2c",
        title="Time of full and truncated predictive means",
        place="Figure 2c",
        module=__name__,
        measure=_times,
        panels=_time_panels,
        minutes=0.1,
    ),
    Part(
        name="appendix_truncation_error",
        title="Error of truncated predictive means",
        place="Appendix, Figure A.1c",
        module=__name__,
        measure=_errors,
        panels=_error_panels,
        minutes=0.3,
    ),
)
