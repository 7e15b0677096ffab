"""The effective dimension of a kernel matrix that was evaluated in each format.

Figure 2e, and A.2b of the appendix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from halfgp.analysis import effective_dimension, eigenvalues
from halfgp.kernels import RBF, Kernel, Matern
from halfgp.paper.frame.context import Context
from halfgp.paper.frame.drawing import COLOURS, REFERENCE, count_axis, number_axis
from halfgp.paper.frame.part import Claim, Data, Outcome, Panel, Part, Verdict
from halfgp.paper.studies.spectra import FORMATS, NOISE, points, width
from halfgp.report import words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NOISES = (0.001, 0.01, 0.1)


def dimensions(kernel: Kernel, context: Context) -> Data:
    """Effective dimensions by format: of growing matrices, and of the largest by noise."""
    sizes = context.pick(quick=(250, 500, 1000), full=(250, 500, 1000, 2000, 4000, 8000))
    x = points(max(sizes), context.seed)
    by_size: dict[str, list[float]] = {name: [] for name in FORMATS}
    by_noise: dict[str, list[float]] = {}
    magnitudes: dict[str, list[float]] = {}
    for done, size in enumerate(sizes):
        for name in FORMATS:
            context.progress(done, len(sizes), f"{words.count(size)} rows in {name}")
            values = eigenvalues(kernel, x[:size], name, rounding="evaluation")
            by_size[name].append(effective_dimension(values, NOISE))
            if size == max(sizes):
                by_noise[name] = [effective_dimension(values, noise) for noise in NOISES]
                magnitudes[name] = [effective_dimension(values.abs(), noise) for noise in NOISES]
    return {
        "sizes": sizes,
        "dimension": by_size,
        "noises": NOISES,
        "by_noise": by_noise,
        "magnitudes": magnitudes,
    }


def dimension_claims(data: Data, *, required: bool = False) -> tuple[Claim, Claim]:
    """That half has a larger effective dimension, and one that grows faster."""
    by_noise, sizes, dimension = data["by_noise"], data["sizes"], data["dimension"]
    larger = [half > double for half, double in zip(by_noise["half"], by_noise["double"], strict=True)]
    growth = {name: values[-1] / values[0] for name, values in dimension.items()}
    first = Claim(
        text="The effective dimension of the matrix in half is larger than in double.",
        paper="Much larger, across matrix sizes.",
        measured=f"At {words.count(sizes[-1])} rows, "
        + "; ".join(
            f"noise {noise:g}: "
            + ", ".join(f"{words.number(by_noise[name][k], 4)} in {name}" for name in FORMATS)
            for k, noise in enumerate(NOISES)
        )
        + ". With eigenvalues taken as magnitudes, half has "
        + _listed(data["magnitudes"]["half"])
        + ".",
        verdict=Verdict.of(*larger),
        reason="Eigenvalues that are smaller than the rounding error become about ± its size: below the"
        " noise that adds to the sum of λ / (λ + σ²), above it nothing is gained, and what becomes negative,"
        " counted as zero, is lost.",
        required=required,
    )
    second = Claim(
        text="As rows are added, the effective dimension grows much faster in half.",
        paper="It increases much faster for the half precision kernel.",
        measured=f"From {words.count(sizes[0])} to {words.count(sizes[-1])} rows at noise {NOISE:g} it grows "
        + ", ".join(f"{words.number(growth[name], 3)} times in {name}" for name in FORMATS)
        + ".",
        verdict=Verdict.of(growth["half"] > growth["double"], growth["half"] > 2 * growth["double"]),
        reason="The norm of the rounding error grows with the rows, the smallest eigenvalues do not. “Much"
        " faster” is taken for twice.",
    )
    return first, second


def dimension_panels(data: Data) -> list[Panel]:
    """Against rows, and against the noise."""
    largest = words.count(data["sizes"][-1])

    def by_size(axes: Axes) -> None:
        _lines(axes, data["sizes"], data["dimension"])
        count_axis(axes, data["sizes"])
        number_axis(axes)
        axes.plot(data["sizes"], data["sizes"], ":", color=REFERENCE, linewidth=1.5)
        axes.set(xlabel="rows", ylabel="effective dimension")

    def by_noise(axes: Axes) -> None:
        _lines(axes, data["noises"], data["by_noise"])
        axes.set_xscale("log")
        number_axis(axes)
        axes.set(xlabel="noise", ylabel="effective dimension")

    return [
        Panel(f"by rows, noise {NOISE:g}", by_size, "Dotted: as many as there are rows."),
        Panel(f"by noise, {largest} rows", by_noise),
    ]


def _lines(axes: Axes, x: Sequence[float], by_format: dict[str, list[float]]) -> None:
    for name, values in by_format.items():
        style = "o--" if name == "bfloat16" else "o-"
        axes.plot(x, values, style, color=COLOURS[name], linewidth=width(name), markersize=4, label=name)


def _listed(values: Sequence[float]) -> str:
    *others, last = (words.number(value, 4) for value in values)
    return f"{', '.join(others)} and {last}"


def _part(
    name: str, place: str, label: str, kernel: Kernel, *, more: str = "", required: bool = False
) -> Part:
    """The effective dimension of one kernel.

    Args:
        name: of the part.
        place: in the paper.
        label: of the kernel.
        kernel: with its lengthscale.
        more: to say in the note.
        required: whether half must have the larger one.
    """

    def measure(context: Context) -> Outcome:
        """Decompose growing matrices in every format."""
        data = dimensions(kernel, context)
        return Outcome(
            data,
            dimension_claims(data, required=required),
            f"{label} with lengthscale 1 on points drawn uniformly from [−3, 3], evaluated in the format. The"
            f" sum of λ / (λ + σ²), negative eigenvalues counted as zero.{more}",
        )

    return Part(
        name, f"Effective dimension, {label}", place, __name__, measure, dimension_panels, minutes=1.4
    )


PARTS = (
    _part("fig2e", "Figure 2e", "Matérn-1/2", Matern(nu=0.5), more=" The paper does not tell its noise."),
    _part("appendix_rbf_effective_dimension", "Appendix, Figure A.2b", "RBF", RBF(), required=True),
)
