"""Which models the tables are made of: sets, methods, seeds, rows and steps, all in this one place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from halfgp.paper.frame.context import Context
from halfgp.paper.studies.fits import OURS, FitRequest

SMALL = ("pol", "elevators", "bike")  # the paper's sets below 20,000 rows
MIDDLE = ("kin40k", "protein", "keggdirected")
LARGE = ("osborne_magnetic", "covtype_elev", "houseelectric")
LARGE_ROWS = 20_000  # of each: in the paper's setting, all rows would take days on two cores
QUICK_ROWS = 1_200


@dataclass(frozen=True)
class Effort:
    """How long a model is trained.

    Attributes:
        steps: of Adam, of ours.
        epochs: of SVGP, in minibatches of 1024.
        inducing: points of SVGP.
    """

    steps: int
    epochs: int
    inducing: int


QUICK = Effort(steps=30, epochs=100, inducing=128)
FULL = Effort(steps=50, epochs=50, inducing=1024)  # steps and points are the paper's; epochs it does not tell


@dataclass(frozen=True)
class Group:
    """Sets that are treated alike.

    Attributes:
        sets: their names.
        methods: of `fits.METHODS`; single first.
        seeds: of our models: splits and everything random.
        svgp_seeds: of SVGP, which takes several times as long.
        rows: training rows at most; None for all.
    """

    sets: tuple[str, ...]
    methods: tuple[str, ...]
    seeds: int
    svgp_seeds: int
    rows: int | None


TWO, ALL = ("single", "half"), ("single", "half", "bfloat16", "svgp")
QUICK_RBF = (
    Group(("pol", "elevators"), ALL, seeds=1, svgp_seeds=1, rows=QUICK_ROWS),
    Group(("protein", *LARGE), TWO, seeds=1, svgp_seeds=0, rows=QUICK_ROWS),
)
FULL_RBF = (
    Group(SMALL, ALL, seeds=5, svgp_seeds=3, rows=None),
    Group(MIDDLE, ALL, seeds=3, svgp_seeds=1, rows=None),
    Group(LARGE, ALL, seeds=3, svgp_seeds=1, rows=LARGE_ROWS),
)
QUICK_MATERN = (Group(("pol",), TWO, seeds=1, svgp_seeds=0, rows=QUICK_ROWS),)
FULL_MATERN = (
    Group(SMALL, ALL, seeds=3, svgp_seeds=1, rows=None),
    Group(MIDDLE, ALL, seeds=1, svgp_seeds=1, rows=None),
    Group(("osborne_magnetic",), ALL, seeds=1, svgp_seeds=1, rows=LARGE_ROWS),
)


def groups(context: Context, kernel: str = "rbf") -> tuple[Group, ...]:
    """Of a kernel's table."""
    if kernel == "rbf":
        return context.pick(quick=QUICK_RBF, full=FULL_RBF)
    return context.pick(quick=QUICK_MATERN, full=FULL_MATERN)


def effort(context: Context) -> Effort:
    """Of every model."""
    return context.pick(quick=QUICK, full=FULL)


def request(
    context: Context, set_name: str, method: str, *, kernel: str = "rbf", seed: int | None = None
) -> FitRequest:
    """One model of a table; parts that ask for the same one share it."""
    (group,) = (group for group in groups(context, kernel) if set_name in group.sets)
    spent = effort(context)
    return FitRequest(
        set_name,
        method,
        kernel,
        seed=context.seed if seed is None else seed,
        rows=group.rows,
        steps=spent.steps if method in OURS else spent.epochs,
        inducing=spent.inducing,
    )


def requests(context: Context, kernel: str = "rbf") -> Iterator[tuple[str, str, list[FitRequest]]]:
    """Set, method and one request per seed, for the whole table."""
    for group in groups(context, kernel):
        for set_name in group.sets:
            for method in group.methods:
                count = group.svgp_seeds if method == "svgp" else group.seeds
                seeds = range(context.seed, context.seed + count)
                each = [request(context, set_name, method, kernel=kernel, seed=seed) for seed in seeds]
                yield set_name, method, each
