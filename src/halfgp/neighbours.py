"""Predictions from landmarks and the nearest rows alone: variances and leave-one-out residuals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from halfgp.backends import get_backend
from halfgp.backends.conditionals import Conditionals, Neighbourhoods
from halfgp.choices import LOCAL_BYTES, LOCAL_LANDMARKS
from halfgp.errors import InputError
from halfgp.hyperparameters import Hyperparameters
from halfgp.kernels.profiles import StationaryProfile
from halfgp.nearest import NearestSearch, along_a_curve, metric
from halfgp.precision import Precision
from halfgp.preconditioners.base import automatic_rank
from halfgp.preconditioners.partial_cholesky import partial_cholesky
from halfgp.preconditioners.pivoted_cholesky import LARGEST_BLOCK, Greedy
from halfgp.problem import Problem
from halfgp.sites import Sites

PER_FEATURE, FEWEST, MOST = 16, 48, 128  # neighbours where nobody says how many
LANDMARK_BYTES = 2**29  # while landmarks are picked
DISTANCES = 4096  # in a table of correlations
MANY = 2048  # of the nearest rows: a dense factor takes a sixth of a second
BELIEVED = 0.01  # of a variance: no figure of neighbours is taken for better known
MISSED = 2.0  # times what the farther rows did: rows beyond may do as much as that


@dataclass(frozen=True)
class Shrinkage:
    """What rows beyond the neighbours take from local variances, as far as it is known.

    Attributes:
        scale: in (0, 1], what variances are multiplied by where the nearest rows explain all of the prior's.
            Where they explain nothing, neither do the others, and it is 1.
        known: the variance up to which it was learned. Above it, as beyond the rows, what is taken away falls
            off with the inverse: kernels with a linear part have priors there that no variance comes near.
    """

    scale: float = 1.0
    known: float = math.inf

    def __call__(self, variance: Tensor, prior: Tensor) -> Tensor:
        """Variances (m,), of which the priors are given, without what the other rows take."""
        tiny = torch.finfo(torch.float64).tiny
        left = (variance / prior.clamp_min(tiny)).clamp_max(1.0)
        beyond = (variance / max(self.known, tiny)).clamp_min(1.0)
        return variance - (1.0 - self.scale) * variance * (1.0 - left) / beyond.square()

    def scaled(self, scale: float) -> Shrinkage:
        """Of variances times a number."""
        return replace(self, known=self.known * scale)


NONE = Shrinkage()


@dataclass(frozen=True)
class LocalPosterior:
    """The posterior of f at a point, given landmarks and the k sites of rows that are nearest to it.

    Landmarks, which pivoted Cholesky picks, say what is smooth and far, whatever the kernel; the nearest rows
    in the metric of its lengthscales what is near. Rows at one place count as one with less noise, so that
    copies take no room from others.

    More rows can only lower a conditional variance, so that this one is never too small. To shrink all of
    them by what they are too large on average, as models of before did, made those too small that were right.

    Attributes:
        problem: rows.
        hyperparameters: where.
        neighbours: k.
        sites: of the rows.
        landmarks: (r,) sites.
        coordinates: (s, f) of the sites, in which those with much to say are near; as compact as the points.
        lower: (r, r) Cholesky factor of K + noise on the landmarks.
        shrinkage: what the other rows take away, in models of before.

    O(k² (k + r + f) + r²) time a point and the search; memory in chunks.
    """

    problem: Problem
    hyperparameters: Hyperparameters
    neighbours: int
    sites: Sites
    landmarks: Tensor
    coordinates: Tensor
    lower: Tensor
    shrinkage: Shrinkage = NONE

    @classmethod
    @torch.no_grad()
    def build(
        cls,
        problem: Problem,
        hyperparameters: Hyperparameters,
        neighbours: int | None,
        shrinkage: Shrinkage = NONE,
    ) -> LocalPosterior:
        """Find the sites, pick landmarks among them, and factor K + noise on those.

        Raises:
            InputError: K + noise is not positive definite on them in double.
        """
        automatic = min(MOST, max(FEWEST, PER_FEATURE * problem.features))
        rank = min(LOCAL_LANDMARKS, automatic_rank(problem.rows, LANDMARK_BYTES))
        operator: Any = problem.operator(hyperparameters, "auto")
        noise, targets = operator.nugget.expand(problem.rows), hyperparameters.centred(problem.y)
        sites = Sites.of(problem.points, noise, targets)
        pivots = partial_cholesky(operator, rank, None, Greedy(LARGEST_BLOCK)).pivots
        landmarks = torch.unique(sites.of_row[pivots])
        rows = sites.first[landmarks]
        inner = problem.cross(hyperparameters, problem.at(rows), "double", rows=rows).to_dense()
        lower, failed = torch.linalg.cholesky_ex(torch.as_tensor(inner) + sites.noise[landmarks].diag())
        if int(failed):
            raise InputError("K + noise is not positive definite in double. Raise `noise_floor`.")
        return cls(
            problem,
            hyperparameters,
            min(automatic if neighbours is None else neighbours, len(sites.first)),
            sites,
            landmarks,
            _coordinates(hyperparameters, problem.at(sites.first), sites.noise).to(problem.points.dtype),
            lower,
            shrinkage,
        )

    def variances(self, x: Tensor) -> Tensor:
        """Variances (m,) at points (m, d), float64."""
        (variance,) = self._latent(x, None, [self.neighbours])
        return self.shrinkage(variance, self._prior(x))

    def __call__(self, x: Tensor, leave_out: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Variances (m,) at points (m, d), and how far they may be off (m,); both float64.

        The error is the larger of what the shrinkage took away and what farther rows did: the farther half of
        them, a third of what the farther three quarters did, or a seventh of what seven eighths did. Where
        variances fall with the inverse of their number, each of these is what all rows beyond would do.

        Args:
            x: points.
            leave_out: (m,) a row that each point must not see: itself, in leave-one-out.
        """
        k = self.neighbours
        shares = (2, 4, 8)
        variance, *fewer = self._latent(x, leave_out, [k, *(k // share for share in shares)])
        prior = self._prior(x)
        shrunk = self.shrinkage(variance, prior)
        gap = torch.zeros_like(variance)  # below zero it is round-off
        for share, larger in zip(shares, fewer, strict=True):
            gap = torch.maximum(gap, (larger - variance) / (share - 1))
        if k < 2 or self.problem.rows < 2:
            gap = variance
        error = torch.minimum(MISSED * gap + BELIEVED * variance, variance) * self.shrinkage.scale
        rounding = torch.finfo(torch.float64).eps * prior  # which may be all that is left
        return shrunk, torch.maximum(torch.maximum(error, rounding), variance - shrunk)

    def leave_one_out(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Residuals (m, q) of the targets of rows (m,), each given the others, and variances (m,)."""
        x = self.problem.at(rows)
        residuals = x.new_empty(len(rows), self.problem.y.shape[1])
        deviations = x.new_empty(len(rows))
        for some, members in self._neighbourhoods(x, rows):
            part = self._conditionals(x[some], rows[some], members)
            deviations[some] = part.deviations
            residuals[some] = part.residuals * part.deviations[:, None]
        noise = self._noise(x, rows)
        latent = (deviations.square() - noise).clamp_min(0.0)
        return residuals, self.shrinkage(latent, self._prior(x)) + noise

    @torch.no_grad()
    def given_many(self, rows: Tensor) -> Tensor:
        """Variances (m,) of the targets of a few rows (m,), each given landmarks and `MANY` of the nearest.

        More rows can only lower a variance, and those that are near take nearly all there is to take: on
        36,000 rows of kin40k these are 1 % above what all rows leave, those given 128 rows and landmarks
        20 %. By dense factors in double; a row whose factor cannot be had has an infinite variance.
        """
        problem, hyperparameters = self.problem, self.hyperparameters
        search = NearestSearch.among_others(metric(hyperparameters.kernel, problem.points), rows)
        backend = get_backend(problem.backend, problem.device)
        near = backend.nearest(search, min(MANY, problem.rows - 1), threads=problem.threads)
        landmarks, explained = self.sites.first[self.landmarks], []
        for row, members in zip(rows, near, strict=True):
            given = torch.cat([members, landmarks]).unique()  # type: ignore[no-untyped-call]
            given = given[given != row]
            both = torch.cat([given, row[None]])
            cross = problem.cross(hyperparameters, problem.at(given), "double", rows=both)
            inner, own = torch.split(torch.as_tensor(cross.to_dense()), [len(given), 1], dim=1)
            inner = inner + self.sites.of_rows[given].diag()
            lower, failed = torch.linalg.cholesky_ex(inner)
            white = torch.linalg.solve_triangular(lower, own, upper=False)
            explained.append(-torch.inf if int(failed) else float(white.square().sum()))
        prior = self._prior(problem.at(rows)) + self.sites.of_rows[rows]
        return prior - prior.new_tensor(explained)

    @torch.no_grad()
    def _prior(self, x: Tensor) -> Tensor:
        """Variances (m,) that nothing has been taken from."""
        return self.hyperparameters.kernel.diagonal(x, white=False)

    def _neighbourhoods(self, x: Tensor, own: Tensor | None) -> Iterator[tuple[Tensor, Tensor]]:
        """Points (p,) of x (m, d), so many at a time, and the nearest sites (p, k) of each.

        A search grows a tree of all sites, and so there is one for as many points as there is room for their
        neighbours. Points that are near one another come together: they have most neighbours in common, and
        what landmarks explain of a site is found once for all of them.

        Args:
            x: points.
            own: (m,) the row that each is, which it must not see; None for points that are no rows.
        """
        columns = len(self.landmarks) + self.problem.features
        size = max(1, LOCAL_BYTES // (16 * (self.neighbours + 1) * columns))
        searched = max(size, LOCAL_BYTES // (8 * (self.neighbours + 1)))
        order = along_a_curve(metric(self.hyperparameters.kernel, x))
        for many in torch.split(order, searched) if len(order) else ():
            sites = None if own is None else self.sites.of_row[own[many]]
            members = self._nearest(x[many], sites, self.neighbours)
            yield from zip(torch.split(many, size), torch.split(members, size), strict=True)

    def _latent(self, x: Tensor, leave_out: Tensor | None, counts: Sequence[int]) -> Tensor:
        """Variances (c, m) of f at points (m, d), given landmarks and so many of the nearest sites (c,)."""
        found = x.new_empty(len(counts), len(x))
        for some, members in self._neighbourhoods(x, leave_out):
            out = None if leave_out is None else leave_out[some]
            noise = self._noise(x[some], out)
            for variances, k in zip(found, counts, strict=True):
                part = self._conditionals(x[some], out, members[:, :k])
                variances[some] = part.deviations.square() - noise
        return found.clamp_min_(0.0)  # round-off below zero is that of the subtraction

    def _noise(self, x: Tensor, own: Tensor | None) -> Tensor:
        """What variances (m,) have beside those of f, so that no small matrix is singular."""
        if own is not None:
            return self.sites.of_rows[own]
        return self.sites.noise.min().expand(len(x))

    def _conditionals(self, x: Tensor, own: Tensor | None, members: Tensor) -> Conditionals:
        """Points (m, d), with noise, given landmarks and other sites.

        A row whose site is a landmark has the other landmarks among its neighbours instead: it must not see
        itself, only the other rows of its site.

        Args:
            x: points.
            own: (m,) the row that each is, which it must not see, and whose target it has; None for points
                that are no rows, and have no targets.
            members: (m, k) sites that are no landmarks; -1 where there are fewer.
        """
        if own is None:
            return self._given(x, None, members, explained=True)
        site = self.sites.of_row[own]
        special = torch.isin(site, self.landmarks)
        found = self._given(x[~special], own[~special], members[~special], explained=True)
        if not bool(special.any()):
            return found
        others = self.landmarks.expand(int(special.sum()), -1)
        others = torch.where(others == site[special, None], -1, others)
        both = torch.cat([members[special], others], dim=1)
        alone = self._given(x[special], own[special], both, explained=False)
        residuals = found.residuals.new_empty(len(x), found.residuals.shape[1])
        deviations = found.deviations.new_empty(len(x))
        for which, part in ((~special, found), (special, alone)):
            residuals[which], deviations[which] = part.residuals, part.deviations
        return Conditionals(residuals, deviations, found.factor)

    def _nearest(self, x: Tensor, site: Tensor | None, k: int) -> Tensor:
        """Sites (m, k) that are no landmarks, nor the point's own; -1 where there are fewer."""
        other = torch.ones_like(self.sites.first, dtype=torch.bool)
        other[self.landmarks] = False
        numbers = other.nonzero()[:, 0]
        at = torch.full((len(x),), -1, device=x.device)
        if site is not None:
            at = torch.where(other[site], torch.cumsum(other, 0)[site] - 1, -1)
        queries = metric(self.hyperparameters.kernel, x)
        queries = torch.cat(
            [queries, queries.new_zeros(len(x), self.coordinates.shape[1] - queries.shape[1])], dim=1
        )
        backend = get_backend(self.problem.backend, x.device)
        search = NearestSearch(self.coordinates[numbers].double(), queries, at)
        found = backend.nearest(search, min(k, len(numbers)), threads=self.problem.threads)
        return torch.where(found >= 0, numbers[found.clamp_min(0)] if len(numbers) else found, -1)

    @torch.no_grad()
    def _given(self, x: Tensor, own: Tensor | None, members: Tensor, explained: bool) -> Conditionals:
        """Points (m, d) given members (m, k), and landmarks first where they are to explain.

        Before the members, a row is given what the others at its site say.
        """
        sites, m = self.sites, len(x)
        used, at = torch.unique(members, return_inverse=True)
        absent = int((used < 0).sum())  # -1 comes first
        used, at = used[absent:], torch.where(members >= 0, at - absent, -1)
        points, noise, values = (
            [self.problem.at(sites.first[used])],
            [sites.noise[used]],
            [sites.targets[used]],
        )
        wanted = sites.targets.new_zeros(m, sites.targets.shape[1])
        if own is not None:
            wanted = sites.targets_of_rows[own]
            of_others, theirs = sites.without(own)
            there = of_others.isfinite()
            first = torch.where(there, len(used) + torch.cumsum(there, 0) - 1, -1)
            at = torch.cat([first[:, None], at], dim=1)
            points, noise, values = [*points, x[there]], [*noise, of_others[there]], [*values, theirs[there]]
        place, targets = torch.cat([*points, x]), torch.cat([*values, wanted])
        known = None
        if explained and len(self.landmarks):
            rows = sites.first[self.landmarks]
            cross = self.problem.cross(self.hyperparameters, place, "double", rows=rows).to_dense()
            known = torch.linalg.solve_triangular(self.lower, torch.as_tensor(cross).T, upper=False).T
            known = known.contiguous()
            white = torch.linalg.solve_triangular(self.lower, sites.targets[self.landmarks], upper=False)
            targets = targets - known @ white
        of = Neighbourhoods(
            place,
            torch.arange(len(place) - m, len(place), device=x.device),
            at,
            self._prior(place) + torch.cat([*noise, self._noise(x, own)]),
            targets,
            known,
        )
        kernel, double = self.hyperparameters.kernel, Precision.resolve("double")
        backend = get_backend(self.problem.backend, x.device)
        found = backend.conditionals(kernel, of, precision=double, threads=self.problem.threads)
        if bool(found.deviations.isnan().any()):
            raise InputError("K + noise is not positive definite in double. Raise `noise_floor`.")
        return found


@torch.no_grad()
def _coordinates(hyperparameters: Hyperparameters, x: Tensor, noise: Tensor) -> Tensor:
    """Of sites (s, d): their metric, and one more coordinate for their noise where it differs.

    The squared correlation of f and a target is that of f there, over 1 + noise / prior: noise says as little
    as the distance at which that of f has fallen so far.
    """
    kernel = hyperparameters.kernel
    near = metric(kernel, x)
    leaves = [leaf for leaf in kernel.program().leaves if isinstance(leaf.profile, StationaryProfile)]
    if not leaves or len(noise) == 0 or float(noise.min()) == float(noise.max()):
        return near
    profile = leaves[0].profile
    assert isinstance(profile, StationaryProfile)
    distances = torch.logspace(-9, 3, DISTANCES, dtype=torch.float64)
    fallen = -2.0 * profile.value(distances.square(), leaves[0].shape).abs().log()
    prior = kernel.diagonal(x, white=False).clamp_min(torch.finfo(torch.float64).tiny)
    which = torch.searchsorted(fallen.cummax(dim=0).values, torch.log1p(noise / prior))
    return torch.cat([near, distances[which.clamp_max(DISTANCES - 1)][:, None]], dim=1)
