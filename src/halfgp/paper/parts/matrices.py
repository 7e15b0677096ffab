"""Pictures of RBF matrices in double, single and half: their logarithms, and inverses.

Figure 1, and A.3 of the appendix.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch

from halfgp.analysis import RoundedInverse, as_format, inverse_of_rounded, kernel_matrix, largest_distance
from halfgp.kernels import RBF
from halfgp.paper.frame.context import Context
from halfgp.paper.frame.part import Claim, Data, Outcome, Panel, Part, Verdict
from halfgp.report import words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROWS = 500
ENDS = {"double": 20.0, "single": 10.0, "half": 10.0}  # of the interval, as in the paper
STRIDE = 4  # every fourth row and column is drawn
INVERTED_ROWS, INVERTED_END, NOISE = 50, 3.0, 0.01
FORMATS = ("double", "single", "half", "bfloat16")
SHOWN = ("double", "single", "half")
VISIBLE = 0.01  # a relative difference that a picture shows


def _logarithms(_context: Context) -> Outcome:
    """Evaluate the matrices in each format; the same in quick and in full."""
    data: Data = {"end": ENDS, "log10": {}, "zeros": {}, "foreseen": {}}
    for name, end in ENDS.items():
        x = torch.linspace(-end, end, ROWS, dtype=torch.float64)[:, None]
        entries = kernel_matrix(RBF(), x, name, rounding="evaluation")
        shown = entries[::STRIDE, ::STRIDE]
        data["log10"][name] = shown.log10().round(decimals=2)  # minus infinity, which is stored as null
        data["zeros"][name] = float((entries == 0).double().mean())
        data["foreseen"][name] = float((torch.cdist(x, x) > largest_distance(RBF(), name)).double().mean())
    return Outcome(
        data,
        claims=(_truncated(data),),
        note=f"exp(−d²/2) of {ROWS} evenly spaced points in [−10, 10], for double in [−20, 20] as in the"
        " paper, with points and every operation in the format. Every fourth row and column is drawn.",
    )


def _truncated(data: Data) -> Claim:
    zeros, foreseen = data["zeros"], data["foreseen"]
    # A distance is rounded before its covariance is, which moves the edge by a few units of round-off.
    close = [
        abs(zeros[name] - foreseen[name]) <= 1 / ROWS + 8 * as_format(name).unit_roundoff for name in zeros
    ]
    return Claim(
        text="The lower the precision, the more of an RBF matrix is exactly zero.",
        paper="White areas, where entries are zero, grow from double to single to half.",
        measured="Exactly zero are "
        + ", ".join(
            f"{words.percent(zeros[name])} of the entries in {name} on [−{end:g}, {end:g}]"
            for name, end in ENDS.items()
        )
        + "; by the largest representable distance it should be "
        + ", ".join(words.percent(foreseen[name]) for name in ENDS)
        + ".",
        verdict=Verdict.of(zeros["half"] > zeros["single"], *close),
        reason="exp(−d²/2) falls below half the smallest subnormal number at a distance of"
        f" {words.number(largest_distance(RBF(), 'half'), 3)} in half,"
        f" {words.number(largest_distance(RBF(), 'single'), 3)} in single and"
        f" {words.number(largest_distance(RBF(), 'double'), 3)} in double.",
    )


def _logarithm_panels(data: Data) -> list[Panel]:
    """One for each format; the colours are those of its own range."""
    found = []
    for name, rows in data["log10"].items():
        least = min(value for row in rows for value in row if value is not None)
        found.append(Panel(name, partial(_draw, rows, (least, 0.0), "log₁₀ of the entry")))
    return found


def _inverses(_context: Context) -> Outcome:
    """Evaluate in each format, invert in double; the same in quick and in full."""
    x = torch.linspace(-INVERTED_END, INVERTED_END, INVERTED_ROWS, dtype=torch.float64)[:, None]
    found = {name: inverse_of_rounded(RBF(), x, name, NOISE) for name in FORMATS}
    exact = found["double"].inverse
    data: Data = {
        "inverse": {name: found[name].inverse for name in SHOWN},
        "least": {name: inverse.least_eigenvalue for name, inverse in found.items()},
        "difference": {
            name: float((inverse.inverse - exact).norm() / exact.norm()) for name, inverse in found.items()
        },
        "off_diagonal": {name: _off_diagonal(inverse) for name, inverse in found.items()},
    }
    return Outcome(
        data,
        claims=(_distinct(data), _larger(data)),
        note=f"(K + {NOISE:g} I)⁻¹ of an RBF kernel with lengthscale 1 on {INVERTED_ROWS} evenly spaced"
        f" points in [−{INVERTED_END:g}, {INVERTED_END:g}]. Points and every operation of K are in the"
        " format, the inverse is in double.",
    )


def _off_diagonal(found: RoundedInverse) -> float:
    """Root mean square of the entries off the diagonal."""
    entries = found.inverse - found.inverse.diagonal().diag()
    return float(entries.square().sum().div(INVERTED_ROWS * (INVERTED_ROWS - 1)).sqrt())


def _distinct(data: Data) -> Claim:
    difference = data["difference"]
    return Claim(
        text="The inverse of a matrix evaluated in half differs from that in double, where single does not.",
        paper="The half precision inverse is qualitatively distinct from the other two.",
        measured="Relative differences from double, in the Frobenius norm: "
        + ", ".join(f"{words.number(difference[name], 2)} in {name}" for name in FORMATS[1:])
        + ".",
        verdict=Verdict.of(difference["half"] > VISIBLE, difference["single"] < VISIBLE),
        reason="An inverse changes by about the error of the matrix over its least eigenvalue, here that of"
        f" K plus {NOISE:g}. The least eigenvalues of what was inverted: "
        + ", ".join(f"{words.number(data['least'][name], 3)} in {name}" for name in FORMATS)
        + ".",
    )


def _larger(data: Data) -> Claim:
    size = data["off_diagonal"]
    return Claim(
        text="The inverse of a matrix evaluated in half has larger entries off the diagonal.",
        paper="Larger magnitude off-diagonal values.",
        measured="Root mean squares off the diagonal: "
        + ", ".join(f"{words.number(size[name], 4)} in {name}" for name in FORMATS)
        + ".",
        verdict=Verdict.of(size["half"] > size["double"], size["half"] > size["single"]),
        reason="Eigenvalues of K that are nearly zero become positive and negative ones. Those of 1 / (λ +"
        " noise) that grow do so by more than the others shrink, for it is convex.",
    )


def _inverse_panels(data: Data) -> list[Panel]:
    """One for each format, all in the same colours; the diagonal is beyond their range."""
    largest = max(
        abs(value)
        for rows in data["inverse"].values()
        for i, row in enumerate(rows)
        for j, value in enumerate(row)
        if i != j
    )
    return [
        Panel(name, partial(_draw, rows, (-largest, largest), "entry", colours="RdBu"))
        for name, rows in data["inverse"].items()
    ]


def _draw(
    entries: Sequence[Sequence[float | None]],
    limits: tuple[float, float],
    label: str,
    axes: Axes,
    colours: str = "viridis",
) -> None:
    """A matrix as an image with a scale beside it; what is None stays empty.

    Args:
        entries: rows, as a result has them.
        limits: of the colours.
        label: of the scale.
        axes: to draw into.
        colours: a colour map of matplotlib.
    """
    values = np.ma.masked_invalid(np.array(entries, dtype=float))
    image = axes.imshow(values, cmap=colours, vmin=limits[0], vmax=limits[1], interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.grid(False)
    scale = axes.figure.colorbar(image, ax=axes, label=label)
    scale.outline.set_visible(False)


PARTS = (
    Part(
        name="fig1",
        title="RBF matrices, elementwise logarithm",
        place="Figure 1",
        module=__name__,
        measure=_logarithms,
        panels=_logarithm_panels,
    ),
    Part(
        name="appendix_inverses",
        title="Inverses of an RBF matrix",
        place="Appendix, Figure A.3",
        module=__name__,
        measure=_inverses,
        panels=_inverse_panels,
    ),
)
