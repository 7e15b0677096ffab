"""What do two ranks gain over one, for products and for whole fits, and what do they send each other?

Ranks have one thread each and talk by gloo over loopback. Rows are uniform: in 8 features, where no
covariance is zero, or in 2, so many to a unit of volume that most tiles are passed by. Both numbers of ranks
are timed in one run, one after the other in every round; a gain is the ratio of their best times, and that of
work the ratio of processor times, which others on the machine disturb less. Beside it is what is asked for.

    python benchmarks/distributed.py                        50,000 and 200,000 rows; 15 minutes on two cores
    python benchmarks/distributed.py --features 2           most tiles are zero; 6 minutes
    python benchmarks/distributed.py --rows 20000 --no-fit  less; replaces distributed.json
    python benchmarks/distributed.py --plan                 fits by 1, 2 and 4 ranks beside plans
    python benchmarks/distributed.py --plan --rows 5000     less; replaces distributed_plan.json

Plans are of ranks that have a core each. Where there are fewer cores, the processor time of a rank is what to
hold against one.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import time
from pathlib import Path
from typing import Annotated, Any

import torch
import torch.distributed as dist
import typer
from rich.table import Table

from halfgp import ExactGP, Matern
from halfgp.cluster import make_cluster_plan
from halfgp.distributed import ranks_here
from halfgp.hyperparameters import Hyperparameters
from halfgp.memory import peak_memory
from halfgp.planner import make_plan
from halfgp.problem import Problem
from halfgp.settings import Settings
from product_report import console

HERE = Path(__file__).parent
LENGTHSCALES, DENSITY = {8: 2.0, 2: 1.0}, 16.0
NOISE = 0.1
COLUMNS = 8
WARM = 50  # rows
REPEATS = 2  # of a product, in every round
ASKED = {"product": 1.85, "fit": 1.75}  # gains of two ranks over one
ASKED_WAITING = 0.05  # of the time, at most


def rows_of(rows: int, features: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    side = 4.0 if features == 8 else math.sqrt(rows / DENSITY)
    x = side * torch.rand(rows, features, generator=generator, dtype=torch.float64)
    noise = math.sqrt(NOISE) * torch.randn(rows, generator=generator, dtype=torch.float64)
    return x, torch.sin(x).sum(dim=1) + noise


def product(rows: int, features: int) -> dict[str, float]:
    """K v for eight columns, the best time of it, and what it sends and waits for."""
    x, y = rows_of(rows, features)
    ranks = ranks_here()
    kernel = Matern(1.5, [LENGTHSCALES[features]] * features)
    problem = Problem(x, y[:, None], torch.full((rows,), NOISE, dtype=torch.float64), ranks=ranks)
    began = time.perf_counter()
    operator = problem.system(Hyperparameters(kernel, None, None), "single")
    bound = time.perf_counter() - began
    v = torch.randn(rows, COLUMNS, generator=torch.Generator().manual_seed(1))[problem.held].T.contiguous().T
    best: dict[str, float] = {"seconds": math.inf}
    for _ in range(REPEATS):
        before = None if ranks is None else (ranks.traffic.bytes_sent, ranks.traffic.waiting)
        if ranks is not None:
            dist.barrier()
        began, worked = time.perf_counter(), time.process_time()
        operator.matmul(v)
        seconds, worked = time.perf_counter() - began, time.process_time() - worked
        if seconds < best["seconds"]:
            best = {"seconds": seconds, "worked": worked, "bind": bound, "skipped": operator.skipped}
            if ranks is not None and before is not None:
                best["sent"] = ranks.traffic.bytes_sent - before[0]
                best["waiting"] = (ranks.traffic.waiting - before[1]) / seconds
    return best


def fit(rows: int, features: int) -> dict[str, float]:
    """A whole fit with the defaults, after a small one that imports what fits import."""
    x, y = rows_of(rows, features)
    ExactGP(Matern(1.5, [LENGTHSCALES[features]] * features)).fit(x[:WARM], y[:WARM])
    began, worked = time.perf_counter(), time.process_time()
    gp = ExactGP(Matern(1.5, [LENGTHSCALES[features]] * features)).fit(x, y)
    found = {"seconds": time.perf_counter() - began, "worked": time.process_time() - worked}
    found |= {"passes": float(gp.report.passes), "memory": float(peak_memory())}
    if gp.traffic is not None:
        found |= {"sent": float(gp.traffic.bytes_sent), "waiting": gp.traffic.share_waiting}
    return found


WORK = {"product": product, "fit": fit}


def run(rank: int, count: int, port: int, what: str, rows: int, features: int, answers: Any) -> None:
    torch.set_num_threads(1)
    if count > 1:
        store = dist.TCPStore("127.0.0.1", port, is_master=rank == 0, wait_for_workers=False)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=count)
    found = WORK[what](rows, features)
    answers.put((rank, found))


def measure(count: int, what: str, rows: int, features: int) -> dict[str, float]:
    """By so many ranks, in processes of their own: of each number that of the rank with most of it."""
    spawn = multiprocessing.get_context("spawn")
    answers, port = spawn.Queue(), dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False).port
    processes = [
        spawn.Process(target=run, args=(rank, count, port + 1, what, rows, features, answers))
        for rank in range(count)
    ]
    for process in processes:
        process.start()
    found = dict(answers.get() for _ in processes)
    for process in processes:
        process.join()
    return {name: max(case[name] for case in found.values()) for name in found[0]}


def case(what: str, rows: int, features: int, counts: list[int], rounds: int) -> dict[str, Any]:
    best: dict[int, dict[str, float]] = {}
    for _ in range(rounds):
        for count in counts:
            found = measure(count, what, rows, features)
            if count not in best or found["seconds"] < best[count]["seconds"]:
                best[count] = found
    return {"what": what, "rows": rows, "features": features, "ranks": {str(c): best[c] for c in counts}}


def show(cases: list[dict[str, Any]]) -> None:
    headings = ("", "rows", "features", "ranks", "seconds", "gain", "asked", "of work", "sent MB", "waiting")
    table = Table(*headings, "asked", box=None)
    for found in cases:
        ranks: dict[str, dict[str, float]] = found["ranks"]
        one = next(iter(ranks.values()))
        for count, numbers in ranks.items():
            of_two = count == "2"
            table.add_row(
                *(found["what"], f"{found['rows']:,}", str(found["features"]), count),
                *(f"{numbers['seconds']:.2f}", f"{one['seconds'] / numbers['seconds']:.2f}x"),
                f"{ASKED[found['what']]:.2f}x" if of_two else "",
                f"{one['worked'] / numbers['worked']:.2f}x",
                *(f"{numbers.get('sent', 0.0) / 1e6:.1f}", f"{numbers.get('waiting', 0.0):.1%}"),
                f"{ASKED_WAITING:.0%}" if of_two else "",
            )
    console.print(table)


def planned(rows: int, features: int, count: int) -> dict[str, float]:
    """What a rank of one thread was expected to take."""
    whole = make_plan(rows, features, 1, Settings().with_params(threads=1))
    plan = make_cluster_plan(whole, ranks=count)
    told = {"seconds": plan.seconds, "passes": plan.whole.passes, "memory": plan.memory}
    return {**told, "sent": plan.bytes_a_pass * plan.whole.passes}


def show_plans(cases: list[dict[str, Any]]) -> None:
    """Planned / measured."""
    table = Table("rows", "features", "ranks", box=None)
    for heading in ("seconds", "of processor", "passes", "memory GB", "sent MB"):
        table.add_column(heading, justify="right")
    for found in cases:
        for count, plan in found["planned"].items():
            seen = found["ranks"][count]
            table.add_row(
                *(f"{found['rows']:,}", str(found["features"]), count),
                f"{plan['seconds']:.1f} / {seen['seconds']:.1f}",
                f"{seen['worked']:.1f}",
                f"{plan['passes']:.0f} / {seen['passes']:.0f}",
                f"{plan['memory'] / 1e9:.2f} / {seen['memory'] / 1e9:.2f}",
                f"{plan['sent'] / 1e6:.1f} / {seen.get('sent', 0.0) / 1e6:.1f}",
            )
    console.print(table)


def compare_with_plans(rows: list[int], features: list[int], counts: list[int]) -> None:
    """Fits by so many ranks each, beside what `halfgp plan --ranks` says of them."""
    torch.set_num_threads(1)  # as ranks have, for what a plan measures here
    cases = []
    for n in rows:
        for d in features:
            plans = {str(count): planned(n, d, count) for count in counts}
            cases.append({**case("fit", n, d, counts, 1), "planned": plans})
            show_plans(cases[-1:])
    (HERE / "distributed_plan.json").write_text(json.dumps(cases, indent=1) + "\n")


def main(
    rows: Annotated[list[int] | None, typer.Option(help="Of products and fits.")] = None,
    features: Annotated[list[int] | None, typer.Option(help="8, which is the default, or 2.")] = None,
    ranks: Annotated[list[int] | None, typer.Option(help="How many; the first is compared with.")] = None,
    rounds: Annotated[int, typer.Option(help="Of products.")] = 1,
    fits: Annotated[bool, typer.Option("--fit/--no-fit", help="Whole fits, too.")] = True,
    plan: Annotated[bool, typer.Option("--plan", help="Fits beside their plans instead.")] = False,
) -> None:
    """Measure, print, and write distributed.json, or distributed_plan.json."""
    if plan:
        compare_with_plans(rows or [20_000, 50_000], features or [8], ranks or [1, 2, 4])
        return
    counts = ranks or [1, 2]
    cases = []
    for n in rows or [50_000, 200_000]:
        for d in features or [8]:
            cases.append(case("product", n, d, counts, rounds))
            if fits:
                cases.append(case("fit", n, d, counts, 1))
            show(cases[-2 if fits else -1 :])
    (HERE / "distributed.json").write_text(json.dumps(cases, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
