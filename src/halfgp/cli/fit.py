"""`halfgp fit`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from halfgp.choices import are_compact
from halfgp.cli import options
from halfgp.cli.failures import INTERRUPTED, Interruption, naming
from halfgp.cli.models import NamedModel, TrainingRows, new_model, read_training
from halfgp.cli.output import check_output, facts, remark, show, show_json
from halfgp.compact import CompactPoints
from halfgp.distributed import Traffic
from halfgp.distributed.agreement import require_agreement
from halfgp.distributed.membership import joined
from halfgp.errors import FileError, InputError, UnsolvedError
from halfgp.launcher import is_first
from halfgp.model import ExactGP
from halfgp.progress import shown_progress
from halfgp.report import words
from halfgp.report.summary import Summary, how_it_was_fitted, leave_one_out_scores, summarise
from halfgp.scores import Scores, score
from halfgp.settings import Settings, SolveOptions, TrainingOptions, VarianceOptions
from halfgp.tables import Floats
from halfgp.training import solve_path

SHOWN = 20  # features in the table


def run(
    data: options.Data,
    target: options.Target,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the model goes.", show_default=False)],
    features: options.Features = None,
    drop: options.Drop = None,
    header: options.Header = None,
    delimiter: options.Delimiter = None,
    decimal: options.Decimal = None,
    kernel: options.Kernel = str(Settings.kernel),
    ard: options.Ard = Settings.ard,
    mean: options.Mean = str(Settings.mean),
    priors: options.Priors = str(Settings.priors),
    noise: options.Noise = None,
    noise_floor: options.NoiseFloor = Settings.noise_floor,
    training__steps: options.Steps = TrainingOptions.steps,
    training__subset: options.Subset = TrainingOptions.subset,
    method: options.Method = Settings.method,
    precision: options.Precision = str(Settings.precision),
    variances__method: options.Variance = VarianceOptions.method,
    solve__tol: options.SolveTol = SolveOptions.tol,
    solve__max_iterations: options.SolveIterations = SolveOptions.max_iterations,
    solve__unsolved: options.Unsolved = SolveOptions.unsolved,
    threads: options.Threads = None,
    memory_limit: options.MemoryLimit = None,
    seed: options.Seed = Settings.random_state,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="Where a killed run resumes from; by default beside the output.", show_default=False
        ),
    ] = None,
    no_checkpoint: Annotated[
        bool, typer.Option("--no-checkpoint", help="Keep none: a killed run begins anew.")
    ] = False,
    test_fraction: Annotated[
        float, typer.Option(help="Share of the rows to hold out and score.", min=0.0, max=0.9)
    ] = 0.0,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Fit a model to a table and save it.

    An earlier file at the output is replaced once the new one is complete. Ctrl-C ends the training, saves
    the best model so far and exits with 130; a second one, in the final solve, saves none. A run that was
    killed or interrupted resumes from its checkpoint when the same command is given again, in its training or
    in the final solve; the state of that is beside it in a file that ends with .solve, of a gigabyte or so.

    On several processes or machines: torchrun --nproc-per-node 2 -m halfgp fit … shares the rows out.
    """
    if checkpoint is not None and no_checkpoint:
        raise InputError("Give one of `--checkpoint` and `--no-checkpoint`.")
    if is_first():
        check_output(output, [data])
    kept = None if no_checkpoint else checkpoint or output.with_name(output.name + ".checkpoint")
    if kept is not None and is_first():
        check_output(kept, [data, output])
        check_output(solve_path(kept), [data, output])
    if threads is not None:
        torch.set_num_threads(threads)
    dialect = options.dialect(header, delimiter, decimal)
    gp = new_model(
        kernel,
        noise,
        noise_floor,
        priors=options.priors(priors),
        ard=ard,
        mean=options.mean(mean),
        training__steps=training__steps,
        training__subset=training__subset,
        method=method,
        precision=precision,
        variances__method=variances__method,
        solve__tol=solve__tol,
        solve__max_iterations=solve__max_iterations,
        solve__unsolved=solve__unsolved,
        threads=threads,
        memory_limit=memory_limit,
        random_state=seed,
        checkpoint=kept,
    )
    with joined() as ranks:
        require_agreement(ranks, {"command": " ".join(sys.argv[1:])})
        read = read_training(data, target, features, drop, dialect, ranks)
        y, model = read.y, NamedModel(gp, read.table.feature_names, read.table.target_name)
        train, test = _split(y, test_fraction, seed)
        _check_targets(y[train], model.target_name or target)
        X_test = read.points(test) if len(test) else None
        if not is_first():  # who scores
            X_test = None
        X_train = _points(gp.settings, read, train)
        del read  # and with it what points came from
        silent = quiet or not is_first()
        if kept is not None and kept.exists() and not silent:
            remark(f"Resuming: from the checkpoint {kept}", "bold")
        _fit(model, X_train, y[train], output, kept, bar=not (silent or as_json))
    if not is_first():
        return
    try:
        tested = None if X_test is None else _score(gp, X_test, y[test])
        if not quiet or as_json:
            _tell(model, output, tested, as_json)
    except KeyboardInterrupt:
        raise Interruption(f"Interrupted: the model is in {output}, and was not scored.") from None
    if gp.report.interrupted:
        remark(f"Interrupted: the best model so far is in {output}. {_kept(kept)}".strip(), "bold yellow")
        raise typer.Exit(INTERRUPTED)


def _fit(
    model: NamedModel, X: Floats | CompactPoints, y: Floats, output: Path, kept: Path | None, *, bar: bool
) -> None:
    """Fit and save, with a word on what is left of the work where that fails."""
    gp = model.gp
    try:
        with shown_progress(gp.settings, bar) as shown, naming(model.feature_names or ()):
            gp.fit(X, y, callbacks=shown)
        if is_first():
            _save(model, output, kept)
    except KeyboardInterrupt:
        raise Interruption(f"Interrupted: no model was written. {_kept(kept)}".strip()) from None
    except UnsolvedError as error:
        how = "with one of `solve__unsolved`, `memory_limit` and `solve__max_iterations` this command"
        raise UnsolvedError(f"{error} {_kept(kept, how)}".strip()) from error


def _save(model: NamedModel, output: Path, checkpoint: Path | None) -> None:
    """Write it; where that fails, what it took is not lost."""
    try:
        model.save(output)
    except FileError as error:
        how = f"the same command, or one with another output and --checkpoint {checkpoint},"
        raise FileError(f"{error} {_kept(checkpoint, how)}".strip()) from error


def _kept(checkpoint: Path | None, how: str = "the same command") -> str:
    """How to go on after a fit that came to no model, or not to the best."""
    if checkpoint is None or not checkpoint.exists():
        return ""
    solve = solve_path(checkpoint)
    what = f"The training so far is in {checkpoint}"
    if solve.exists():
        what += f", and the solve in {solve}"
    return f"{what}: {how} goes on from there."


def _split(y: Floats, fraction: float, seed: int) -> tuple[Any, Any]:
    """Rows to learn from and rows to hold out, in the order of the table; all of the latter have targets."""
    held = np.zeros(len(y), dtype=np.bool_)
    whole = np.flatnonzero(~np.isnan(y))
    held[np.random.default_rng(seed).permutation(whole)[: round(fraction * len(whole))]] = True
    return np.flatnonzero(~held), np.flatnonzero(held)


def _check_targets(y: Floats, name: str) -> None:
    """Refuse what no model can be learned from."""
    values = y[~np.isnan(y)]
    if len(values) < 2:
        raise InputError(f"`target` must have at least 2 rows with a value; {name!r} has {len(values)}.")
    if np.isinf(values).any():
        raise InputError(
            f"`target` must not hold infinity; {name!r} does. Remove such rows, or empty the cells."
        )
    if values.min() == values.max():
        raise InputError(
            f"`target` must vary; {name!r} is {values[0]:g} in every row. There is nothing to learn: name"
            " another column."
        )


def _points(settings: Settings, read: TrainingRows, rows: Any) -> Floats | CompactPoints:
    """Those of some rows, as a fit holds them."""
    known = int((~np.isnan(read.y[rows])).sum())
    if read.ranks is not None and are_compact(settings, known, read.ranks.count):
        return read.compact_points(rows)
    return read.points(None if len(rows) == len(read.y) else rows)  # for indexing copies


def _score(gp: ExactGP, X: Floats, y: Floats) -> Scores:
    found = gp.predict(X, return_std=True)
    return score(y, found.mean, found.std)


def _tell(model: NamedModel, output: Path, tested: Scores | None, as_json: bool) -> None:
    gp = model.gp
    summary = summarise(gp, model.columns)
    left_out = leave_one_out_scores(gp)
    if as_json:
        show_json(
            {
                "output": output,
                "target": model.target_name,
                "fit": asdict(gp.report),
                "hyperparameters": summary.as_dict(),
                "leave_one_out": None if left_out is None else left_out.as_dict(),
                "test": None if tested is None else tested.as_dict(),
                "traffic": None if gp.traffic is None else gp.traffic.as_dict(),
            }
        )
        return
    unit = f"in units of {model.target_name}"
    noise = "given for every row" if summary.noise_std is None else f"std {words.number(summary.noise_std)}"
    pairs = [
        *how_it_was_fitted(gp.report),
        ("kernel", summary.kernel),
        ("noise", f"{noise} ({unit})"),
        ("signal", f"std {words.number(summary.signal_std)} about a mean of {words.number(summary.mean)}"),
    ]
    if gp.traffic is not None:
        pairs.append(("ranks", _traffic(gp.traffic, gp.report.passes)))
    if left_out is not None:
        pairs.append(("leave-one-out", str(left_out)))
    if tested is not None:
        pairs.append(("held out", str(tested)))
    body = Group(facts(pairs), "", _relevance(summary))
    title = Text(f"{output}: {model.target_name}")
    show(Panel(body, title=title, title_align="left", expand=False))


def _traffic(traffic: Traffic, passes: int) -> str:
    """What sharing rows out took."""
    sent = words.size(traffic.bytes_sent / max(passes, 1))
    waiting = words.percent(traffic.share_waiting)
    return f"{traffic.ranks}; this one sent {sent} a pass and spent {waiting} of its time waiting"


def _relevance(summary: Summary) -> Table:
    """Features with bars, the most relevant first."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("feature", "relevance", "", "lengthscale"):
        table.add_column(heading, justify="left" if heading in ("feature", "relevance") else "right")
    for feature in summary.by_relevance()[:SHOWN]:
        known = feature.relevance is not None
        table.add_row(
            Text(feature.name),
            Text(words.bar(feature.relevance or 0.0), style="green"),
            f"{feature.relevance:.2f}" if known else "–",
            words.number(feature.lengthscale, 3),
        )
    if len(summary.features) > SHOWN:
        table.add_row(f"… {len(summary.features) - SHOWN} more", "", "", "")
    return table
