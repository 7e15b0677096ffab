"""`halfgp plan`."""

from __future__ import annotations

import torch
import typer

from halfgp.cli import options
from halfgp.cli.failures import CANNOT
from halfgp.cli.models import new_model, read_training
from halfgp.cli.output import facts, remark, show, show_json
from halfgp.planner import Plan
from halfgp.report import words
from halfgp.settings import Settings, TrainingOptions, VarianceOptions


def run(
    data: options.Data,
    target: options.Target,
    features: options.Features = None,
    drop: options.Drop = None,
    header: options.Header = None,
    delimiter: options.Delimiter = None,
    decimal: options.Decimal = None,
    kernel: options.Kernel = str(Settings.kernel),
    noise_floor: options.NoiseFloor = Settings.noise_floor,
    training__steps: options.Steps = TrainingOptions.steps,
    training__subset: options.Subset = TrainingOptions.subset,
    method: options.Method = Settings.method,
    precision: options.Precision = str(Settings.precision),
    variances__method: options.Variance = VarianceOptions.method,
    threads: options.Threads = None,
    memory_limit: options.MemoryLimit = None,
    as_json: options.AsJson = False,
) -> None:
    """Tell what a fit would take, without fitting; exits with 1 if it does not fit into memory."""
    dialect = options.dialect(header, delimiter, decimal)
    table, _ = read_training(data, target, features, drop, dialect)
    if threads is not None:
        torch.set_num_threads(threads)
    found = new_model(
        kernel,
        None,
        noise_floor,
        training__steps=training__steps,
        training__subset=training__subset,
        method=method,
        precision=precision,
        variances__method=variances__method,
        threads=threads,
        memory_limit=memory_limit,
    ).plan(table.X)
    if as_json:
        show_json(found.as_dict())
    else:
        show(facts(_pairs(found)))
    if not found.fits:
        if not as_json:
            remark(
                "Error: it does not fit. Raise --memory-limit, take fewer rows, or use --method cg.",
                "bold red",
            )
        raise typer.Exit(CANNOT)


def _pairs(plan: Plan) -> list[tuple[str, str]]:
    methods = {"cholesky": "Cholesky in double: exact", "cg": "conjugate gradients, matrix-free"}
    variances = {"cholesky": "from a Cholesky factor", "local": "from the nearest rows"}
    memory = f"{words.size(plan.memory)} of {words.size(plan.memory_limit)}"
    return [
        ("rows", f"{words.count(plan.rows)} with {words.plural(plan.features, 'feature')}"),
        ("method", methods[plan.method]),
        ("variances", variances[plan.variance]),
        ("memory", memory if plan.fits else f"{memory}: it does not fit"),
        ("passes over K", words.count(plan.passes)),
        ("time", f"about {words.duration(plan.seconds)}"),
    ]
