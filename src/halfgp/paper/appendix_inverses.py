"""Appendix, Figure A.3: inverses of an RBF matrix evaluated in double, single and half."""

from __future__ import annotations

from functools import partial

import torch

from halfgp.analysis import RoundedInverse, inverse_of_rounded
from halfgp.kernels import RBF
from halfgp.paper.context import Context
from halfgp.paper.images import draw_matrix
from halfgp.paper.part import Claim, Data, Outcome, Panel, Part, Verdict
from halfgp.report import words

ROWS, END, NOISE = 50, 3.0, 0.01
FORMATS = ("double", "single", "half", "bfloat16")
SHOWN = ("double", "single", "half")
VISIBLE = 0.01  # a relative difference that a picture shows


def measure(context: Context) -> Outcome:
    """Evaluate in each format, invert in double; the same in quick and in full."""
    x = torch.linspace(-END, END, ROWS, dtype=torch.float64)[:, None]
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
        note=f"(K + {NOISE:g} I)⁻¹ of an RBF kernel with lengthscale 1 on {ROWS} evenly spaced points in"
        f" [−{END:g}, {END:g}]. Points and every operation of K are in the format, the inverse is in double.",
    )


def _off_diagonal(found: RoundedInverse) -> float:
    """Root mean square of the entries off the diagonal."""
    entries = found.inverse - found.inverse.diagonal().diag()
    return float(entries.square().sum().div(ROWS * (ROWS - 1)).sqrt())


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


def panels(data: Data) -> list[Panel]:
    """One for each format, all in the same colours; the diagonal is beyond their range."""
    largest = max(
        abs(value)
        for rows in data["inverse"].values()
        for i, row in enumerate(rows)
        for j, value in enumerate(row)
        if i != j
    )
    return [
        Panel(name, partial(draw_matrix, rows, (-largest, largest), "entry", colours="RdBu"))
        for name, rows in data["inverse"].items()
    ]


PART = Part(
    name="appendix_inverses",
    title="Inverses of an RBF matrix",
    place="Appendix, Figure A.3",
    module=__name__,
    measure=measure,
    panels=panels,
)
