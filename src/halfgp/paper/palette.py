"""One colour for each format and method in all pictures; they follow the page into dark mode."""

from __future__ import annotations

from halfgp.report.pictures import ACCENT, FAINT, FOURTH, INK, SECOND, THIRD

COLOURS = {
    "double": INK,
    "single": ACCENT,
    "half": SECOND,
    "bfloat16": THIRD,
    "svgp": FOURTH,
}
SERIES = (ACCENT, SECOND, THIRD, FOURTH, INK)  # for lines that are told apart by something else
REFERENCE = FAINT  # for lines to compare with
