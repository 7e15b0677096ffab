"""An operator whose rows are shared out over threads of one process, each of which runs the same program."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor

from halfgp.operators import Operator
from halfgp.operators.bound import BoundKernel
from halfgp.precision import Precision

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


class Shard(Operator):
    """Some rows of a whole operator; of what it knows, only their part leaves it."""

    def __init__(self, whole: Operator, held: slice, index: int, meeting: Meeting) -> None:
        self.whole, self._held, self._index, self._meeting = whole, held, index, meeting
        self.shape, self.device, self.precision = whole.shape, whole.device, whole.precision

    @property
    def is_shared(self) -> bool:
        return True

    @property
    def held(self) -> slice:
        return self._held

    @property
    def bound(self) -> Shard:
        """For those who take a `KernelOperator` by its inner face."""
        return self

    def matmul(self, v: Tensor) -> Tensor:
        return self.whole.matmul(self.gathered(v))[self._held]

    def with_precision(self, precision: str | Precision) -> Shard:
        return Shard(self.whole.with_precision(precision), self._held, self._index, self._meeting)

    def rungs(self) -> tuple[Precision, ...]:
        return self.whole.rungs()

    @property
    def nugget(self) -> Tensor:
        return self.whole.nugget[self._held] if self.whole.nugget.ndim else self.whole.nugget

    @property
    def has_rows(self) -> bool:
        return self.whole.has_rows

    def rows(self, i: Tensor) -> Tensor:
        return self.whole.rows(i)[:, self._held].clone()

    def diagonal(self) -> Tensor:
        return self.whole.diagonal()[self._held]

    def total(self, partial: Tensor) -> Tensor:
        return torch.stack(self._meeting.exchange(self._index, partial)).sum(dim=0)

    def largest(self, partial: Tensor) -> Tensor:
        return torch.stack(self._meeting.exchange(self._index, partial)).amax(dim=0)

    def bilinear_gradient(
        self, u: Tensor, v: Tensor, inputs: bool = False
    ) -> tuple[dict[str, Tensor], None, None]:
        """Each share adds the terms of its own rows, u' K v being a sum over them."""
        assert isinstance(self.whole, BoundKernel)
        mine = torch.zeros(self.size, u.shape[1], dtype=u.dtype)
        mine[self._held] = u
        found, _, _ = self.whole.bilinear_gradient(mine, self.gathered(v), inputs)
        return {name: self.total(gradient) for name, gradient in found.items()}, None, None


def over_shards(whole: Operator, cuts: list[int], program: Callable[[Shard], R]) -> list[R]:
    """What the program returns on every share of the rows, cut before these rows."""
    edges = [0, *cuts, whole.size]
    meeting = Meeting(len(edges) - 1)
    shards = [Shard(whole, slice(a, b), i, meeting) for i, (a, b) in enumerate(itertools.pairwise(edges))]

    def run(shard: Shard) -> R:
        try:
            return program(shard)
        except BaseException:
            meeting.abort()  # or the others would wait for this one
            raise

    with ThreadPoolExecutor(len(shards)) as pool:
        futures = [pool.submit(run, shard) for shard in shards]
        failures = [f.exception() for f in futures]
        real = [e for e in failures if e is not None and not isinstance(e, threading.BrokenBarrierError)]
        if real:
            raise real[0]
        return [f.result() for f in futures]
