"""Figure 1: elementwise logarithms of RBF matrices in double, single and half; zero entries stay empty."""

from __future__ import annotations

from functools import partial

import torch

from halfgp.analysis import as_format, kernel_matrix, largest_distance
from halfgp.kernels import RBF
from halfgp.paper.context import Context
from halfgp.paper.images import draw_matrix
from halfgp.paper.part import Claim, Data, Outcome, Panel, Part, Verdict
from halfgp.report import words

ROWS = 500
ENDS = {"double": 20.0, "single": 10.0, "half": 10.0}  # of the interval, as in the paper
SHOWN = 4  # every fourth row and column is drawn


def measure(context: Context) -> Outcome:
    """Evaluate the matrices in each format; the same in quick and in full."""
    data: Data = {"end": ENDS, "log10": {}, "zeros": {}, "foreseen": {}}
    for name, end in ENDS.items():
        x = torch.linspace(-end, end, ROWS, dtype=torch.float64)[:, None]
        entries = kernel_matrix(RBF(), x, name, rounding="evaluation")
        shown = entries[::SHOWN, ::SHOWN]
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


def panels(data: Data) -> list[Panel]:
    """One for each format; the colours are those of its own range."""
    found = []
    for name, rows in data["log10"].items():
        least = min(value for row in rows for value in row if value is not None)
        found.append(Panel(name, partial(draw_matrix, rows, (least, 0.0), "log₁₀ of the entry")))
    return found


PART = Part(
    name="fig1",
    title="RBF matrices, elementwise logarithm",
    place="Figure 1",
    module=__name__,
    measure=measure,
    panels=panels,
)
