"""What the ranks of a `Job` run: each of them the same function, in the same order."""

from __future__ import annotations

import math
import os
import resource
import time
import warnings
import weakref
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from contracts.textbook import points, targets
from torch import Tensor

from halfgp import ExactGP, GPRegressor, Matern, White, cg, lanczos, log_determinant
from halfgp.cli import main
from halfgp.cli.models import read_training
from halfgp.delimited import Dialect
from halfgp.distributed import Ranks, alone, heartbeat, ranks_here
from halfgp.distributed.ranks import leave
from halfgp.errors import FileError, HalfGPError, RankError
from halfgp.hyperparameters import Hyperparameters
from halfgp.model import SolveIteration
from halfgp.neighbours import LocalPosterior
from halfgp.operators import Operator, ShardedKernel
from halfgp.operators.bound import BoundKernel
from halfgp.prediction.equations import Equations
from halfgp.prediction.variances import Variances
from halfgp.problem import Problem
from halfgp.selftest.checks import random
from halfgp.training import Step, checkpoint, judgement

KERNEL = 1.5 * Matern(1.5, [0.4, 0.7]) + White(0.02)


def here() -> Ranks:
    ranks = ranks_here()
    assert ranks is not None
    return ranks


def noise_of(n: int) -> Tensor:
    return torch.linspace(0.05, 0.2, n, dtype=torch.float64)


def problem(n: int, ranks: Ranks | None, **options: Any) -> Problem:
    x = points(n, 2)
    return Problem(x, targets(x), noise_of(n), ranks=ranks, **options)


def system(n: int, ranks: Ranks | None, precision: str = "single", **options: Any) -> Operator:
    return problem(n, ranks, **options).system(Hyperparameters(KERNEL, None, None), precision)


def sums(n: int) -> dict[str, Tensor]:
    """Every kind of meeting, with numbers that differ from rank to rank."""
    ranks = here()
    mine = random(n, 3, seed=ranks.index)
    held = ranks.held(n)
    return {
        "total": ranks.total(mine),
        "largest": ranks.largest(mine),
        "counts": ranks.total(torch.tensor([ranks.index + 1])),
        "number": ranks.total(torch.tensor(0.5)),
        "least": torch.tensor(problem(n, ranks).least(7 - ranks.index)),
        "scattered": ranks.scattered(mine),
        "gathered": ranks.gathered(random(n, 3)[held], n),
        "vector": ranks.gathered(torch.arange(n)[held], n),
        "first": ranks.of_first(mine),
    }


def texts() -> list[str]:
    return here().texts("ä" * here().index)


def matrix(n: int, precision: str, backend: str) -> dict[str, Tensor]:
    """Everything that an operator is asked for."""
    operator = system(n, here(), precision, backend=backend)
    assert isinstance(operator, ShardedKernel)
    u, v = (random(n, 2, seed=s)[operator.held] for s in (1, 2))
    gradient, in_points, _ = operator.bilinear_gradient(u, v, inputs=True)
    before = operator.ranks.traffic.bytes_sent
    product = operator.matmul(v.T.contiguous().T)
    assert in_points is not None
    return {
        "product": product,
        "again": operator.matmul(v.T.contiguous().T),
        "rows": operator.rows(torch.tensor([0, n - 1, n // 2])),
        "diagonal": operator.diagonal(),
        "nugget": operator.nugget,
        "in_points": in_points,
        "sent": torch.tensor((operator.ranks.traffic.bytes_sent - before) // 2),
        **{f"gradient {name}": value for name, value in gradient.items()},
    }


def overlapped(n: int) -> list[str]:
    """A product whose own tiles take until the gather is over, and what it does when."""
    operator = system(n, here())
    assert isinstance(operator, ShardedKernel)
    done, under_way = [], []
    begun, within, ended, matmul = Ranks._begun, BoundKernel.within, Ranks._ended, BoundKernel.matmul

    def noted(name: str, method: Any) -> Any:
        def note(self: Any, *arguments: Any) -> Any:
            done.append(name)
            found = method(self, *arguments)
            if name == "gather":
                under_way.append(found.work)
            if name == "own tiles":
                while not under_way[0].is_completed():
                    time.sleep(0.001)
            return found

        return note

    before = operator.ranks.traffic.bytes_hidden
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ranks, "_begun", noted("gather", begun))
        patch.setattr(BoundKernel, "within", noted("own tiles", within))
        patch.setattr(Ranks, "_ended", noted("wait", ended))
        patch.setattr(BoundKernel, "matmul", noted("other tiles", matmul))
        operator.matmul(random(n, 2, seed=1)[operator.held].T.contiguous().T)
    hidden = operator.ranks.traffic.bytes_hidden - before
    assert hidden == operator.most_held * 2 * 8 * (operator.ranks.count - 1)
    return done


def solved(n: int, recipe: object, options: dict[str, Any]) -> tuple[Tensor, Tensor, int, str]:
    operator = system(n, here())
    result = cg(operator, random(n, 2, seed=1)[operator.held], preconditioner=recipe, **options)
    return result.solution, result.residual_norms, result.iterations, str(result.status)


def tridiagonal(n: int) -> Tensor:
    operator = system(n, here(), "double")
    return lanczos(operator, random(n, 1, seed=1)[operator.held], steps=8, precision="double").diagonal


def preconditioned(n: int, recipe: Any) -> dict[str, Any]:
    operator = system(n, here(), "double")
    built = recipe.build(operator)
    v = random(n, 3, seed=1)[operator.held]
    return {
        "kind": type(built).__name__,
        "solve": built.solve(v),
        "whiten": built.whiten(v),
        "transposed": built.whiten(v, transposed=True),
        "matmul": built.matmul(v),
        "log_determinant": built.log_determinant(),
    }


def determinant(n: int, recipe: Any) -> float:
    return log_determinant(system(n, here(), "double"), preconditioner=recipe, precision="double").value


FIT = {
    "method": "cg",
    "training__subset": 80,
    "training__subset_iterations": 3,
    "training__steps": 2,
    "training__probes": 4,
    "training__tol": 1e-6,
    "solve__tol": 1e-6,
    "variances__method": "local",  # by products, and not by a dense factor
}


def data(n: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    x = points(n, 2, seed=seed)
    return x, targets(x, seed=seed)[:, 0]


def fitted(n: int, options: dict[str, Any], seed: int = 0, callbacks: Any = ()) -> dict[str, Any]:
    """A fit, in whatever process group there is, and what it answers."""
    gp = ExactGP(**{**FIT, **options}).fit(*data(n, seed), callbacks=callbacks)
    told = gp.predict(points(30, 2, seed=9), return_std=True)
    return {
        "theta": torch.from_numpy(gp.theta),
        "mean": torch.from_numpy(told.mean),
        "std": torch.from_numpy(told.std),
        "weights": gp.posterior.weights,
        "report": gp.report,
        "history": [step.loss for step in gp.history],
        "traffic": gp.traffic,
    }


def regression(n: int) -> Any:
    x, y = (t.numpy() for t in data(n))
    return GPRegressor().set_params(**FIT).fit(x, y).predict(x[:20], return_std=True)


def work_of(n: int) -> dict[str, int]:
    """Rows that this rank predicts from others, in one judgement and for the share of local variances."""
    done: Counter[str] = Counter()

    def counting(name: str, method: Any) -> Any:
        def counted(self: object, rows: Tensor) -> Any:
            done[name] += len(rows)
            return method(self, rows)

        return counted

    of = problem(n, here())
    start = Hyperparameters(KERNEL, None, None)
    equations = Equations(of, start, "products", None)
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in (
            (judgement._Conditioned, "rows"),
            (LocalPosterior, "leave_one_out"),
            (LocalPosterior, "given_many"),
        ):
            patch.setattr(owner, name, counting(name, getattr(owner, name)))
        judgement.judge(start, of, 0)
        assert 0.0 < Variances(equations, None).share <= 1.0
    return dict(done)


def commanded(arguments: list[str], directory: str) -> int:
    """What `halfgp` with these arguments exits with on this rank; what it says and prints is in files."""
    for stream, name in ((1, "printed"), (2, "said")):
        path = Path(directory) / f"{name} by {os.environ['RANK']}"
        os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND), stream)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["halfgp", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
    return int(ended.value.code or 0)


def refused(n: int, options: dict[str, Any], seed: int, hole: str = "", version: str = "") -> str:
    """What a fit says of its arguments, with NaN in one row of what is named, or by a library that is old."""
    if version:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(version, "0.0.1")
            return refused(n, options, seed, hole)
    rows = dict(zip("Xy", data(n, seed), strict=True))
    if hole:
        rows[hole][n // 2] = torch.nan
    try:
        with warnings.catch_warnings(action="ignore"):  # of rows without a target
            ExactGP(**{**FIT, **options}).fit(**rows)
    except HalfGPError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def read(path: str) -> Any:
    """A table as the command reads it, or what is wrong with it."""
    try:
        read = read_training(Path(path), "y", None, None, Dialect(), ranks_here())
    except HalfGPError as error:
        return f"{type(error).__name__}: {error}"
    return read.table.feature_names, read.points(), read.y


def held_in(n: int, options: dict[str, Any]) -> torch.dtype:
    """The format of the points of a fitted model."""
    model = ExactGP(**{**FIT, "training__steps": 0, **options}).fit(*data(n))
    return model.posterior.problem.points.dtype


def compact(path: str, rows: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Some rows of a table as a fit of several ranks is given them, and what standardised them."""
    read = read_training(Path(path), "y", None, None, Dialect(), ranks_here())
    points = read.compact_points(np.array(rows))
    return points.values, points.scale.mean, points.scale.scale


def used_between(n: int) -> list[Tensor]:
    """The user's own group before a fit, between two, and after them, and what these found."""

    def own() -> Tensor:
        number = torch.tensor([float(dist.get_rank() + 1)])
        dist.all_reduce(number)
        return number

    found = [own(), fitted(n, {})["weights"], own(), fitted(n, {})["weights"], own()]
    group = weakref.ref(here()._group)
    leave()
    assert group() is None  # and so its threads are over: they must be before the interpreter is
    return [*found, fitted(n, {})["weights"]]  # in a new one


def held_once(n: int) -> bool:
    """Whether a rank's summands, on every rung, are of the points of its problem, and not of copies."""
    found = problem(n, here())
    first = found.system(Hyperparameters(KERNEL, None, None), "single")
    rungs = [first.with_precision(precision) for precision in first.rungs()]
    assert all(isinstance(rung, ShardedKernel) for rung in rungs)
    return all(rung.summand.x1.data_ptr() == found.points.data_ptr() for rung in (first, *rungs))


def by_itself(n: int, seed: int) -> Tensor:
    with alone():
        return fitted(n, {}, seed)["theta"]


def stopped(n: int, options: dict[str, Any], steps: int = 0, iterations: int = 0) -> str:
    """A fit that ends itself on every rank: after so many steps on all rows, or iterations of its solve."""

    class Enough(Exception):
        pass

    def watch(event: object) -> None:
        if isinstance(event, SolveIteration):
            enough = event.iteration == iterations
        else:
            enough = isinstance(event, Step) and event.stage == "cg" and event.index + 1 == steps
        if enough:
            raise Enough

    always = partial(checkpoint.SolveCheckpoint, interval=0.0, share=math.inf)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "SolveCheckpoint", always)  # written in every iteration
        try:
            fitted(n, options, callbacks=(watch,))
        except Enough:
            return "stopped"
    return "done"


def resumed(n: int, options: dict[str, Any]) -> dict[str, Any]:
    """A fit, and which iterations its last solve had."""
    seen: list[int] = []

    def watch(event: object) -> None:
        if isinstance(event, SolveIteration):
            seen.append(event.iteration)

    return {**fitted(n, options, callbacks=(watch,)), "iterations": seen}


def heard_by(silence: float, directory: str = "") -> Ranks:
    """The ranks, with a shorter patience, and what they say in a file."""
    ranks = here()
    heartbeat.INTERVAL, heartbeat.SILENCE, heartbeat.GRACE = silence / 8, silence, silence / 4
    if directory:
        said = os.open(Path(directory) / f"said by {ranks.index}", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.dup2(said, 2)
    return ranks


def hit_in_a_fit(n: int, options: dict[str, Any], silence: float, directory: str) -> None:
    """A fit that waits in its third step until somebody is hit, as if that step took its time."""
    ranks = heard_by(silence, directory)

    def watch(event: object) -> None:
        if isinstance(event, Step) and event.stage == "cg" and event.index == 1:
            (Path(directory) / f"step of {ranks.index}").touch()
            time.sleep(0.5)

    try:
        fitted(n, options, callbacks=(watch,))
    except RankError as error:
        os.write(2, str(error).encode())
        os._exit(heartbeat.LOST)


def fails_on_one(n: int, silence: float, directory: str) -> None:
    """One rank fails and leaves, as a script does, while another waits for it in a meeting."""
    ranks = heard_by(silence, directory)

    def watch(event: object) -> None:
        if ranks.index == 1:
            raise ZeroDivisionError("of this rank alone")

    try:
        fitted(n, {}, callbacks=(watch,))
    except ZeroDivisionError:
        os._exit(1)


def meets_a_full_disk(n: int, silence: float, directory: str) -> None:
    """The first rank does, with its checkpoint."""
    ranks = heard_by(silence, directory)
    if ranks.is_first:
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
    try:
        fitted(n, {"checkpoint": str(Path(directory) / "kept")})
    except FileError:
        os._exit(1)


def dies_before_a_fit(n: int) -> str:
    """The last rank does; what others say."""
    if dist.get_rank() == dist.get_world_size() - 1:
        os._exit(1)
    return refused(n, {}, 0)


def never_comes(silence: float, directory: str) -> None:
    """All but the first are elsewhere."""
    ranks = heard_by(silence, directory)
    heartbeat.ARRIVAL = silence
    if ranks.is_first:
        with heartbeat.Heartbeat(ranks):
            time.sleep(60.0)
    time.sleep(60.0)


def comes_late(seconds: float, silence: float) -> Tensor:
    """The first rank waits for the others, who do something else before."""
    ranks = heard_by(silence)
    if not ranks.is_first:
        time.sleep(seconds)
    with heartbeat.Heartbeat(ranks):
        return ranks.total(torch.ones(1))


def busy_for(seconds: float, silence: float) -> bool:
    with heartbeat.Heartbeat(heard_by(silence)):
        time.sleep(seconds)
    return True


def late_by(seconds: float, silence: float) -> Tensor:
    """The first rank is done at once, the others go on."""
    ranks = heard_by(silence)
    with heartbeat.Heartbeat(ranks):
        if not ranks.is_first:
            time.sleep(seconds)
    return ranks.total(torch.ones(1))


def fitted_as(steps: int, subset: int) -> Any:
    """Means of a model as the command fits it, in this process."""
    gp = ExactGP(method="cg", training__steps=steps, training__subset=subset, variances__method="local")
    return gp.fit(*data(301)).predict(points(30, 2, seed=9)).mean
