"""How the tables are laid out: a row for each set and method, the paper's figures beside ours."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from halfgp.paper.part import Data, Table
from halfgp.paper.published import STAND_INS, name_of
from halfgp.paper.uci_records import LABELS
from halfgp.report import words

HEADINGS = {"rmse": "RMSE", "nll": "NLL", "fit_seconds": "fit, s"}
NOTHING = "–"
CAPTION = (
    "“Paper” is what the paper has for the set, or for the one that it stands in for, in the same precision."
)


def table(data: Data, quantities: Sequence[str] = tuple(HEADINGS)) -> Table:
    """Of all records."""
    heading = ["set", "rows × features", "method"]
    for name in quantities:
        heading += [HEADINGS[name], "paper"]
    rows = [_row(record, quantities) for record in data["records"]]
    return Table(tuple(heading), tuple(rows), CAPTION)


def label(set_name: str) -> str:
    """Of a set, with what it stands in for."""
    return f"{set_name} (for {name_of(set_name)})" if set_name in STAND_INS else set_name


def size(record: Data) -> str:
    """Rows and features; a dash for a method that is not installed."""
    return NOTHING if record["rows"] is None else f"{words.count(record['rows'])} × {record['features']}"


def _row(record: Data, quantities: Sequence[str]) -> tuple[str, ...]:
    cells = [label(record["set"]), size(record), LABELS[record["method"]]]
    for name in quantities:
        digits = 1 if name == "fit_seconds" else 3
        paper = record["paper"][name]
        cells.append(spread(record[name], digits) if record["installed"] else "not installed")
        cells.append(NOTHING if paper is None else with_deviation(paper[0], paper[1], digits))
    return tuple(cells)


def spread(values: Sequence[float], digits: int) -> str:
    """Mean and, of several, standard deviation; so many digits after the point."""
    if not values:
        return NOTHING
    return with_deviation(
        statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, digits
    )


def with_deviation(value: float, deviation: float | None, digits: int) -> str:
    """As "0.117 ± 0.004"; from a thousand on, whole numbers."""
    digits = 0 if abs(value) >= 1000 else digits
    text = f"{value:,.{digits}f}".replace("-", "−")
    return text if deviation is None else f"{text} ± {deviation:,.{digits}f}"
