"""Solves on disk, so that one that was killed goes on as if it had not been."""

from __future__ import annotations

import glob
import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from halfgp.distributed.ranks import Ranks
from halfgp.errors import FileError
from halfgp.persistence import Stored, fingerprint, may_be_same, read_file, write_file
from halfgp.replacement import FilePath
from halfgp.solvers.reshared import reshared
from halfgp.solvers.state import State, packed, unpacked
from halfgp.version import __version__

INTERVAL = 60.0  # seconds
SHARE = 0.03
ROUNDING = 1e-6  # of tolerances, which another number of processes finds by sums in another order
MOST_PROCESSES = 10**6
logger = logging.getLogger("halfgp")


class SolveCheckpoint:
    """A file with solves in the order in which they come: those that are done, and how far the last one is.

    A process that makes the same solves again gets through those that are done at once, and goes on with the
    last one where it was, to the same bits on the same machine with the same versions and threads. What was
    stored of a solve with other arguments is not used, nor what came after it, and the log says so.

    The file is written by the clock, whole or not at all, and when Ctrl-C ends a solve: as it was after its
    last whole iteration. Where it cannot be written the log says so, and the solve goes on. It holds every
    earlier residual that the solve does, up to a gibibyte, and stays: who needs it no more removes it.

    Where rows are shared out, every rank has a file of its own rows, all of the same moment. Any number of
    processes that see the files of all ranks go on from them, each with the rows that it holds, and end in
    the same solution, but for rounding. Files that are not of one moment, or not all there, are not used: the
    solve begins anew.

    Args:
        path: of the file.
        about: tells the matrices and preconditioners from others: `cg` knows them by their products only. The
            fingerprint of data and hyperparameters, say.
        interval: seconds between two writes, at least; a solve that takes less is not written.
        share: of the time that writes may take.
        ranks: that rows are shared out to, or None.
        held_by: which rows (m,) one of so many ranks holds, as held_by(index, count); None where no other
            number of them is to go on.
        exact: a further fingerprint, which files are compared by where their writer had one, too: that of
            data in double, say, of which `about` knows what is left when they are rounded.
    """

    def __init__(
        self,
        path: FilePath,
        about: str,
        *,
        interval: float = INTERVAL,
        share: float = SHARE,
        ranks: Ranks | None = None,
        held_by: Callable[[int, int], Tensor] | None = None,
        exact: str | None = None,
    ) -> None:
        self._path, self._about, self._interval, self._share = Path(path), about, interval, share
        self._ranks, self._held_by, self._exact = ranks, held_by, exact
        self._index, self._count = (0, 1) if ranks is None else (ranks.index, ranks.count)
        # Of this run: no file of another one is of the same moment, and later ones have later ones.
        self._moment = time.time_ns()
        if ranks is not None:
            self._moment = int(ranks.of_first(torch.tensor(self._moment)))
        self._stored: list[_Stored] | None = None  # None before the file is read
        self._done: list[_Stored] = []
        self._current = _Stored("", torch.empty(0), {})
        self._latest: State | None = None  # of the current solve, since it was begun here
        self._began = self._due = 0.0
        self._fails = False

    def begin(self, tolerances: Tensor, *arguments: object) -> State | None:
        """The next solve: the state to go on from, or None.

        Args:
            tolerances: of it; other processes find the same ones, but for rounding.
            arguments: what else tells it from others: tensors of all rows, and JSON values.

        Raises:
            FileError: there is a file, and it is damaged or another one.
        """
        written_as = fingerprint(self._about, __version__, *arguments)
        self._current, self._latest = _Stored(written_as, tolerances, {}), None
        self._began = time.monotonic()
        self._due = self._began + self._interval
        if self._stored is None:
            self._stored = self._read()
        if not self._stored:
            return None
        stored = self._stored.pop(0)
        if self._by_all(stored.is_like(self._current)):
            logger.info("the solve goes on from %s", self._path)
            return stored.state
        self._stored.clear()
        logger.warning(
            "%s is not used: its solve has other data, hyperparameters, settings or version of halfgp",
            self._path,
        )
        return None

    def take(self, state: State) -> None:
        """The current solve has come so far; written if it is time."""
        self._latest = state
        if self._by_first(time.monotonic() >= self._due):
            self._write([*self._done, replace(self._current, state=state)])

    def end(self, state: State) -> None:
        """The current solve is done."""
        self._done.append(replace(self._current, state=state))
        known, self._latest = self._latest is None, None
        if not known and self._by_first(time.monotonic() - self._began >= self._interval):
            self._write(self._done)

    def write(self) -> None:
        """As it was last taken, if it was since it began here; ranks, ended at different moments, do not."""
        if self._latest is not None and self._ranks is None:
            self._write([*self._done, replace(self._current, state=self._latest)])

    def _write(self, solves: list[_Stored]) -> None:
        began = time.monotonic()
        self._moment += 1
        tensors: dict[str, Tensor] = {}
        header = {
            "moment": self._moment,
            "exact": self._exact,
            "held": self._holders(self._index, self._count),
            "solves": [solve.packed(f"{k}", tensors) for k, solve in enumerate(solves)],
        }
        try:
            write_file(_file_of(self._path, self._index, self._count), "solve", header, tensors)
        except FileError as error:
            if not self._fails:
                logger.warning("the solve goes on, and a kill would lose it: %s", error)
            self._fails = True
        now = time.monotonic()
        self._due = now + max(self._interval, (now - began) / self._share)

    def _by_first(self, decision: bool) -> bool:
        """A decision that clocks make, by that of the first rank."""
        return decision if self._ranks is None else bool(self._ranks.of_first(torch.tensor(decision)))

    def _by_all(self, decision: bool) -> bool:
        """Whether all ranks agree to it."""
        if self._ranks is None:
            return decision
        return int(self._ranks.total(torch.tensor(int(decision)))) == self._ranks.count

    def _read(self) -> list[_Stored]:
        """The solves of the latest files whose first one is the current one; none where there are none."""
        found = self._matching()
        if self._ranks is not None:
            told = [json.loads(text) for text in self._ranks.texts(json.dumps(found))]
            found = {
                name: moment for name, moment in found.items() if all(t.get(name) == moment for t in told)
            }
        if not found:
            if _counts(self._path):
                logger.warning(
                    "%s is not used: its solve has other data, hyperparameters, settings or version of"
                    " halfgp, or it is not of the same moment for all rows",
                    self._path,
                )
            return []
        count = int(max(found, key=lambda name: (found[name], name == str(self._count))))
        self._moment = max(self._moment, found[str(count)])  # clocks differ, and what is written now is later
        stored, device = self._of(count), self._current.tolerances.device
        try:
            return [
                _Stored.unpacked(solve, f"{k}", stored.tensors, device)
                for k, solve in enumerate(stored.header["solves"])
            ]
        except (KeyError, TypeError, RuntimeError) as error:
            raise FileError(f"`{self._path}` does not hold a solve: {error!r:.200}. Delete it.") from error

    def _matching(self) -> dict[str, int]:
        """When files of the current solve were written by so many processes, all of one moment.

        Those that are all here, or this one's own. A file of another number that cannot be read is none.
        """
        found: dict[str, int] = {}
        for count in {self._count, *_counts(self._path)}:
            own = count == self._count
            if not own and self._held_by is None:
                continue
            files = [_file_of(self._path, k, count) for k in ([self._index] if own else range(count))]
            if not all(file.exists() for file in files):
                continue
            try:
                seen = {self._moment_of(file) for file in files}
                if not own and [self._held_of(file) for file in files] != [
                    self._holders(k, count) for k in range(count)
                ]:
                    raise FileError("they held other rows")
            except FileError as error:
                if own:
                    raise
                logger.warning("a solve by %d processes is not used: %s", count, error)
                continue
            if len(seen) == 1 and (moment := seen.pop()) is not None:
                found[str(count)] = moment
        return found

    def _moment_of(self, path: Path) -> int | None:
        """When a file was written; None where its first solve is not the current one."""
        header = read_file(path, "solve", header_only=True).header
        moment, solves = header.get("moment", 0), header.get("solves")
        if not isinstance(moment, int) or not isinstance(solves, list) or not all(map(_is_dict, solves)):
            raise FileError(f"`{path}` does not hold a solve. Delete it.")
        alike = bool(solves) and solves[0].get("fingerprint") == self._current.fingerprint
        return moment if alike and may_be_same(header.get("exact"), self._exact) else None

    def _holders(self, index: int, count: int) -> str | None:
        """Which rows one of so many processes holds; None where it has all, or nobody knows."""
        if count == 1 or self._held_by is None:
            return None
        return fingerprint(self._held_by(index, count))

    def _held_of(self, path: Path) -> object:
        """Which rows whoever wrote a file held."""
        return read_file(path, "solve", header_only=True).header.get("held")

    def _of(self, count: int) -> Stored:
        """What so many processes wrote, as this one would have written it."""
        if count == self._count or self._held_by is None:
            return read_file(_file_of(self._path, self._index, self._count), "solve")
        logger.info("the solve of %d processes goes on with %d", count, self._count)
        held_by, path = self._held_by, self._path
        files = ((read_file(_file_of(path, k, count), "solve"), held_by(k, count)) for k in range(count))
        try:
            return reshared(files, held_by(self._index, self._count))
        except FileError:
            raise
        except (LookupError, TypeError, ValueError, RuntimeError) as error:
            where = _file_of(path, 0, count)
            raise FileError(
                f"`{where}` and those beside it hold no solve: {error!r:.200}. Delete them."
            ) from error


@dataclass(frozen=True)
class _Stored:
    """A solve, done or not.

    Attributes:
        fingerprint: of what tells it from others.
        tolerances: (2, t) of it.
        state: how far it is.
    """

    fingerprint: str
    tolerances: Tensor
    state: State

    def is_like(self, other: _Stored) -> bool:
        """Whether it is the same solve."""
        one, two = self.tolerances, other.tolerances.cpu()
        alike = one.shape == two.shape and torch.allclose(one.to(two), two, rtol=ROUNDING, atol=0.0)
        return alike and self.fingerprint == other.fingerprint

    def packed(self, name: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
        """As JSON, with tensors beside it."""
        tensors[f"{name}.tolerances"] = self.tolerances
        return {"fingerprint": self.fingerprint, "state": packed(self.state, name, tensors)}

    @classmethod
    def unpacked(
        cls, value: dict[str, Any], name: str, tensors: Mapping[str, Tensor], device: torch.device
    ) -> _Stored:
        """What `packed` was given, on this device, wherever it was."""
        state = unpacked(value["state"], name, tensors, device)
        tolerances = tensors.get(f"{name}.tolerances", torch.empty(0))  # files of earlier versions have none
        return cls(value["fingerprint"], tolerances, state)


def _is_dict(value: object) -> bool:
    return isinstance(value, dict)


def _file_of(path: Path, index: int, count: int) -> Path:
    """Where one of so many processes has its own."""
    return path if count == 1 else path.with_name(f"{path.name}.{index + 1}-of-{count}")


def _counts(path: Path) -> set[int]:
    """Of how many processes there may be files."""
    found = {1} if path.exists() else set()
    for file in solve_files(path)[1:]:
        number = file.name.rpartition("-of-")[2]
        if number.isdecimal() and 1 < int(number) <= MOST_PROCESSES:
            found.add(int(number))
    return found


def solve_files(path: Path) -> list[Path]:
    """Those that there are of a checkpoint at that path: one, or one for each rank."""
    return [path, *path.parent.glob(f"{glob.escape(path.name)}.*-of-*")]
