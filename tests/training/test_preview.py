from __future__ import annotations

import pytest
import torch

from halfgp.errors import ConstantColumnsWarning
from halfgp.hyperparameters import Hyperparameters
from halfgp.kernels import Matern
from halfgp.likelihood import NeighbourLikelihood
from halfgp.model import ExactGP
from halfgp.parameters import Parameter
from halfgp.planner import Preview, make_plan
from halfgp.priors import as_priors
from halfgp.problem import Problem
from halfgp.settings import Settings
from halfgp.training import preview
from halfgp.training.preview import _among_few

PRIORS = as_priors(Settings.priors)


def beginning(features: int) -> Hyperparameters:
    noise = Parameter(torch.tensor(0.1, dtype=torch.float64), 1e-8, name="noise")
    return Hyperparameters(Matern(1.5, lengthscale=[1.0] * features), noise, None)


START = beginning(2)


def rows(frequency: float, noise: float, n: int = 3000, features: int = 2) -> Problem:
    """Of waves along each feature, of so many radians."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(n, features, generator=generator, dtype=torch.float64)
    y = torch.sin(frequency * x).sum(dim=1, keepdim=True)
    return Problem(x, y + noise * torch.randn(n, 1, generator=generator, dtype=torch.float64))


def test_the_less_noise_the_more_rows_explain_each_other() -> None:
    loud, quiet = (preview(START, rows(5.0, noise), PRIORS, 0) for noise in (0.5, 0.01))
    assert loud.explained + 1.0 < quiet.explained
    assert preview(START, rows(5.0, 0.5), PRIORS, 0) == loud


def test_quick_functions_have_kernels_of_short_reach() -> None:
    slow, quick = (
        preview(beginning(1), rows(frequency, 0.01, features=1), PRIORS, 0) for frequency in (2.0, 600.0)
    )
    assert slow.live == 1.0
    assert quick.live < 0.5


def test_rows_that_nobody_looks_at_change_nothing() -> None:
    whole = NeighbourLikelihood.around(START, rows(5.0, 0.1), rows=30, neighbours=4, seed=0, priors=PRIORS)
    few = _among_few(whole)
    assert few.problem.rows <= 30 * 5
    expected, found = whole(START), few(START)
    # The prior is weighed against all rows: here it is of the few.
    assert set(found.gradient) == set(expected.gradient)
    residual = [likelihood.sets.conditionals(START, likelihood.problem, likelihood.problem.y).residuals
                for likelihood in (whole, few)]  # fmt: skip
    assert torch.equal(*residual)


def test_a_plan_of_known_targets_counts_passes_by_what_is_explained() -> None:
    passes = [make_plan(50_000, 8, 1, Settings(), Preview(e, 1.0)).passes for e in (0.0, 2.0, 9.0)]
    assert passes[0] < make_plan(50_000, 8, 1, Settings()).passes < passes[2]
    assert passes == sorted(passes)


def test_a_plan_looks_at_targets_that_it_is_given() -> None:
    problem = rows(5.0, 0.1, 3100)
    plan = ExactGP().plan(problem.x, y=problem.y)
    assert plan.preview is not None
    assert plan.preview.explained > 0.0
    assert ExactGP().plan(problem.x).preview is None
    assert ExactGP().plan(problem.x[:100], y=problem.y[:100]).preview is None  # exact, and soon done


def test_targets_of_other_rows_are_looked_at_each() -> None:
    problem = rows(5.0, 0.1, 3100)
    y = problem.y.repeat(1, 2)
    y[0, 1] = torch.nan
    plan = ExactGP().plan(problem.x, y=y)
    assert len(plan.parts) == 2
    assert all(part.preview is not None for part in plan.parts)


def test_a_constant_target_and_repeated_rows_have_a_preview() -> None:
    repeated = torch.ones(3100, 2, dtype=torch.float64)
    with pytest.warns(ConstantColumnsWarning):
        plan = ExactGP().plan(repeated, y=torch.zeros(3100))
    assert plan.preview is not None
    assert plan.preview.live == 1.0
