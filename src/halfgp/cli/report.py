"""`halfgp report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from halfgp.cli import options
from halfgp.cli.models import NamedModel, read_rows
from halfgp.cli.output import check_output, show, show_json
from halfgp.replacement import write_whole
from halfgp.report import Evaluation, build_page
from halfgp.report.words import size


def run(
    model: options.Model,
    data: options.Data,
    output: Annotated[Path, typer.Option("--output", "-o", help="Page to write, .html.", show_default=False)],
    target: options.KnownTarget = None,
    header: options.Header = None,
    delimiter: options.Delimiter = None,
    decimal: options.Decimal = None,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Write one HTML page about a model and its predictions for rows whose target is known.

    The page needs no network and no scripts. Data that the model was not fitted on tell the most.
    """
    check_output(output, [model, data])
    dialect = options.dialect(header, delimiter, decimal)
    named = NamedModel.load(model)
    rows = read_rows(named, data, target, dialect)
    evaluation = Evaluation.of(
        named.gp,
        rows.X,
        rows.y,
        model=model.name,
        data=rows.source.name,
        dropped=rows.dropped,
        feature_names=named.columns,
        target_name=rows.target_name,
    )
    page = build_page(named.gp, evaluation)
    write_whole(output, page)
    if as_json:
        show_json({"output": output, "bytes": len(page.encode()), "scores": evaluation.scores.as_dict()})
    elif not quiet:
        show(f"{output}: {evaluation.scores} ({size(len(page.encode()))})")
