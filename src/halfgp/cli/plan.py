"""`halfgp plan`."""

from __future__ import annotations

from typing import Annotated

import torch
import typer

from halfgp.cli import options
from halfgp.cli.failures import CANNOT
from halfgp.cli.models import new_model, read_training
from halfgp.cli.output import facts, remark, show, show_json
from halfgp.cluster import ClusterPlan, make_cluster_plan
from halfgp.errors import InputError
from halfgp.planner import Plan, make_plan
from halfgp.report import words
from halfgp.settings import Settings, TrainingOptions, VarianceOptions, as_bytes

MOST_ROWS = 10**12


def run(
    data: options.PlannedData = None,
    target: options.PlannedTarget = None,
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
    rows: Annotated[
        str | None, typer.Option(help="Rows of data that are not there yet, as in 1e8.", show_default=False)
    ] = None,
    columns: Annotated[int, typer.Option(help="Features of those.", min=1)] = 8,
    ranks: Annotated[int, typer.Option(help="Processes like this one that share rows out.", min=1)] = 1,
    bandwidth: Annotated[str, typer.Option(help="That a rank sends in a second, such as 1.25GB.")] = "1.25GB",
    as_json: options.AsJson = False,
) -> None:
    """Tell what a fit would take, without fitting; exits with 1 if it does not fit into memory.

    From a table and its target, or from --rows and --columns alone. With --ranks for each of so many
    processes under torchrun, by the speed of this machine.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    gp = new_model(
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
    )
    if data is not None and target is not None and rows is None:
        read = read_training(data, target, features, drop, options.dialect(header, delimiter, decimal))
        whole = gp.plan(read.points(), y=read.y)
    elif data is None and rows is not None:
        whole = make_plan(_count(rows), columns, 1, gp.settings)
    else:
        raise InputError("`plan` needs a table and its `target`, or `rows` alone. Give one of both.")
    sent = as_bytes(bandwidth)
    assert sent is not None
    found: Plan | ClusterPlan = whole
    if ranks > 1:
        found = make_cluster_plan(whole, ranks=ranks, bandwidth=sent)
    if as_json:
        show_json(found.as_dict())
    else:
        show(facts(_pairs(found) if isinstance(found, Plan) else _cluster_pairs(found)))
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


def _cluster_pairs(plan: ClusterPlan) -> list[tuple[str, str]]:
    memory = f"{words.size(plan.memory)} of {words.size(plan.memory_limit)}"
    shares = [
        ("computing", plan.computing),
        ("sending", plan.sending),
        ("what each does by itself", plan.by_itself),
    ]
    parts = ", ".join(f"{words.duration(seconds)} of {name}" for name, seconds in shares)
    return [
        *_pairs(plan.whole)[:3],
        ("ranks", words.count(plan.ranks)),
        ("memory of a rank", memory if plan.fits else f"{memory}: it does not fit"),
        ("passes over K", words.count(plan.whole.passes)),
        ("sent by a rank", f"{words.size(plan.bytes_a_pass)} a pass"),
        ("time", f"about {words.duration(plan.seconds)}: {parts}"),
    ]


def _count(text: str) -> int:
    try:
        count = float(text)
    except ValueError:
        count = 0.0
    if not 1 <= count <= MOST_ROWS:
        raise InputError(f"`rows` must be a number from 1 to {MOST_ROWS:.0e}, such as 1e8; got {text!r}.")
    return int(count)
