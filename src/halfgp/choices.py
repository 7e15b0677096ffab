"""What a fit will do where nobody says: by the number of its rows and features, and by memory."""

from __future__ import annotations

import math
import sys

from halfgp.memory import physical_memory
from halfgp.precision import DOUBLE, Precision
from halfgp.preconditioners.base import rank_within
from halfgp.settings import Settings

ROUTES = ("double factor", "single factor", "products")  # to the weights; see `routes`
CHOLESKY_ROWS = 3000  # up to so many rows "auto" trains exactly: a step takes half a second there
DOUBLE_ROWS = 6000  # up to so many rows a dense factor in double takes a second or two
FACTOR_ROWS = 10_000  # beyond, a dense factor for the variances takes longer than everything else
FACTOR_BYTES = 2**32  # memory for it without a `memory_limit`
RESIDENT = 550 * 10**6  # of Python with torch, and what BLAS and the allocator keep, before any rows
LOCAL_LANDMARKS = 256  # of local variances, at most
LOCAL_BYTES = 2**27  # of local variances, so many points at a time
# Rows whose densities training takes, and how many others each is given. In few dimensions a few surround a
# row, and say most; what is left to learn is in how many rows are heard: in the last round four times as
# many, for where densities have heavy tails, 32,000 rows of 100,000 prefer what all of them do not.
FEW_FEATURES, IN_FEW, LAST_IN_FEW, IN_MANY = 4, (32_000, 20), (128_000, 20), (4000, 60)
# Least variance of the noise. Of few features neighbours precondition solves at any noise, and rows lie so
# dense that they tell: 100,000 rows of a survey have one of 1e-7. Of many it is what solves bear.
FLOOR_IN_FEW, FLOOR_IN_MANY = 1e-8, 1e-6
EXACT_STEP_ROWS = 20_000  # beyond, a gradient on all rows takes longer than all training before it
EXACT_STEPS = 3  # at most; each has to pay


def choose_method(method: str, rows: int) -> str:
    """Either "cholesky" or "cg", for a method that may be "auto"."""
    if method != "auto":
        return method
    return "cholesky" if rows <= CHOLESKY_ROWS else "cg"


def are_compact(settings: Settings, rows: int, ranks: int) -> bool:
    """Whether points are held in single once they are standardised: where each of several ranks has them all.

    Not where everything is to be in double, nor where they stay as they come, for then they may be of any
    size; nor where a plane is laid through all of them in double. And where nothing is shared out every rank
    does as one process would.
    """
    double = Precision.resolve(settings.precision).vectors is DOUBLE or settings.mean == "linear"
    shared = ranks > 1 and choose_method(settings.method, rows) != "cholesky"
    return shared and settings.standardise_X and not double


def choose_variance(variance: str, rows: int, memory_limit: int | None) -> str:
    """Either "cholesky" or "local", for training by CG."""
    if variance != "auto":
        return variance
    fits = factor_bytes(rows, 4) <= min(FACTOR_BYTES, (memory_limit or 2 * FACTOR_BYTES) // 2)
    return "cholesky" if fits and rows <= FACTOR_ROWS else "local"


def routes(
    method: str, variance: str, rows: int, memory_limit: int | None, machine: int | None = None
) -> tuple[str, ...]:
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
        machine: bytes that it has; None for this one.
    """
    allowed = (machine or usable_memory()) // 2 if memory_limit is None else memory_limit
    last = ("double factor",) if RESIDENT + factor_bytes(rows, 8) <= allowed else ()
    if method == "cholesky":
        return ("double factor",)
    if choose_variance(variance, rows, memory_limit) == "local":
        return ("products", *last)
    return last if last and rows <= DOUBLE_ROWS else ("single factor", "products", *last)


def neighbourhoods(features: int, last: bool = True) -> tuple[int, int]:
    """How many rows training hears, in its last round or before, each given how many others."""
    if features > FEW_FEATURES:
        return IN_MANY
    return LAST_IN_FEW if last else IN_FEW


def choose_noise_floor(floor: float | None, noise: float, features: int) -> float:
    """The least noise that training goes to: as given, or below where it starts in any case."""
    if floor is not None:
        return floor
    return min(FLOOR_IN_FEW if features <= FEW_FEATURES else FLOOR_IN_MANY, 0.5 * noise)


def factor_bytes(rows: int, itemsize: int) -> int:
    """Memory while a dense factor is built: the matrix, and a quarter for panels and solutions."""
    return rows * rows * itemsize * 5 // 4


def preconditioner_bytes(memory_limit: int | None, machine: int | None = None) -> int:
    """What a preconditioner may take: a quarter of what a fit may."""
    return (memory_limit or machine or usable_memory()) // 4


def final_rank(rows: int, memory_limit: int | None, machine: int | None = None) -> int:
    """Of the preconditioner of the last solve, which has the tightest tolerance: 5 √n where memory allows.

    On kin40k (36,000 rows, noise 2e-4, 3e-3) rank 1,000 takes 126 passes where that of training, 300, takes
    295; to build it costs some ten of them.
    """
    memory = preconditioner_bytes(memory_limit, machine)
    return max(1, min(5 * math.isqrt(rows), rank_within(rows, memory)))


def usable_memory() -> int:
    """Bytes that the machine has, or that the group of processes may use; as good as all where none tells."""
    return physical_memory() or sys.maxsize
