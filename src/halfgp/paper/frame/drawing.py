"""What pictures have in common: one colour for each format and method, and axes that people read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from halfgp.report import words
from halfgp.report.pictures import ACCENT, FAINT, FOURTH, INK, SECOND, THIRD

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {
    "double": INK,
    "single": ACCENT,
    "half": SECOND,
    "bfloat16": THIRD,
    "svgp": FOURTH,
}
SERIES = (ACCENT, SECOND, THIRD, FOURTH, INK)  # for lines that are told apart by something else
REFERENCE = FAINT  # for lines to compare with
MOST_TICKS = 5  # labels such as 16,384 that fit below one panel


def count_axis(axes: Axes, counts: Sequence[int]) -> None:
    """A logarithmic horizontal axis with ticks at these counts, or some of them, the last included."""
    axes.set_xscale("log")
    step = -(-len(counts) // MOST_TICKS)
    shown = list(counts)[::-1][::step]
    axes.set_xticks(shown, labels=[words.count(value) for value in shown])
    axes.minorticks_off()


def number_axis(axes: Axes) -> None:
    """A logarithmic vertical axis with plain numbers, for a range of few decades."""
    from matplotlib.ticker import LogFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(LogFormatter())
    axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.4)))
