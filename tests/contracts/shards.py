"""Operators and problems shared out over threads of one process, each of which runs the same program."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from halfgp.hyperparameters import Hyperparameters
from halfgp.operators import Operator
from halfgp.operators.bound import BoundKernel
from halfgp.precision import Precision
from halfgp.problem import Problem

R = TypeVar("R")


class Meeting:
    """Where shares come together: everybody brings a tensor, and takes all of them home, in order."""

    def __init__(self, count: int) -> None:
        self._barrier = threading.Barrier(count, timeout=60)
        self._brought: list[Tensor | None] = [None] * count

    def exchange(self, index: int, mine: Tensor) -> list[Tensor]:
        self._brought[index] = mine.clone()
        self._barrier.wait()
        found = [tensor for tensor in self._brought if tensor is not None]
        self._barrier.wait()  # nobody brings the next before all have seen this one
        return found

    def abort(self) -> None:
        self._barrier.abort()


@dataclass(frozen=True)
class Share:
    """Some of all rows, and where the others are met."""

    held: slice
    index: int
    meeting: Meeting

    def exchange(self, mine: Tensor) -> Tensor:
        """What every share brings, one after the other in a first dimension."""
        return torch.stack(self.meeting.exchange(self.index, mine))


class Shard(Operator):
    """Some rows of a whole operator; of what it knows, only their part leaves it."""

    def __init__(self, whole: Operator, share: Share) -> None:
        self.whole, self._share = whole, share
        self.shape, self.device, self.precision = whole.shape, whole.device, whole.precision

    @property
    def is_shared(self) -> bool:
        return True

    @property
    def held(self) -> slice:
        return self._share.held

    def matmul(self, v: Tensor) -> Tensor:
        return self.whole.matmul(self.gathered(v))[self.held]

    def with_precision(self, precision: str | Precision) -> Shard:
        return Shard(self.whole.with_precision(precision), self._share)

    def rungs(self) -> tuple[Precision, ...]:
        return self.whole.rungs()

    @property
    def nugget(self) -> Tensor:
        return self.whole.nugget[self.held] if self.whole.nugget.ndim else self.whole.nugget

    @property
    def has_rows(self) -> bool:
        return self.whole.has_rows

    def rows(self, i: Tensor) -> Tensor:
        return self.whole.rows(i)[:, self.held].clone()

    def diagonal(self) -> Tensor:
        return self.whole.diagonal()[self.held]

    def total(self, partial: Tensor) -> Tensor:
        return self._share.exchange(partial).sum(dim=0)

    def largest(self, partial: Tensor) -> Tensor:
        return self._share.exchange(partial).amax(dim=0)

    def bilinear_gradient(
        self, u: Tensor, v: Tensor, inputs: bool = False
    ) -> tuple[dict[str, Tensor], None, None]:
        """Each share adds the terms of its own rows, u' K v being a sum over them."""
        assert isinstance(self.whole, BoundKernel)
        mine = torch.zeros(self.size, u.shape[1], dtype=u.dtype)
        mine[self.held] = u
        found, _, _ = self.whole.bilinear_gradient(mine, self.gathered(v), inputs)
        return {name: self.total(gradient) for name, gradient in found.items()}, None, None


@dataclass(frozen=True)
class SharedProblem(Problem):
    """A problem of which vectors of some rows are held here; points and targets of all of them are."""

    share: Share | None = None

    @property
    def held(self) -> slice:
        assert self.share is not None
        return self.share.held

    def system(self, hyperparameters: Hyperparameters, precision: str | Precision | None = None) -> Operator:
        assert self.share is not None
        return Shard(super().system(hyperparameters, precision), self.share)


def over_shards(whole: Operator, cuts: list[int], program: Callable[[Shard], R]) -> list[R]:
    """What the program returns on every share of an operator's rows, cut before these."""
    return _over_shares(whole.size, cuts, lambda share: program(Shard(whole, share)))


def over_problems(whole: Problem, cuts: list[int], program: Callable[[Problem], R]) -> list[R]:
    """What the program returns on every share of a problem's rows, cut before these."""
    return _over_shares(whole.rows, cuts, lambda share: program(SharedProblem(**vars(whole), share=share)))


def _over_shares(rows: int, cuts: list[int], program: Callable[[Share], R]) -> list[R]:
    edges = [0, *cuts, rows]
    meeting = Meeting(len(edges) - 1)
    shares = [Share(slice(a, b), i, meeting) for i, (a, b) in enumerate(itertools.pairwise(edges))]

    def run(share: Share) -> R:
        try:
            return program(share)
        except BaseException:
            meeting.abort()  # or the others would wait for this one
            raise

    with ThreadPoolExecutor(len(shares)) as pool:
        futures = [pool.submit(run, share) for share in shares]
        failures = [f.exception() for f in futures]
        real = [e for e in failures if e is not None and not isinstance(e, threading.BrokenBarrierError)]
        if real:
            raise real[0]
        return [f.result() for f in futures]
