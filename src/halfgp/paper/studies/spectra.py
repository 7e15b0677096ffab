"""Eigenvalues of a kernel matrix that was evaluated in each format.

Figure 2d, and A.2a and A.2c of the appendix.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from halfgp.analysis import eigenvalues, largest_eigenvalue_difference
from halfgp.kernels import RBF, Kernel, Matern
from halfgp.paper.frame.context import Context
from halfgp.paper.frame.drawing import COLOURS, count_axis
from halfgp.paper.frame.part import Claim, Data, Outcome, Panel, Part, Verdict
from halfgp.precision import HALF
from halfgp.report import words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = ("double", "single", "half", "bfloat16")
END = 3.0  # of the interval that points are drawn from
NOISE = 0.01  # the paper tells one for its inverses only, and that is it
LEVEL = 1e-5  # of the largest eigenvalue
DRAWN = 150  # eigenvalues of a line
ROUNDED = FORMATS[1:]


def points(count: int, seed: int) -> Tensor:
    """Uniform on [-3, 3], (count, 1)."""
    generator = torch.Generator().manual_seed(seed)
    return END * (2.0 * torch.rand(count, 1, dtype=torch.float64, generator=generator) - 1.0)


def spectrum(kernel: Kernel, context: Context) -> Data:
    """Eigenvalues of one matrix by format, and how many are above a level."""
    count = context.pick(quick=1000, full=4000)
    x = points(count, context.seed)
    found = {}
    for done, name in enumerate(FORMATS):
        context.progress(done, len(FORMATS), name)
        found[name] = eigenvalues(kernel, x, name, rounding="evaluation")
    index = np.unique(np.geomspace(1, count, DRAWN).astype(int))
    return {
        "rows": count,
        "index": index,
        "eigenvalues": {name: values[index - 1] for name, values in found.items()},
        "largest": {name: float(values[0]) for name, values in found.items()},
        "least": {name: float(values[-1]) for name, values in found.items()},
        "above": {name: int((values >= LEVEL * values[0]).sum()) for name, values in found.items()},
        "positive": {name: int((values > 0).sum()) for name, values in found.items()},
    }


def decay_claim(data: Data, *, required: bool = False) -> Claim:
    """That eigenvalues in half fall more slowly before they drop to zero."""
    above, positive, n = data["above"], data["positive"], data["rows"]
    return Claim(
        text="Evaluated in half, the eigenvalues of a kernel matrix decay much more slowly before they drop"
        " to zero.",
        paper="The half precision spectrum decays slower than those of single and double.",
        measured=f"Of {words.count(n)} eigenvalues, those of at least 10⁻⁵ of the largest are "
        + ", ".join(f"{words.count(above[name])} in {name}" for name in FORMATS)
        + "; positive are "
        + ", ".join(f"{words.count(positive[name])} in {name}" for name in FORMATS)
        + ".",
        verdict=Verdict.of(above["half"] > above["double"], above["half"] >= 2 * above["double"]),
        reason="Rounding adds a matrix whose eigenvalues lie about as far above zero as below, here down to"
        f" {words.number(data['least']['half'], 2)} in half. It takes the place of whatever is smaller:"
        " nearly all of a spectrum that falls fast, little of one that falls slowly. Beyond, eigenvalues are"
        " not zero but negative. “Much more slowly” is taken for twice as many.",
        required=required,
    )


def condition_claim(data: Data) -> Claim:
    """That the condition number does not depend on the format."""
    least = {name: data["least"][name] + NOISE for name in FORMATS}
    condition = {name: (data["largest"][name] + NOISE) / least[name] for name in FORMATS if least[name] > 0}
    return Claim(
        text=f"The condition number of K + {NOISE:g} I is about the same in every format.",
        paper="It is, as the largest eigenvalue is the same and the smallest is close to the noise.",
        measured="; ".join(
            f"{name}: {words.number(condition[name], 3)}"
            if name in condition
            else f"{name}: not positive definite, least eigenvalue {words.number(least[name], 2)}"
            for name in FORMATS
        )
        + ".",
        verdict=Verdict.of(
            *(name in condition and condition[name] < 1.1 * condition["double"] for name in FORMATS[1:])
        ),
        reason="The least eigenvalue of a rounded matrix is about minus the norm of what rounding added."
        " Where that is more than the noise, the matrix is indefinite.",
    )


def spectrum_panels(data: Data) -> list[Panel]:
    """Eigenvalues against their index; what is not positive is not drawn."""

    def draw(axes: Axes) -> None:
        for name, values in data["eigenvalues"].items():
            shown = np.array(values, dtype=float)
            style = "--" if name == "bfloat16" else "-"
            shown[shown <= 0] = np.nan
            axes.loglog(data["index"], shown, style, color=COLOURS[name], linewidth=width(name), label=name)
        axes.set(xlabel="index", ylabel="eigenvalue", ylim=(1e-8 * data["largest"]["double"], None))

    return [Panel("", draw)]


def width(name: str) -> float:
    """Double is drawn first, and wide enough to be seen below what lies on it."""
    return 5.0 if name == "double" else 2.0


def _largest(context: Context) -> Outcome:
    """Of growing matrices, by format."""
    sizes = context.pick(quick=(250, 500), full=(250, 500, 1000, 2000))
    x = points(max(sizes), context.seed)
    kernel = Matern(nu=0.5)
    data: Data = {"sizes": sizes, "difference": {name: [] for name in ROUNDED}}
    for done, size in enumerate(sizes):
        context.progress(done, len(sizes), f"{words.count(size)} rows")
        for name in ROUNDED:
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
        + ", ".join(f"{words.number(worst[name], 2)} in {name}" for name in ROUNDED)
        + ".",
        verdict=Verdict.of(worst["single"] < HALF.unit_roundoff, worst["half"] < HALF.unit_roundoff),
        reason="It is a sum over all entries, whose rounding errors mostly cancel: it stays below one unit of"
        f" round-off of half, {words.number(HALF.unit_roundoff, 2)}.",
    )


def _difference_panels(data: Data) -> list[Panel]:
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


def _part(
    name: str,
    place: str,
    label: str,
    kernel: Kernel,
    claims: Callable[[Data], tuple[Claim, ...]],
) -> Part:
    """The spectrum of one kernel, and what is claimed of it."""

    def measure(context: Context) -> Outcome:
        """Decompose one matrix in every format."""
        data = spectrum(kernel, context)
        return Outcome(
            data,
            claims(data),
            f"{label} with lengthscale 1, {words.count(data['rows'])} points drawn uniformly from [−3, 3]."
            " Points and every operation of the kernel are in the format, the decomposition is in double.",
        )

    return Part(name, f"Eigenvalue spectrum, {label}", place, __name__, measure, spectrum_panels, minutes=0.2)


PARTS = (
    _part(
        "fig2d",
        "Figure 2d",
        "Matérn-1/2",
        Matern(nu=0.5),
        lambda data: (decay_claim(data), condition_claim(data)),
    ),
    _part(
        "appendix_rbf_spectrum",
        "Appendix, Figure A.2c",
        "RBF",
        RBF(),
        lambda data: (decay_claim(data, required=True),),
    ),
    Part(
        name="appendix_eigenvalue_difference",
        title="Difference of the largest eigenvalue",
        place="Appendix, Figure A.2a",
        module=__name__,
        measure=_largest,
        panels=_difference_panels,
        minutes=0.3,
    ),
)
