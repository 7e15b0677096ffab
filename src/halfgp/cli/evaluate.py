"""`halfgp evaluate`."""

from __future__ import annotations

from rich.table import Table

from halfgp.cli import options
from halfgp.cli.models import NamedModel, read_rows
from halfgp.cli.output import remark, show, show_json
from halfgp.report import words
from halfgp.report.summary import r_squared, training_rows
from halfgp.scores import Scores


def run(
    model: options.Model,
    data: options.Data,
    target: options.KnownTarget = None,
    header: options.Header = None,
    delimiter: options.Delimiter = None,
    decimal: options.Decimal = None,
    as_json: options.AsJson = False,
) -> None:
    """Score the predictions for rows whose target is known."""
    dialect = options.dialect(header, delimiter, decimal)
    named = NamedModel.load(model)
    rows = read_rows(named, data, target, dialect)
    predicted = named.gp.predict(rows.X, return_std=True)
    found, seen = named.gp.fitted.scores(rows.y, predicted), training_rows(named.gp, rows.X)
    explained = r_squared(rows.y, found.rmse)
    if as_json:
        more = {"r_squared": explained, "dropped": rows.dropped, "training_rows": seen}
        show_json({**found.as_dict(), **more})
        return
    if seen:
        share = words.percent(seen / len(rows.y), 0)
        remark(f"Warning: {share} of these rows were trained on, and flatter the model.", "bold yellow")
    if rows.dropped:
        remark(f"Warning: {words.plural(rows.dropped, 'row')} without a value left out.", "bold yellow")
    show(_table(found, explained, rows.target_name))


def _table(found: Scores, explained: float | None, unit: str) -> Table:
    title = f"{words.plural(found.rows, 'row')}, errors in units of {unit}"
    table = Table(box=None, padding=(0, 2, 0, 0), title=title, title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_column(style="dim")
    table.add_row("RMSE", words.number(found.rmse), "root mean squared error")
    table.add_row("MAE", words.number(found.mae), "mean absolute error")
    table.add_row("R²", words.number(explained), "share of the variance explained")
    table.add_row(
        "NLL", words.number(found.nll), f"nats; with one constant std {words.number(found.constant_nll)}"
    )
    table.add_row("CRPS", words.number(found.crps), "lower is better")
    normal = found.coverage or {}
    for level, share in (found.interval_coverage or {}).items():
        table.add_row(
            f"in {words.percent(level, 0)}",
            words.percent(share),
            f"intervals hold so many of the values; normal ones {words.percent(normal[level])}",
        )
    return table
