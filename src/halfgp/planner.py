"""Memory, passes and minutes of a fit, before any of them is spent."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

import torch

from halfgp.backends import get_backend
from halfgp.backends.conditionals import Neighbourhoods
from halfgp.errors import MemoryLimitError
from halfgp.kernels import Matern
from halfgp.likelihood.traces.neighbours import NEIGHBOURS as TRACE_NEIGHBOURS
from halfgp.memory import physical_memory
from halfgp.operators import KernelOperator
from halfgp.precision import Precision
from halfgp.preconditioners.automatic import (
    BYTES_OF_NEIGHBOUR,
    NEIGHBOURS,
    landmarks_within,
    neighbours_within,
)
from halfgp.preconditioners.base import MEMORY as PRECONDITIONER_BYTES
from halfgp.preconditioners.base import automatic_rank
from halfgp.settings import Settings, as_bytes
from halfgp.solvers.reorthogonalise import MEMORY as BASIS_BYTES
from halfgp.threads import torch_threads

ROUTES = ("double factor", "single factor", "products")  # to the weights; see `routes`
CHOLESKY_ROWS = 3000  # up to so many rows "auto" trains exactly: a step takes half a second there
DOUBLE_ROWS = 6000  # up to so many rows a dense factor in double takes a second or two
FACTOR_ROWS = 10_000  # beyond, a dense factor for the variances takes longer than everything else
FACTOR_BYTES = 2**32  # memory for it without a `memory_limit`
ITERATIONS = 40  # of a solve, as on the real sets at the tolerances of the defaults
RESIDENT = 430 * 10**6  # of Python with torch and what else is imported, before any rows
LOCAL_LANDMARKS = 256  # of local variances, at most
LOCAL_BYTES = 2**27  # of local variances, so many points at a time
FINAL_ITERATIONS = 80  # of the last solve, to a tolerance that deviations set: 28 on protein, 109 on kin40k
# Where features are few, neighbours say nearly all: fewer passes, half of them in double, over those pairs of
# rows that are within the kernel's reach.
FINAL_IN_FEW, LIVE_IN_FEW = 20, 0.08
BUILDING = (
    8  # passes that a preconditioner takes to build; in few features a row takes as long as in training
)
STEP_ITERATIONS = 25  # of a solve for a gradient on all rows
BLOCK = 1.7  # passes that a product with some columns takes, beside one
EVALUATIONS = 30  # of the likelihood in the exact stage
SUBSET_EVALUATIONS = 14  # of a subset's, most of which are of a quarter of it
# Rows whose densities training takes, and how many others each is given. In few dimensions a few surround a
# row, and say most; what is left to learn is in how many rows are heard: in the last round four times as
# many, for where densities have heavy tails, 32,000 rows of 100,000 prefer what all of them do not.
FEW_FEATURES, IN_FEW, LAST_IN_FEW, IN_MANY = 4, (32_000, 20), (128_000, 20), (4000, 60)
NEIGHBOUR_EVALUATIONS = 60  # of those
STEP_EVALUATIONS = 15  # of those that follow a gradient on all rows
LAST_EVALUATIONS = 16  # that the last round has of them, which begins near its end
EXACT_STEP_ROWS = 20_000  # beyond, a gradient on all rows takes longer than all training before it
EXACT_STEPS = 3  # at most; each has to pay
EXPECTED_STEPS = 2.5  # that are taken, the last one without a gain
TRACE_BYTES = 70  # of a neighbour of a row, in the factor that gradients take
JUDGING = 4  # evaluations of a subset's likelihood that it takes to judge what was learned
EVALUATION = 1.4  # in units of its factor and inverse: the rest is the kernel and its gradient
# Of the time of dense algebra with its size: larger matrices come nearer to the machine's peak.
GROWTH_OF_INVERSE, GROWTH_OF_FACTOR = 2.5, 2.7
FACTOR = {torch.float64: 2.5, torch.float32: 1.6}  # in units of it, with the solves that follow
CALIBRATION_ROWS, CALIBRATION_DENSE, CALIBRATION_NEIGHBOURS = 4096, 2048, 2048


@dataclass(frozen=True)
class Plan:
    """What a fit is expected to take.

    Attributes:
        rows: n.
        features: d.
        method: "cholesky" or "cg".
        variance: "cholesky" or "local".
        memory: bytes at the peak, of the whole process.
        memory_limit: bytes, as given or as the machine has.
        passes: over K.
        seconds: of the fit, by a measured speed of this machine.
    """

    rows: int
    features: int
    method: str
    variance: str
    memory: int
    memory_limit: int
    passes: int
    seconds: float

    @property
    def fits(self) -> bool:
        """Whether memory suffices."""
        return self.memory <= self.memory_limit

    def require(self) -> None:
        """Raise unless it fits."""
        if not self.fits:
            raise MemoryLimitError(
                f"A fit of {self.rows:,} rows with {self.features} features needs about"
                f" {self.memory / 1e9:.2f} GB, and {self.memory_limit / 1e9:.2f} GB are allowed. Raise"
                " `memory_limit`, lower `solve__rank` or `training__probes`, use"
                ' `method="cg", variances__method="local"`, or take fewer rows.'
            )

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {**asdict(self), "fits": self.fits}

    def __str__(self) -> str:
        minutes = self.seconds / 60
        time_text = f"{self.seconds:.0f} s" if minutes < 2 else f"{minutes:.0f} min"
        verdict = "" if self.fits else " (it does not fit)"
        return (
            f"{self.rows:,} rows, {self.features} features: training by {self.method}, variances by"
            f" {self.variance}\nmemory {self.memory / 1e9:.2f} of {self.memory_limit / 1e9:.1f} GB{verdict},"
            f" {self.passes} passes over K, about {time_text}"
        )


def choose_method(method: str, rows: int) -> str:
    """Either "cholesky" or "cg", for a method that may be "auto"."""
    if method != "auto":
        return method
    return "cholesky" if rows <= CHOLESKY_ROWS else "cg"


def factor_bytes(rows: int, itemsize: int) -> int:
    """Memory while a dense factor is built: the matrix, and a quarter for panels and solutions."""
    return rows * rows * itemsize * 5 // 4


def choose_variance(variance: str, rows: int, memory_limit: int | None) -> str:
    """Either "cholesky" or "local", for training by CG."""
    if variance != "auto":
        return variance
    fits = factor_bytes(rows, 4) <= min(FACTOR_BYTES, (memory_limit or 2 * FACTOR_BYTES) // 2)
    return "cholesky" if fits and rows <= FACTOR_ROWS else "local"


def routes(method: str, variance: str, rows: int, memory_limit: int | None) -> tuple[str, ...]:
    """Ways to the weights, in the order in which they are tried: the first that is exact enough is taken.

    A factor in double is exact for whatever can be had at all, and takes n³/3 multiply-adds in double. One
    in single takes half of that and a few products, and serves where rounding is small beside the noise.
    Products with K, and a preconditioner, serve nearly everywhere, with variances from the nearest rows.
    They stand behind a factor in single, and a factor in double behind both, where memory allows it.

    Args:
        method: "cholesky" or "cg".
        variance: "cholesky", "local" or "auto".
        rows: n.
        memory_limit: bytes, or None for half of what the machine has.
    """
    allowed = usable_memory() // 2 if memory_limit is None else memory_limit
    last = ("double factor",) if RESIDENT + factor_bytes(rows, 8) <= allowed else ()
    if method == "cholesky":
        return ("double factor",)
    if choose_variance(variance, rows, memory_limit) == "local":
        return ("products", *last)
    return last if last and rows <= DOUBLE_ROWS else ("single factor", "products", *last)


def make_plan(rows: int, features: int, targets: int, settings: Settings) -> Plan:
    """For a fit of so many rows; calibrates with one small product per process."""
    limit = as_bytes(settings.memory_limit)
    method = choose_method(settings.method, rows)
    if method == "cholesky":
        variance, passes = "cholesky", 0
        memory, seconds = exact_bytes(rows), exact_seconds(rows, settings.threads)
    else:
        variance = choose_variance(settings.variances.method, rows, limit)
        iterations = min(settings.training.max_iterations, STEP_ITERATIONS)
        subset = min(settings.training.subset, rows)
        memory, neighbours, steps = exact_bytes(subset), 0, expected_steps(rows, settings)
        if steps:
            neighbours = min(TRACE_NEIGHBOURS, rows - 1) if settings.training.gradient == "neighbours" else 0
            given = settings.solve.rank
            rank = automatic_rank(rows, PRECONDITIONER_BYTES) if given is None else given
            solve = solve_bytes(rows, targets + settings.training.probes, iterations, rank)
            memory = max(memory, solve + TRACE_BYTES * rows * neighbours)
        few, a_pass = features <= FEW_FEATURES, rows**2 / entry_rate(features, settings.threads)
        building = BUILDING * a_pass
        if few:
            building = rows * neighbour_seconds(features, settings.threads, NEIGHBOURS)
            a_pass *= LIVE_IN_FEW
        a_step = iterations * BLOCK * a_pass + building
        # With a factor, a product or two tell how exact it is.
        final, seconds = 2, steps * a_step
        if variance == "local":
            final, seconds = FINAL_IN_FEW if few else FINAL_ITERATIONS, seconds + building
        passes = round(steps * (iterations + 1)) + final
        seconds += final * a_pass
        if neighbours:
            a_row = neighbour_seconds(features, settings.threads, neighbours)
            seconds += steps * rows * a_row
        if subset and settings.training.subset_iterations:
            seconds += training_seconds(subset, rows, features, settings.threads, steps)
        if variance == "cholesky":
            double = routes(method, settings.variances.method, rows, limit)[0] == "double factor"
            kind = torch.float64 if double else torch.float32
            memory = max(memory, factor_bytes(rows, kind.itemsize))
            seconds += FACTOR[kind] * factor_seconds(rows, kind, settings.threads)
        else:
            if settings.solve.preconditioner == "auto" and settings.solve.rank is None:
                room = preconditioner_bytes(limit)
                landmarks, near = landmarks_within(rows, room), neighbours_within(rows, room)
                built = rows * (16 * landmarks + BYTES_OF_NEIGHBOUR * near)
                needed = solve_bytes(rows, targets, ITERATIONS, 0) + built
            else:
                rank = final_rank(rows, limit) if settings.solve.rank is None else settings.solve.rank
                needed = solve_bytes(rows, targets, 2 * ITERATIONS, rank)
            # What landmarks explain of the rows at hand, twice, up to the limit of a chunk.
            local = min(LOCAL_BYTES, 32 * rows * (LOCAL_LANDMARKS + features))
            memory = max(memory, local, needed)
    memory += rows * (features + targets) * 8 * 3 + RESIDENT
    return Plan(rows, features, method, variance, memory, limit or usable_memory(), passes, seconds)


def joined_plan(plans: Sequence[Plan]) -> Plan:
    """Of fits one after the other, each of which keeps what it answers with.

    That is a dense factor, or at most what it took.
    """
    if len(plans) == 1:
        return plans[0]
    kept = [8 * p.rows**2 if p.variance == "cholesky" else p.memory - RESIDENT for p in plans]
    first = max(plans, key=lambda p: p.memory)
    return replace(
        first,
        method=", ".join(dict.fromkeys(p.method for p in plans)),
        variance=", ".join(dict.fromkeys(p.variance for p in plans)),
        memory=max(p.memory + sum(kept[:k]) for k, p in enumerate(plans)),
        passes=sum(p.passes for p in plans),
        seconds=sum(p.seconds for p in plans),
    )


def expected_steps(rows: int, settings: Settings) -> float:
    """On all rows: as many as are asked for, or exact ones after training on parts of the rows."""
    training = settings.training
    if training.steps is not None:
        return training.steps
    from_parts = 0 < training.subset < rows <= EXACT_STEP_ROWS and training.subset_iterations > 0
    return EXPECTED_STEPS if from_parts else 0.0


def exact_bytes(rows: int) -> int:
    """Memory of the dense likelihood with its gradient: up to six matrices, as measured."""
    return 6 * rows * rows * 8


def exact_seconds(rows: int, threads: int | None) -> float:
    """Time of the exact stage: a factor, an inverse, and entries with their gradient, again and again."""
    return EVALUATIONS * EVALUATION * dense_seconds(rows, threads)


def neighbourhoods(features: int, last: bool = True) -> tuple[int, int]:
    """How many rows training hears, in its last round or before, each given how many others."""
    if features > FEW_FEATURES:
        return IN_MANY
    return LAST_IN_FEW if last else IN_FEW


def training_seconds(subset: int, rows: int, features: int, threads: int | None, steps: float) -> float:
    """Time of learning from a subset and from neighbourhoods, there and in so many steps, and of judging."""
    if subset == rows:
        return exact_seconds(rows, threads)
    heard, given = neighbourhoods(features, last=False)
    more, _ = neighbourhoods(features)
    first, last = min(rows, heard), min(rows, more)
    densities = NEIGHBOUR_EVALUATIONS * first + LAST_EVALUATIONS * (last - first)
    neighbours = (densities + steps * STEP_EVALUATIONS * last) * neighbour_seconds(features, threads, given)
    evaluations = SUBSET_EVALUATIONS + JUDGING
    return evaluations * EVALUATION * dense_seconds(subset, threads) + neighbours


def dense_seconds(rows: int, threads: int | None) -> float:
    """Time of a Cholesky factor and an inverse in double, by the speed of small ones here."""
    growth = (rows / CALIBRATION_DENSE) ** GROWTH_OF_INVERSE
    return float(growth * _small_inverse_seconds(threads))


def factor_seconds(rows: int, kind: torch.dtype, threads: int | None) -> float:
    """Time of a Cholesky factor alone."""
    growth = (rows / CALIBRATION_DENSE) ** GROWTH_OF_FACTOR
    return float(growth * _small_factor_seconds(kind, threads))


@cache
def _small_inverse_seconds(threads: int | None) -> float:
    matrix = torch.eye(CALIBRATION_DENSE, dtype=torch.float64) + 0.5
    with torch_threads(threads):
        return _fastest(lambda: torch.cholesky_inverse(torch.linalg.cholesky(matrix)))


@cache
def _small_factor_seconds(kind: torch.dtype, threads: int | None) -> float:
    matrix = torch.eye(CALIBRATION_DENSE, dtype=kind) + 0.5
    with torch_threads(threads):
        return _fastest(lambda: torch.linalg.cholesky(matrix))


@cache
def neighbour_seconds(features: int, threads: int | None, neighbours: int) -> float:
    """Time of a row given so many neighbours, with the gradient, measured here on a few."""
    n = CALIBRATION_NEIGHBOURS + neighbours
    x = torch.randn(n, features, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    kernel = Matern(1.5, lengthscale=[max(1.0, features**0.5)] * features)
    of = Neighbourhoods(
        x,
        torch.arange(neighbours, n),
        torch.arange(neighbours).expand(CALIBRATION_NEIGHBOURS, -1).contiguous(),
        torch.full((n,), 2.0, dtype=torch.float64),
        x[:, :1].contiguous(),
    )
    backend, double = get_backend("auto", x.device), Precision.resolve("double")
    seconds = _fastest(
        lambda: backend.conditionals(kernel, of, precision=double, threads=threads, gradient=True)
    )
    return seconds / CALIBRATION_NEIGHBOURS


def _fastest(work: Callable[[], object], calls: int = 3) -> float:
    """Seconds of the fastest of some calls."""
    best = float("inf")
    for _ in range(calls):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def solve_bytes(rows: int, columns: int, iterations: int, rank: int) -> int:
    """Memory of a solve: earlier residuals, vectors, and the factor of the preconditioner."""
    basis = min(8 * rows * columns * 2 * iterations, 2 * BASIS_BYTES)  # in double, if it climbs
    return basis + rows * columns * 8 * 15 + 24 * rows * min(rank, rows)


def preconditioner_bytes(memory_limit: int | None) -> int:
    """What a preconditioner may take: a quarter of what there is."""
    return PRECONDITIONER_BYTES if memory_limit is None else min(PRECONDITIONER_BYTES, memory_limit // 4)


def final_rank(rows: int, memory_limit: int | None) -> int:
    """Of the preconditioner of the last solve, which has the tightest tolerance: 5 √n where memory allows.

    On kin40k (36,000 rows, noise 2e-4, 3e-3) rank 1,000 takes 126 passes where that of training, 300, takes
    295; to build it costs some ten of them.
    """
    memory = preconditioner_bytes(memory_limit)
    return max(1, min(rows, 5 * math.isqrt(rows), memory // (24 * max(rows, 1))))


def usable_memory() -> int:
    """Bytes that the machine has, or that the group of processes may use; as good as all where none tells."""
    return physical_memory() or sys.maxsize


@cache
def entry_rate(features: int, threads: int | None = None) -> float:
    """Entries of K per second of a product with one column, measured here on a few thousand rows."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(CALIBRATION_ROWS, features, generator=generator)
    v = torch.randn(CALIBRATION_ROWS, 1, generator=generator)
    kernel = Matern(1.5, lengthscale=max(1.0, features**0.5))
    operator = KernelOperator(kernel, x, precision="single", threads=threads)
    return CALIBRATION_ROWS**2 / _fastest(lambda: operator @ v, calls=12)  # a few milliseconds each
