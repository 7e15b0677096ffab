"""How records are shown, ours beside the paper's.

As a table with a row for each set and method, or as a picture with a mark for each method by set.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from halfgp.paper.frame.drawing import COLOURS
from halfgp.paper.frame.part import Data, Table
from halfgp.paper.studies.published import METHODS, NAMES, STAND_INS, name_of, published
from halfgp.paper.studies.records import LABELS
from halfgp.report import words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEADINGS = {"rmse": "RMSE", "nll": "NLL", "fit_seconds": "fit, s"}
NOTHING = "–"
CAPTION = (
    "“Paper” is what the paper has for the set, or for the one that it stands in for, in the same precision."
)
BREADTH = 0.8  # of all marks of a set, where the next one is at 1


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


def ours(found: Sequence[Data], quantity: str, methods: Sequence[str] = tuple(LABELS)) -> Data:
    """Labels of the sets and, by method, mean and standard deviation of each; None where there is none."""
    sets = list(dict.fromkeys(record["set"] for record in found))
    by_name = {(record["set"], record["method"]): record[quantity] for record in found}
    values = {
        method: [_summary(by_name[name, method]) if (name, method) in by_name else None for name in sets]
        for method in methods
    }
    return {"labels": [name.partition("_")[0] for name in sets], "values": values}


def theirs(sets: Iterable[str], quantity: str, methods: Sequence[str] = METHODS) -> Data:
    """The same of the paper's sets, from its tables."""
    sets = list(sets)
    found = {method: [published("rbf", quantity, name, method) for name in sets] for method in methods}
    return {
        "labels": [NAMES[name] for name in sets],
        "values": {
            method: [None if figure is None else [figure.value, figure.deviation] for figure in figures]
            for method, figures in found.items()
        },
    }


def _summary(values: Sequence[float]) -> list[float | None] | None:
    if not values:
        return None
    return [statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None]


def draw_times(shown: Data, axes: Axes) -> None:
    """Bars of seconds; points on a logarithmic axis where they differ by more than an order of magnitude."""
    seconds = [cell[0] for cells in shown["values"].values() for cell in cells if cell]
    draw = draw_points if max(seconds) > 10 * min(seconds) else draw_bars
    draw(shown, "seconds", axes)


def draw_bars(shown: Data, ylabel: str, axes: Axes) -> None:
    """Bars from zero, with a line of one standard deviation up and down."""
    for method, at, values, errors in _series(shown):
        axes.bar(
            at,
            values,
            BREADTH / len(shown["values"]),
            yerr=errors,
            color=COLOURS[method],
            label=LABELS[method],
            error_kw={"linewidth": 1, "ecolor": COLOURS["double"]},
        )
    _name_sets(shown, ylabel, axes)


def draw_points(shown: Data, ylabel: str, axes: Axes) -> None:
    """Points on a logarithmic axis, for what differs by orders of magnitude."""
    for method, at, values, errors in _series(shown):
        axes.errorbar(
            at, values, yerr=errors, fmt="o", color=COLOURS[method], markersize=6, label=LABELS[method]
        )
    axes.set_yscale("log")
    _name_sets(shown, ylabel, axes)


def _series(
    shown: Data,
) -> list[tuple[str, np.ndarray, np.ndarray, np.ndarray]]:
    """Method, places, values and deviations, of the methods that have any."""
    some = {method: cells for method, cells in shown["values"].items() if any(cells)}
    found = []
    for k, (method, cells) in enumerate(some.items()):
        at = np.arange(len(cells)) + BREADTH * ((k + 0.5) / len(some) - 0.5)
        values = np.array([cell[0] if cell else None for cell in cells], dtype=float)
        errors = np.array([cell[1] or 0.0 if cell else 0.0 for cell in cells])  # one seed has no deviation
        found.append((method, at, values, errors))
    return found


def _name_sets(shown: Data, ylabel: str, axes: Axes) -> None:
    axes.set_xticks(range(len(shown["labels"])), shown["labels"], rotation=35, ha="right")
    axes.tick_params(axis="x", length=0)
    axes.grid(visible=False, axis="x")
    axes.set_ylabel(ylabel)
