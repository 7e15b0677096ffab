"""The processes of a torch.distributed group that share rows out, as one of them sees them."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from halfgp.backends.part import Part
from halfgp.distributed.traffic import Traffic
from halfgp.errors import RankError

PATIENCE = timedelta(days=365)  # in a meeting: a product may take any time, and a heartbeat tells who is gone
SMALL = 2**14  # numbers; sums of more are shared out before they are added up
_alone: ContextVar[bool] = ContextVar("alone", default=False)


class _Gather(NamedTuple):
    """One that is under way.

    Attributes:
        sent: what this rank brings; the network reads it until the end.
        found: (ranks, ...) where it puts what all bring.
        device: that this is wanted on.
        work: to wait for, or None where there is nothing to send.
    """

    sent: Tensor
    found: Tensor
    device: torch.device
    work: Any


class Ranks:
    """All processes of a group; every method is a meeting that all of them come to, in the same order.

    What comes of one is the same on every rank, to the bit, and the same again in another run with as many
    ranks: sums are taken in the order of the ranks, in float64, whatever the network does.

    Attributes:
        index: of this process.
        count: of all.
        traffic: what was sent and waited for.
    """

    def __init__(self, group: Any) -> None:
        self._group = group
        self.index, self.count = dist.get_rank(group), dist.get_world_size(group)
        # NCCL knows tensors of GPUs only, and gloo is at home on CPUs.
        self._device = torch.device("cuda" if dist.get_backend(group) == "nccl" else "cpu")
        self.traffic = Traffic(self.count)

    @property
    def is_first(self) -> bool:
        """Whether this is the one that prints and writes."""
        return self.index == 0

    @property
    def part(self) -> Part:
        """Of the work, and of the rows."""
        return Part(self.index, self.count)

    def held(self, rows: int) -> slice:
        """Which of so many rows are here."""
        return self.part.of(rows)

    def total(self, partial: Tensor) -> Tensor:
        """The sum over ranks, of the shape and dtype of what each brings."""
        if partial.numel() <= SMALL:
            return _added(self._all(partial)).to(partial)
        flat = partial.reshape(-1)
        share = -(-len(flat) // self.count)
        padded = torch.nn.functional.pad(flat, (0, share * self.count - len(flat)))
        mine = _added(self._exchanged(padded.reshape(self.count, share))).to(partial)
        return self._all(mine).reshape(-1)[: len(flat)].reshape(partial.shape).to(partial)

    def totals(self, partial: Sequence[Tensor]) -> list[Tensor]:
        """The sums over ranks of several tensors, in one meeting, in float64 until they are added up."""
        flat = torch.cat([part.double().reshape(-1).to(self._device) for part in partial])
        sums = torch.split(self.total(flat), [part.numel() for part in partial])
        return [total.reshape(part.shape).to(part) for total, part in zip(sums, partial, strict=True)]

    def largest(self, partial: Tensor) -> Tensor:
        """The largest of every number; NaN where any is."""
        return self._all(partial).amax(dim=0).to(partial)

    def gathered(self, v: Tensor, rows: int) -> Tensor:
        """All of so many rows (n, ...) of v (m, ...), those held here; a matrix becomes column-major."""
        return self.gathering(v, rows)()

    def gathering(self, v: Tensor, rows: int, order: Tensor | None = None) -> Callable[[], Tensor]:
        """The same under way, as this rank goes on: what is returned waits for it, and gives all rows.

        No other meeting may come between.

        Args:
            v: (m, ...), those held here.
            rows: how many there are, n.
            order: (n,) rows by who holds them; None where every rank has its run of them.
        """
        sides = v.T if v.ndim == 2 else v
        most = -(-rows // self.count)
        begun = [self._begun(torch.nn.functional.pad(sides, (0, most - sides.shape[-1])))]

        def arrived() -> Tensor:
            found = self._ended(begun.pop())  # which is not kept beside what is returned
            whole = found.new_empty(*sides.shape[:-1], rows)
            for rank in range(self.count):
                some = self._of(rank, rows)
                whole[..., some if order is None else order[some]] = found[rank, ..., : _size(some)]
            return whole.T if v.ndim == 2 else whole

        return arrived

    def scattered(self, partial: Tensor, order: Tensor | None = None, own: Tensor | None = None) -> Tensor:
        """The rows held here (m, t) of the sum over ranks of (n, t): a reduce-scatter, column-major.

        Every rank sends each other one its rows as they are, and adds up what it is sent in float64: no
        network chooses the order.

        Args:
            partial: (n, t), what this rank has of the sum.
            order: as for `gathering`.
            own: (m, t) of the rows held here, which is added to that.
        """
        rows, t = partial.shape
        most = -(-rows // self.count)
        packed = partial.new_zeros(self.count, t, most)
        for rank in range(self.count):
            some = self._of(rank, rows)
            packed[rank, :, : _size(some)] = partial[some if order is None else order[some]].T
        mine = _added(self._exchanged(packed))[:, : _size(self.held(rows))]
        if own is not None:
            mine += own.T
        return mine.to(partial).contiguous().T

    def of_first(self, values: Tensor) -> Tensor:
        """What the first rank brings, for all: a decision that each would come to by rounding of its own."""
        sent = values.detach().to(self._device).clone()
        with self._meeting(values.nbytes if self.is_first else 0):
            dist.broadcast(sent, 0, group=self._group)  # all ranks are in it: the first is 0 everywhere
        return sent.to(values)

    def leave(self) -> None:
        """Let go of the group: nobody meets after it."""
        if dist.is_initialized() and self._group is not None:
            dist.destroy_process_group(self._group)
        self._group = None

    def texts(self, mine: str) -> list[str]:
        """What every rank has to say, in their order."""
        raw = torch.frombuffer(bytearray(mine.encode() or b"\0"), dtype=torch.uint8)
        sizes = self._all(torch.tensor([len(mine.encode())]))[:, 0].tolist()
        found = self._all(torch.nn.functional.pad(raw, (0, max(*sizes, 1) - len(raw)))).cpu()
        return [bytes(found[k, :size].numpy()).decode() for k, size in enumerate(sizes)]

    @contextmanager
    def _meeting(self, bytes_sent: int) -> Iterator[None]:
        with self._failing(), self.traffic.meeting(bytes_sent):
            yield

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:  # what gloo and NCCL say of a connection that was closed
            raise _lost(self.index, self.count, error) from error

    def _of(self, rank: int, rows: int) -> slice:
        return Part(rank, self.count).of(rows)

    def _all(self, mine: Tensor) -> Tensor:
        """What every rank brings, all of one shape, in a first dimension."""
        return self._ended(self._begun(mine))

    def _begun(self, mine: Tensor) -> _Gather:
        """A meeting to which every rank brings what the network then takes around by itself."""
        sent = mine.detach().to(self._device).contiguous()
        found = sent.new_empty(self.count, *sent.shape)
        with self._failing():
            into = list(found.unbind(0))
            work = dist.all_gather(into, sent, self._group, async_op=True) if sent.numel() else None
        return _Gather(sent, found, mine.device, work)

    def _ended(self, gather: _Gather) -> Tensor:
        """What every rank brought to it, in a first dimension: only what is left of it is waited for."""
        bytes_sent = gather.sent.nbytes * (self.count - 1)
        if gather.work is not None and gather.work.is_completed():
            self.traffic.bytes_hidden += bytes_sent
        with self._meeting(bytes_sent):
            if gather.work is not None:
                gather.work.wait()
        return gather.found.to(gather.device)

    def _exchanged(self, parts: Tensor) -> Tensor:
        """Of parts (ranks, ...) for each rank those that each has for this one, in the same shape."""
        sent = parts.detach().to(self._device).contiguous()
        found = torch.empty_like(sent)
        with self._meeting(sent.nbytes // self.count * (self.count - 1)):
            if sent.numel():
                dist.all_to_all_single(found, sent, group=self._group)
        return found.to(parts.device)


def _added(parts: Tensor) -> Tensor:
    """Over a first dimension, one after the other, in float64 where there are fractions."""
    wide = parts.double() if parts.is_floating_point() else parts
    total = wide[0].clone()
    for part in wide[1:]:
        total += part
    return total


def _lost(index: int, count: int, error: Exception) -> RankError:
    return RankError(
        f"Rank {index} of {count} has lost another one: it died or was killed, and its own output or the"
        " launcher's says why. Start the job again with the same `checkpoint`: it goes on where it was."
        f" ({' '.join(str(error).split()):.200})"
    )


def _size(run: slice) -> int:
    return int(run.stop - run.start)


_known: dict[Any, Ranks] = {}  # by the group that they were made of


def ranks_here() -> Ranks | None:
    """The ranks of the process group that this process is in, or None where it is in none, or alone there.

    They get a group of their own, so that no meeting is mixed up with those of others.
    """
    if _alone.get() or not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return None
    default = dist.group.WORLD
    if default not in _known:
        _known.clear()  # of groups that were destroyed
        backend = "nccl" if "nccl" in dist.get_backend() else "gloo"
        try:
            dist.barrier()  # by the patience of this group: a new one has none with who never comes
        except RuntimeError as error:
            raise _lost(dist.get_rank(), dist.get_world_size(), error) from error
        _known[default] = Ranks(dist.new_group(timeout=PATIENCE, backend=backend))
    ranks = _known[default]
    ranks.traffic = Traffic(ranks.count)
    return ranks


@atexit.register
def leave() -> None:
    """Let go of the group that ranks were given.

    Its threads have to end before the interpreter does: now and then they abort the process otherwise, whose
    work is done, and a launcher takes that for a failure.
    """
    for ranks in _known.values():
        ranks.leave()
    _known.clear()


@contextmanager
def alone() -> Iterator[None]:
    """Within, a fit is that of this process alone, whatever process group there is."""
    token = _alone.set(True)
    try:
        yield
    finally:
        _alone.reset(token)
