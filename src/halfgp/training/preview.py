"""What a few rows tell of a fit before it: how much neighbours explain, and how far the kernel reaches."""

from __future__ import annotations

from dataclasses import replace

import torch

from halfgp.choices import FEW_FEATURES
from halfgp.errors import InputError
from halfgp.hyperparameters import Hyperparameters
from halfgp.likelihood import NeighbourLikelihood
from halfgp.likelihood.dense import lower_kernel
from halfgp.planner import Preview
from halfgp.precision import Precision
from halfgp.priors import Priors
from halfgp.problem import Problem
from halfgp.training.exact import train_exactly
from halfgp.training.starts import loud_and_quiet
from halfgp.truncation import resolve_truncation

ROWS, IN_FEW, NEIGHBOURS, PAIRED = 768, 3072, 20, 1024  # in few features a row is soon done
ROUNDS, ITERATIONS, FLAT = 2, 15, 1e-3


def preview(start: Hyperparameters, problem: Problem, priors: Priors, seed: int) -> Preview:
    """From densities of a few rows, each given its nearest ones among all of them; about a second.

    A small set of rows would not do: it has lengthscales of its own spacing.
    """
    starts, explained = loud_and_quiet(start), 0.0
    rows = IN_FEW if problem.features <= FEW_FEATURES else ROWS
    for _ in range(ROUNDS):
        likelihood = _among_few(
            NeighbourLikelihood.around(
                starts[0], problem, rows=rows, neighbours=NEIGHBOURS, seed=seed, priors=priors
            )
        )
        try:
            reached = [_climb(likelihood, each, problem.rows) for each in starts]
        except InputError:  # neighbours too close for the noise: what was found before tells as much
            break
        found, _ = min(reached, key=lambda pair: pair[1])
        starts, explained = [found], _explained(likelihood, found)
    return Preview(explained, _live(starts[0], problem, seed))


def _climb(
    likelihood: NeighbourLikelihood, start: Hyperparameters, rows: int
) -> tuple[Hyperparameters, float]:
    return train_exactly(
        start,
        likelihood,
        rows=rows,
        stage="neighbours",
        iterations=ITERATIONS,
        flat=FLAT,
        observe=lambda *_: None,
    )


def _among_few(likelihood: NeighbourLikelihood) -> NeighbourLikelihood:
    """The same with none but the rows that it looks at."""
    sets = likelihood.sets
    used, where = torch.unique(torch.cat([sets.rows[:, None], sets.members], dim=1), return_inverse=True)
    absent = int(used[0] < 0)  # -1 stands for no neighbour, and comes first
    where = where - absent
    few = likelihood.problem.taken(used[absent:])
    return replace(
        likelihood, problem=few, sets=replace(sets, rows=where[:, 0], members=where[:, 1:].contiguous())
    )


def _explained(likelihood: NeighbourLikelihood, hyperparameters: Hyperparameters) -> float:
    """By neighbours, for the later half of the rows, whose neighbours are as near as those of all rows."""
    problem, sets = likelihood.problem, likelihood.sets
    found = sets.conditionals(hyperparameters, problem, hyperparameters.centred(problem.y))
    with torch.no_grad():
        variances = hyperparameters.kernel.diagonal(problem.x)[sets.rows]
    ratios = variances / found.deviations.square()
    return max(0.0, float(ratios[len(ratios) // 2 :].log().mean()))


def _live(hyperparameters: Hyperparameters, problem: Problem, seed: int) -> float:
    """The share of pairs, by those of a sample, that products in single do not take for zero."""
    kernel, single = hyperparameters.kernel, Precision.resolve("single")
    zero = resolve_truncation("auto", kernel, problem.rows, single).vanishing(single)
    some = problem.subset(PAIRED, seed)
    with torch.no_grad():
        below = lower_kernel(kernel, some.x).tril(-1)
        deviations = kernel.diagonal(some.x).sqrt()
    pairs = max(1, some.rows * (some.rows - 1) // 2)
    return int((below.abs() > zero * deviations * deviations[:, None]).sum()) / pairs
