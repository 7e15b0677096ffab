"""The rows that a model is conditioned on, and what computes with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from halfgp.backends import Backend
from halfgp.backends.part import WHOLE, Part, shared_out
from halfgp.compact import COMPACT
from halfgp.distributed.ranks import Ranks
from halfgp.hyperparameters import Hyperparameters
from halfgp.nearest import along_a_curve
from halfgp.operators import KernelOperator, Operator, ShardedKernel
from halfgp.precision import Precision

SINGLE_TOL = 1e-3


def residual_precision(tol: float) -> str:
    """In which the residual of a solve to that tolerance is true enough."""
    return "single" if tol >= SINGLE_TOL else "double"


@dataclass(frozen=True)
class Problem:
    """Standardised rows, and the options of the operators on them.

    Points and targets of all rows are here. The vectors of a solve may be shared out: those of the rows that
    are `held`, for the matrix that `system` gives. All of them are, unless a class says otherwise.

    Attributes:
        points: (n, d), as they are held: in float64, or in float32, of which every computation is then.
        y: targets (n, q), float64.
        fixed_noise: (n,) variances of the rows, or None where one is learned for all.
        precision: of training solves: "auto" for the ladder, or a rung.
        backend: of products.
        threads: of products; None follows torch.
        memory_limit: bytes for entries and factors; None for the defaults of each.
        ranks: processes that rows are shared out to; None where they are all here.
    """

    points: Tensor
    y: Tensor
    fixed_noise: Tensor | None = None
    precision: str | Precision = "auto"
    backend: str | Backend = "auto"
    threads: int | None = None
    memory_limit: int | None = None
    ranks: Ranks | None = None

    @property
    def rows(self) -> int:
        """The number n of rows."""
        return len(self.points)

    @property
    def features(self) -> int:
        """The number d of features."""
        return self.points.shape[1]

    @property
    def device(self) -> torch.device:
        """Where the rows are."""
        return self.points.device

    @property
    def x(self) -> Tensor:
        """All points (n, d) in float64: a copy where they are held in less, so ask for no more than `at`."""
        return self.points.double()

    def at(self, rows: Tensor | slice) -> Tensor:
        """The points (m, d) of some rows in float64."""
        return self.points[rows].double()

    @property
    def held(self) -> slice | Tensor:
        """The rows whose vectors are held here: an index of anything that has all of them."""
        return self.rows_part.held(self.rows)

    @property
    def alone(self) -> Problem:
        """The same with all rows held here, for what every rank does by itself."""
        return replace(self, ranks=None)

    @property
    def part(self) -> Part:
        """Of whatever is shared out, what is done here."""
        return WHOLE if self.ranks is None else self.ranks.part

    @cached_property
    def rows_part(self) -> Part:
        """Of the rows, what is held here: near ones, so that many entries between them are not zero.

        Wherever a row is held, it has its number among all of them, and so random draws, files and
        checkpoints know nothing of it.
        """
        if self.ranks is None:
            return WHOLE
        return replace(self.part, order=shared_out(self._curve, self.ranks.count))

    def held_by(self, index: int, count: int) -> Tensor:
        """The rows, ascending, that one of so many ranks holds, or held when there were so many."""
        if count == 1:
            return torch.arange(self.rows)
        held = Part(index, count, shared_out(self._curve, count)).held(self.rows)
        return torch.as_tensor(held).cpu()

    @cached_property
    def _curve(self) -> Tensor:
        """An order (n,) of the rows in which near ones are together.

        Of points about zero, as standardised ones are, that of compact ones: whoever has the same rows in
        double finds the same. Others may have an offset in which rounding would lose them.
        """
        points = self.points
        if points.numel() and bool(((points.amin(dim=0) <= 0) & (points.amax(dim=0) >= 0)).all()):
            compact = points.to(COMPACT)
            points = compact if bool(compact.isfinite().all()) else points
        return along_a_curve(points)

    def whole(self, v: Tensor) -> Tensor:
        """All rows (n, ...) of a vector of those held here, in their own order."""
        return v if self.ranks is None else self.ranks.gathering(v, self.rows, self.rows_part.order)()

    def total(self, partial: Tensor) -> Tensor:
        """A sum from what of it was done here."""
        return partial if self.ranks is None else self.ranks.total(partial)

    def totals(self, partial: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The same of several, by name."""
        if self.ranks is None:
            return dict(partial)
        return dict(zip(partial, self.ranks.totals(list(partial.values())), strict=True))

    def gathered(self, v: Tensor, count: int) -> Tensor:
        """All of so many things from those that were done here, its part of them."""
        return v if self.ranks is None else self.ranks.gathered(v, count)

    def in_runs(self, order: Tensor, work: Callable[[Tensor], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        """What work finds of things (m,), by their numbers, of which each rank does one run of an order.

        Rows that are near one another have most neighbours in common: along a curve, a run costs its share.
        """
        places = torch.argsort(order)
        mine = work(order[self.part.of(len(order))])
        return tuple(self.gathered(found, len(order))[places] for found in mine)

    def of_first(self, values: Tensor) -> Tensor:
        """As the first rank has them, where every one decided alike but for rounding."""
        return values if self.ranks is None else self.ranks.of_first(values)

    def least(self, number: int) -> int:
        """That of all ranks, of what each one has: those whose machines differ decide alike by it."""
        return number if self.ranks is None else -int(self.ranks.largest(torch.tensor(-number)))

    def system(self, hyperparameters: Hyperparameters, precision: str | Precision | None = None) -> Operator:
        """K + noise as solvers see it, for vectors (m, t) of the rows that are held."""
        if self.ranks is None:
            return self.operator(hyperparameters, precision).bound
        summand = self.operator(hyperparameters, precision, self.rows_part).bound
        return ShardedKernel(summand, self.ranks, self.rows_part)

    def operator(
        self,
        hyperparameters: Hyperparameters,
        precision: str | Precision | None = None,
        part: Part = WHOLE,
    ) -> KernelOperator:
        """K + noise on all rows, or one summand of it, its entries computed on the fly."""
        return KernelOperator(
            hyperparameters.kernel,
            self.points,
            noise=hyperparameters.diagonal_noise(self.fixed_noise),
            precision=self.precision if precision is None else precision,
            backend=self.backend,
            storage="on_the_fly",
            threads=self.threads,
            part=part,
            copy=False,  # rows do not change, and one copy of all points for each rung would be much
        )

    def cross(
        self,
        hyperparameters: Hyperparameters,
        x: Tensor,
        precision: str | Precision,
        rows: Tensor | slice | None = None,
    ) -> KernelOperator:
        """K(x, rows) between new points (m, d) and the rows, or some of them."""
        return KernelOperator(
            hyperparameters.kernel,
            x,
            self.points if rows is None else self.points[rows],
            precision=precision,
            backend=self.backend,
            threads=self.threads,
            copy=False,
        )

    def of_targets(self, targets: Sequence[int]) -> Problem:
        """The same rows with some of their targets."""
        return self if len(targets) == self.y.shape[1] else replace(self, y=self.y[:, list(targets)])

    def extended(self, other: Problem) -> Problem:
        """These rows, then those of the other, with the options and the format of this one."""
        noise = None
        if self.fixed_noise is not None and other.fixed_noise is not None:
            noise = torch.cat([self.fixed_noise, other.fixed_noise])
        return replace(
            self,
            points=torch.cat([self.points, other.points.to(self.points.dtype)]),
            y=torch.cat([self.y, other.y]),
            fixed_noise=noise,
        )

    def some_rows(self, size: int, seed: int, after: int = 0) -> Tensor:
        """Which rows (size,) a random sample without repetition has, ascending; all where there are fewer.

        Args:
            size: of the sample.
            seed: of it.
            after: the size of another with that seed, of which this one has no row.
        """
        order = torch.randperm(self.rows, generator=torch.Generator().manual_seed(seed))
        return order[after : after + size].sort().values.to(self.device)

    def subset(self, size: int, seed: int) -> Problem:
        """A random sample of so many rows, without repetition."""
        return self.taken(self.some_rows(size, seed))

    def taken(self, rows: Tensor | slice) -> Problem:
        """Some rows, all held here, in that order."""
        noise = None if self.fixed_noise is None else self.fixed_noise[rows]
        options = (self.precision, self.backend, self.threads, self.memory_limit)
        return Problem(self.points[rows], self.y[rows], noise, *options)
