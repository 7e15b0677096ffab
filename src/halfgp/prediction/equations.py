"""(K + noise) w = b on the rows of a model, and what solves it: a dense factor, or products with it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from halfgp.hyperparameters import Hyperparameters
from halfgp.operators import Operator
from halfgp.preconditioners import AutomaticPreconditioner, Preconditioner, PreconditionerConfig
from halfgp.prediction.factor import CholeskyFactor
from halfgp.prediction.lazy import Lazy, lazy
from halfgp.problem import Problem

SAMPLED_ROWS = 64  # that tell how entries are rounded
FORMATS = {"double factor": torch.float64, "single factor": torch.float32}


@dataclass(frozen=True)
class Equations(Lazy):
    """K + noise on the rows; its factor and the like are built when they are first needed.

    Attributes:
        problem: rows.
        hyperparameters: where.
        route: "double factor", "single factor" or "products"; see `planner.routes`.
        recipe: of the preconditioner without a factor; None for the default one.
    """

    problem: Problem
    hyperparameters: Hyperparameters
    route: str
    recipe: PreconditionerConfig | None

    @property
    def precision(self) -> str:
        """Of covariances and products: that of the factor, if there is one."""
        return "double" if self.route == "double factor" else "single"

    @lazy
    def operator(self) -> Operator:
        """K + noise, for vectors of the rows held here."""
        return self.problem.system(self.hyperparameters, self.precision)

    @lazy
    def factor(self) -> CholeskyFactor | None:
        """Dense, if the route has one.

        Raises:
            InputError: K + noise is not positive definite in its format.
        """
        if self.route not in FORMATS:
            return None
        hyperparameters, scale = self.hyperparameters.normalised()
        return CholeskyFactor.build(
            self.problem.operator(hyperparameters, self.precision), FORMATS[self.route], scale
        )

    @property
    def is_told_from_rounding(self) -> bool:
        """Whether rounding in the format of a factor is below the noise, without which there would be none.

        The norm of what rounds is about 2 √n times the root mean square of an entry, seen in a few rows.
        """
        if self.route != "single factor":
            return True
        rows = self.problem.some_rows(SAMPLED_ROWS, 0)
        error = self.operator.rows(rows).double() - self.operator.with_precision("double").rows(rows)
        squares = float(self.operator.total(error.square().sum()))
        return 2.0 * math.sqrt(squares / len(rows)) < self.operator.least_nugget

    @lazy
    def preconditioner(self) -> Preconditioner:
        """Of solves: the factor, if there is one."""
        recipe: Any = self.recipe or AutomaticPreconditioner()
        built: Preconditioner = self.factor or recipe.build(self.operator)
        return built

    @property
    def right_hand_side(self) -> Tensor:
        """Targets (m, q) of the rows held here, without their mean."""
        return self.hyperparameters.centred(self.problem.y[self.problem.held])

    def residual(self, weights: Tensor) -> Tensor:
        """What weights (m, q) leave of the targets, with K in double."""
        return self.right_hand_side - self.operator.with_precision("double").matmul(weights)

    def covariances(self, x: Tensor) -> Tensor:
        """K(x, rows) (p, m) of points (p, d) and the rows held here, in the format of the equations."""
        cross = self.problem.cross(self.hyperparameters, x, self.precision, self.problem.held)
        return torch.as_tensor(cross.to_dense())

    def product(self, x: Tensor, w: Tensor, precision: str, backend: str | None = None) -> Tensor:
        """K(x, rows) w (p, t) for points (p, d) and weights (m, t) of the rows held here, float64.

        By another backend than that of the problem where one is named.
        """
        problem = self.problem if backend is None else replace(self.problem, backend=backend)
        cross = problem.cross(self.hyperparameters, x, precision, problem.held)
        return self.operator.total(torch.as_tensor(cross @ w).double())

    def forget(self) -> None:
        """Let go of the factor and of what was made of it; they would be built again."""
        for name in ("factor", "preconditioner"):
            vars(self).pop(name, None)

    def scaled(self, scale: float, units: Tensor) -> Equations:
        """Those of the matrix times a number and targets divided by units (q,), with the factor there is."""
        hyperparameters = self.hyperparameters.scaled(scale)
        if hyperparameters.mean is not None:
            hyperparameters = replace(
                hyperparameters, mean=hyperparameters.mean.with_value(hyperparameters.mean.value / units)
            )
        problem = replace(self.problem, y=self.problem.y / units)
        other = Equations(problem, hyperparameters, self.route, self.recipe)
        if self.factor is not None:
            vars(other)["factor"] = self.factor.scaled(scale)
        return other
