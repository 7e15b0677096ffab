"""Posterior variances and covariances: exact from a factor, or from the nearest rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from halfgp.nearest import along_a_curve, metric
from halfgp.neighbours import NONE, LocalPosterior, Shrinkage
from halfgp.precision import DOUBLE, SINGLE
from halfgp.prediction.equations import Equations
from halfgp.prediction.lazy import Lazy, lazy
from halfgp.prediction.residuals import LeftOut

CHUNK_BYTES = 2**28
SAMPLED_ROWS = 64  # that tell how coordinates are rounded
SHARE_ROWS = 8  # whose exact variances tell how large local ones are
VARIANCE_ERROR = 12.0  # units of rounding: three times what was found, with noise from 1e-5 to 0.1


@dataclass(frozen=True)
class Variances(Lazy):
    """Of the latent function, whatever the targets.

    Attributes:
        equations: K + noise on the rows.
        neighbours: of local variances; None is automatic.
        shrinkage: of local variances.
    """

    equations: Equations
    neighbours: int | None
    shrinkage: Shrinkage = NONE

    @lazy
    def local(self) -> LocalPosterior:
        """Variances without a factor."""
        problem, hyperparameters = self.equations.problem, self.equations.hyperparameters
        return LocalPosterior.build(problem, hyperparameters, self.neighbours, self.shrinkage)

    def scaled(self, equations: Equations, scale: float) -> Variances:
        """The same way to variances of other equations, whose matrix is this one times a number."""
        return Variances(equations, self.neighbours, self.shrinkage.scaled(scale))

    def at(self, x: Tensor, errors: bool = False) -> tuple[Tensor, Tensor | None]:
        """Variances (m,) at points (m, d), never below 0, and their errors if asked for; in chunks."""
        factor = self.equations.factor
        if factor is None:
            return self.local(x) if errors else (self.local.variances(x), None)
        prior = self.equations.hyperparameters.kernel.diagonal(x, white=False).detach()
        size = max(1, CHUNK_BYTES // (3 * len(factor.lower) * factor.lower.dtype.itemsize))
        explained, amplified = torch.empty_like(prior), torch.zeros_like(prior)
        for start in range(0, len(x), size):
            some = slice(start, start + size)
            white = factor.whiten(self.equations.covariances(x[some]).T)
            explained[some] = white.double().square().sum(dim=0)
            if errors:
                amplified[some] = factor.whiten(white, transposed=True).double().square().sum(dim=0)
        variance = (prior - explained).clamp_min(0.0)
        if not errors:
            return variance, None
        fmt = SINGLE if factor.lower.dtype == torch.float32 else DOUBLE
        # A factor is exact for a matrix E away, by some eps in every entry. With w = (K + noise)^-1 k the
        # variance is then off by w'E w, and E is as good as random.
        largest, relative = self._coordinates
        rounded = VARIANCE_ERROR * fmt.eps * prior * (1.0 + amplified)
        return variance, rounded + largest * amplified.sqrt() + relative * prior * amplified

    @lazy
    def _coordinates(self) -> tuple[float, float]:
        """What rounded coordinates do to entries of K in single: at most, and relative to entries on average.

        In a coordinate of hundreds of lengthscales the last place is far more than that of an entry. It moves
        entries of near rows alone, of which k may hold one; and w holds as many as the matrix.
        """
        problem, hyperparameters = self.equations.problem, self.equations.hyperparameters
        if self.equations.precision != "single":
            return 0.0, 0.0  # an eps of double takes coordinates that no data have
        x = problem.at(problem.some_rows(SAMPLED_ROWS, 0))
        exact = torch.as_tensor(problem.cross(hyperparameters, x, "double").to_dense())
        error = self.equations.covariances(x).double() - exact
        size = exact.norm().clamp_min(torch.finfo(torch.float64).tiny)
        return float(error.abs().max()), float(error.norm() / size)

    def left_out(self, rows: Tensor) -> LeftOut:
        """The targets of some rows (m,), each given all the others.

        With a factor variances are 1 / d, d the diagonal of (K + noise)^-1; otherwise given the nearest.
        """
        factor, noise = self.equations.factor, self.noise(rows)
        if factor is not None:
            return LeftOut(rows, 1.0 / factor.inverse_diagonal(rows), noise)
        problem, local = self.equations.problem, self.local
        curve = along_a_curve(metric(self.equations.hyperparameters.kernel, problem.at(rows)))
        near, variances = problem.in_runs(curve, lambda some: local.leave_one_out(rows[some]))
        return LeftOut(rows, variances, noise, near)

    @lazy
    def share(self) -> float:
        """Of local variances that exact ones are, from a few rows: it differs little from one to another.

        Exact ones are taken for those given thousands of rows, which are never too small either.
        """
        if self.equations.factor is not None:
            return 1.0
        problem = self.equations.problem
        rows = problem.some_rows(SHARE_ROWS, 0)
        variances = self.left_out(rows).variances
        many = problem.gathered(self.local.given_many(rows[problem.part.of(len(rows))]), len(rows))
        return float((torch.minimum(many, variances) / variances).mean())

    def noise(self, rows: Tensor) -> Tensor:
        """Variances (m,) on the diagonal beside the kernel's."""
        nugget = self.equations.operator.nugget
        return self.equations.operator.at(nugget, rows) if nugget.ndim else nugget.expand(len(rows))
