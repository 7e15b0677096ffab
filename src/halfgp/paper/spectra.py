"""Eigenvalues of a kernel evaluated in each format, and its effective dimension: a study of kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from halfgp.analysis import effective_dimension, eigenvalues
from halfgp.kernels import Kernel
from halfgp.paper.context import Context
from halfgp.paper.palette import COLOURS, REFERENCE
from halfgp.paper.part import Claim, Data, Panel, Verdict
from halfgp.paper.scales import count_axis, number_axis
from halfgp.report import words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = ("double", "single", "half", "bfloat16")
END = 3.0  # of the interval that points are drawn from
NOISE = 0.01  # the paper tells one for its inverses only, and that is it
NOISES = (0.001, 0.01, 0.1)
LEVEL = 1e-5  # of the largest eigenvalue
DRAWN = 150  # eigenvalues of a line


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
            axes.loglog(data["index"], shown, style, color=COLOURS[name], linewidth=_width(name), label=name)
        axes.set(xlabel="index", ylabel="eigenvalue", ylim=(1e-8 * data["largest"]["double"], None))

    return [Panel("", draw)]


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
        axes.plot(x, values, style, color=COLOURS[name], linewidth=_width(name), markersize=4, label=name)


def _width(name: str) -> float:
    """Double is drawn first, and wide enough to be seen below what lies on it."""
    return 5.0 if name == "double" else 2.0


def _listed(values: Sequence[float]) -> str:
    *others, last = (words.number(value, 4) for value in values)
    return f"{', '.join(others)} and {last}"
