"""The page itself: facts and pictures put into `page.html`. Whatever comes from a file is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files
from string import Template

import numpy as np

from halfgp import doctor
from halfgp.choices import choose_noise_floor
from halfgp.model import ExactGP
from halfgp.report import pictures, words
from halfgp.report.evaluation import LEVELS, Evaluation, Floats
from halfgp.report.summary import Feature, Summary, how_it_was_fitted, leave_one_out_scores, summarise

TableRows = Sequence[tuple[str, str]]


def build_page(gp: ExactGP, evaluation: Evaluation) -> str:
    """HTML in one piece, without scripts and addresses, about a fitted model with one target."""
    template = Template(files("halfgp.report").joinpath("page.html").read_text(encoding="utf-8"))
    summary = summarise(gp, evaluation.feature_names)
    e = evaluation
    return template.substitute(
        style=style_sheet(),
        title=escape(f"{e.model} on {e.data}"),
        target=escape(e.target_name),
        subtitle=escape(
            f"{words.plural(gp.report.rows, 'row')} fitted, {words.plural(len(e.y), 'row')} scored,"
            f" {words.plural(len(e.feature_names), 'feature')}"
        ),
        notices=_notices(gp, e),
        tiles=_tiles(e),
        scores=_table(_scores(e)),
        coverage=_table(_coverage(gp, e)),
        calibration=_figure(
            pictures.calibration_picture(LEVELS, e.inside, e.inside_normal, len(e.y)),
            "Calibration",
            "Below the diagonal intervals are too narrow, above it too wide. They come from quantiles of"
            " leave-one-out residuals; normal ones from the deviation alone.",
        ),
        residuals=_figure(
            pictures.residual_picture(e.y, e.mean, e.std, e.target_name), "Residuals", _sampled(len(e.y))
        ),
        standardised=_figure(
            pictures.standardised_picture(e.y, e.mean, e.std), "Standardised residuals", _outliers(e)
        ),
        relevance=_relevance(summary),
        hyperparameters=_table(_hyperparameters(summary)),
        history=_history(gp),
        error=_figure(
            pictures.error_picture(e.error.mean, e.error.std, e.std),
            "Numerical error",
            "Estimates of what rounding and unfinished solves did; at 1 they would equal the uncertainty.",
        ),
        errors=_table(_errors(e)),
        fitted=_table(how_it_was_fitted(gp.report)),
        settings=_table(_settings(gp)),
        made_with=escape(_made_with()),
    )


def style_sheet() -> str:
    """CSS that all pages share."""
    return files("halfgp.report").joinpath("style.css").read_text(encoding="utf-8")


def _notices(gp: ExactGP, e: Evaluation) -> str:
    """What a reader must know before the scores."""
    texts = []
    if e.trained_on:
        share = words.percent(e.trained_on / len(e.y), 0)
        texts.append(f"{share} of the scored rows were trained on: their scores flatter the model.")
    if e.dropped:
        texts.append(f"{words.plural(e.dropped, 'row')} of {e.data} without a value left out.")
    if gp.report.interrupted:
        texts.append("Training was ended early, by Ctrl-C.")
    return "".join(f'<p class="notice">{escape(text)}</p>' for text in texts)


def _tiles(e: Evaluation) -> str:
    """The four figures that say most."""
    coverage = (e.scores.interval_coverage or {}).get(0.95)
    worse = (e.scores.nll or 0.0) - (e.scores.constant_nll or 0.0)
    side = "above" if worse > 0 else "below"
    tiles = [
        ("RMSE", words.number(e.scores.rmse), f"in units of {e.target_name}"),
        ("R²", words.number(e.r_squared, 3), "of the variance explained"),
        ("NLL", words.number(e.scores.nll, 3), f"nats, {words.number(abs(worse), 2)} {side} a constant std"),
        ("Coverage", "–" if coverage is None else words.percent(coverage), "inside 95 % intervals"),
    ]
    return "".join(
        f'<div class="tile"><span class="label">{escape(label)}</span>'
        f'<span class="value">{escape(value)}</span><span class="unit">{escape(unit)}</span></div>'
        for label, value, unit in tiles
    )


def _scores(e: Evaluation) -> TableRows:
    s = e.scores
    return [
        ("root mean squared error (RMSE)", words.number(s.rmse)),
        ("mean absolute error (MAE)", words.number(s.mae)),
        ("continuous ranked probability score (CRPS)", words.number(s.crps)),
        ("negative log-likelihood (NLL)", words.number(s.nll)),
        ("NLL with the best constant std", words.number(s.constant_nll)),
    ]


def _coverage(gp: ExactGP, e: Evaluation) -> TableRows:
    normal = e.scores.coverage or {}
    rows = [
        (
            f"inside {words.percent(level, 0)} intervals",
            f"{words.percent(share)}; normal ones {words.percent(normal[level])}",
        )
        for level, share in (e.scores.interval_coverage or {}).items()
    ]
    left_out = leave_one_out_scores(gp)
    if left_out is not None:
        rows.append(("leave-one-out RMSE, training rows", words.number(left_out.rmse)))
        rows.append(("leave-one-out NLL, training rows", words.number(left_out.nll)))
    return rows


def _hyperparameters(summary: Summary) -> TableRows:
    noise = "given for every row" if summary.noise_std is None else words.number(summary.noise_std)
    return [
        ("kernel", summary.kernel),
        ("noise (std)", noise),
        ("signal (std)", words.number(summary.signal_std)),
        ("mean", words.number(summary.mean)),
    ]


def _relevance(summary: Summary) -> str:
    """A table with bars, the most relevant first."""
    if all(feature.relevance is None for feature in summary.features):
        return "<p>This kernel has no lengthscale of its own for each feature.</p>"
    head = "<tr><th>feature</th><th>relevance</th><th></th><th>lengthscale</th></tr>"
    body = "".join(_relevance_row(feature) for feature in summary.by_relevance())
    return (
        f'<div class="wide"><table class="relevance"><thead>{head}</thead><tbody>{body}</tbody></table></div>'
    )


def _relevance_row(feature: Feature) -> str:
    share = feature.relevance or 0.0
    bar = f'<span class="bar" style="width:{100 * share:.1f}%"></span>'
    return (
        f'<tr><th scope="row">{escape(feature.name)}</th><td class="bars">{bar}</td><td>{share:.2f}</td>'
        f"<td>{words.number(feature.lengthscale, 3)}</td></tr>"
    )


def _history(gp: ExactGP) -> str:
    if not gp.history:
        return "<p>The model was not trained: its hyperparameters are where they started.</p>"
    figures = [
        _figure(pictures.loss_picture(gp.history), "Loss", _losses(gp)),
        _figure(pictures.hyperparameter_picture(gp.history), "Hyperparameters", "On standardised columns."),
    ]
    solves = pictures.solve_picture(gp.history)
    if solves is not None:
        figures.append(_figure(solves, "Solves", "Each step on all rows takes so many products with K."))
    notes = [(f"{step.stage} {step.index}", step.note) for step in gp.history if step.note]
    return f'<div class="figures">{"".join(figures)}</div>{_table(notes) if notes else ""}'


def _losses(gp: ExactGP) -> str:
    last = gp.history[-1]
    error = f" ± {words.number(last.loss_error, 2)}" if last.loss_error > 0 else ""
    stages = {step.stage for step in gp.history}
    some = (
        " A subset sees some rows, neighbourhoods see some rows given near ones."
        if "subset" in stages
        else ""
    )
    return f"Minus the log posterior, at the end {words.number(last.loss)}{error} nats per row.{some}"


def _errors(e: Evaluation) -> TableRows:
    rows = [("of the mean, in predictive stds", _quantiles(e.error.mean / e.std))]
    if e.error.std is not None:
        rows.append(("of the std, relative to it", _quantiles(e.error.std / e.std)))
    rows.append(
        ("of the mean, at most, in units of the target", words.number(float(np.max(e.error.mean)), 2))
    )
    return rows


def _quantiles(values: Floats) -> str:
    middle, high, top = (words.number(float(q), 2) for q in np.quantile(values, [0.5, 0.99, 1.0]))
    return f"median {middle}, 99 % below {high}, at most {top}"


def _settings(gp: ExactGP) -> TableRows:
    """What was asked for."""
    shown = gp.settings
    floor = choose_noise_floor(shown.noise_floor, shown.noise, gp.fitted.features)
    rows = [("seed", str(shown.random_state)), ("noise floor", words.number(floor))]
    if gp.report.method == "cg":
        precision = shown.precision if isinstance(shown.precision, str) else shown.precision.name
        used = list(dict.fromkeys(step.precision for step in gp.history if step.stage == "cg"))
        rows = [
            ("precision", f"{precision}{', which took ' + ', '.join(used) if used else ''}"),
            (
                "tolerance",
                f"{words.number(shown.training.tol)} in training, {words.number(shown.solve.tol)} at the end",
            ),
            ("probes", str(shown.training.probes)),
            ("subset", words.plural(shown.training.subset, "row")),
            *rows,
        ]
    return rows


def _made_with() -> str:
    found = doctor.examine()
    versions = " · ".join(f"{name} {version}" for name, version in found.versions.items())
    return f"{versions}; on {found.processor}, {words.plural(found.cores, 'core')}."


def _sampled(rows: int) -> str:
    if rows <= pictures.MOST_POINTS:
        return "Each value about its prediction."
    return f"A random {words.count(pictures.MOST_POINTS)} of {words.count(rows)} rows."


def _outliers(e: Evaluation) -> str:
    far = int(np.sum(np.abs(e.y - e.mean) > 5 * e.std))
    return (
        f"{words.plural(far, 'value')} beyond ±5, counted in the outermost bars."
        if far
        else "None beyond ±5."
    )


def _figure(svg: str, title: str, caption: str) -> str:
    return f"<figure><h3>{escape(title)}</h3>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def _table(rows: TableRows) -> str:
    body = "".join(f'<tr><th scope="row">{escape(a)}</th><td>{escape(b)}</td></tr>' for a, b in rows)
    return f'<div class="wide"><table><tbody>{body}</tbody></table></div>'
