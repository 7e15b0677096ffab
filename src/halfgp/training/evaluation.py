"""The gradient on all rows at some hyperparameters: one solve for the targets and the probes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from halfgp.hyperparameters import Hyperparameters
from halfgp.likelihood import GradientEquations, GradientEstimator
from halfgp.operators import Operator
from halfgp.precision import Precision
from halfgp.preconditioners import Preconditioner
from halfgp.problem import Problem, residual_precision
from halfgp.solvers import SolveResult, cg
from halfgp.training.settings import Training


@dataclass(frozen=True)
class Evaluation:
    """What was found.

    Attributes:
        operator: K + noise there.
        built: its preconditioner.
        result: of the solve.
        gradient: of the loss, per row and target, in every value by name.
        passes: over K that it took.
    """

    operator: Operator
    built: Preconditioner | None
    result: SolveResult
    gradient: Mapping[str, Tensor]
    passes: int

    @property
    def solutions(self) -> Tensor:
        """(m, q + s) of the targets and of the probes."""
        return torch.as_tensor(self.result.solution)

    @property
    def residual(self) -> float:
        """The largest true relative one of a column."""
        return float(torch.as_tensor(self.result.residual_norms).max())

    @property
    def finite(self) -> bool:
        """Whether it can be built upon."""
        known = all(bool(g.isfinite().all()) for g in self.gradient.values())
        return known and bool(self.operator.finite(self.solutions).all())


def evaluate(
    hyperparameters: Hyperparameters,
    problem: Problem,
    settings: Training,
    estimator: GradientEstimator,
    *,
    precision: str | Precision,
    start: Tensor | None,
    near: Hyperparameters | None = None,
    built: Preconditioner | None = None,
) -> Evaluation:
    """Solve and differentiate; products beside the solve in single, or in double where the solve is.

    Args:
        hyperparameters: where.
        problem: the rows.
        settings: of the solve.
        estimator: with all that is random.
        precision: of the solve.
        start: of the solve (m, q + s), or None.
        near: for whose matrix the preconditioner is built; None for the hyperparameters themselves.
        built: that preconditioner, where there is one already.

    Raises:
        InputError: K + noise is not positive definite.
    """
    rung = precision if isinstance(precision, str) else precision.name
    products = "double" if rung == "double" else "single"
    operator = problem.system(hyperparameters, products)
    recipe = settings.recipe()
    if built is None and recipe is not None:
        built = recipe.build(operator if near is None else problem.system(near, products))
    equations = estimator.at(hyperparameters, operator)
    result = _solve(equations, settings, built, precision, start)
    gradient = equations.gradient(torch.as_tensor(result.solution))
    return Evaluation(operator, built, result, gradient, result.passes + equations.passes)


def _solve(
    equations: GradientEquations,
    settings: Training,
    built: Preconditioner | None,
    precision: str | Precision,
    start: Tensor | None,
) -> SolveResult:
    return cg(
        equations.operator,
        equations.right_hand_sides,
        method=_method_of(precision),
        preconditioner=built,
        x0=start,
        tol=settings.tol,
        min_iterations=settings.min_iterations,
        max_iterations=settings.max_iterations,
        precision=precision,
        residual_precision=residual_precision(settings.tol),
        warn=False,  # one that ends above its tolerance is in the history, not on the screen
    )


def _method_of(precision: str | Precision) -> str:
    """Of `cg`: training in a 16-bit precision is the paper's setting, and its solves are the paper's."""
    return "paper" if Precision.resolve(precision).is_sixteen_bit else "auto"
