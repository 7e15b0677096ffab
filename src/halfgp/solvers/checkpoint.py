"""Solves on disk, so that one that was killed goes on as if it had not been."""

from __future__ import annotations

import glob
import logging
import time
from pathlib import Path

import torch
from torch import Tensor

from halfgp.distributed.ranks import Ranks
from halfgp.errors import FileError
from halfgp.persistence import fingerprint, read_file, write_file
from halfgp.replacement import FilePath
from halfgp.solvers.state import State, packed, unpacked
from halfgp.version import __version__

INTERVAL = 60.0  # seconds
SHARE = 0.03
logger = logging.getLogger("halfgp")


class SolveCheckpoint:
    """A file with solves in the order in which they come: those that are done, and how far the last one is.

    A process that makes the same solves again gets through those that are done at once, and goes on with the
    last one where it was, to the same bits on the same machine with the same versions and threads. What was
    stored of a solve with other arguments is not used, nor what came after it, and the log says so.

    The file is written by the clock, whole or not at all, and when Ctrl-C ends a solve: as it was after its
    last whole iteration. Where it cannot be written the log says so, and the solve goes on. It holds every
    earlier residual that the solve does, up to a gibibyte, and stays: who needs it no more removes it.

    Where rows are shared out, every rank has a file of its own rows, all of the same moment. Files that are
    not, or were written by another number of ranks, are not used: the solve begins anew.

    Args:
        path: of the file.
        about: tells the matrices and preconditioners from others: `cg` knows them by their products only. The
            fingerprint of data and hyperparameters, say.
        interval: seconds between two writes, at least; a solve that takes less is not written.
        share: of the time that writes may take.
        ranks: that rows are shared out to, or None.
    """

    def __init__(
        self,
        path: FilePath,
        about: str,
        *,
        interval: float = INTERVAL,
        share: float = SHARE,
        ranks: Ranks | None = None,
    ) -> None:
        self._path, self._about, self._interval, self._share = Path(path), about, interval, share
        self._ranks, self._moment = ranks, 0
        if ranks is not None:
            self._path = self._path.with_name(f"{self._path.name}.{ranks.index + 1}-of-{ranks.count}")
            # Of this run: no file of another one is of the same moment.
            self._moment = int(ranks.of_first(torch.tensor(time.time_ns())))
        self._stored: list[tuple[str, State]] | None = None  # by fingerprint; None before the file is read
        self._done: list[tuple[str, State]] = []
        self._current = ""
        self._latest: State | None = None  # of the current solve, since it was begun here
        self._began = self._due = 0.0
        self._fails = False

    def begin(self, *arguments: object) -> State | None:
        """The next solve, with these tensors and JSON values: the state to go on from, or None.

        Raises:
            FileError: there is a file, and it is damaged or another one.
        """
        self._current, self._latest = fingerprint(self._about, __version__, *arguments), None
        self._began = time.monotonic()
        self._due = self._began + self._interval
        if self._stored is None:
            self._stored = self._read()
        if not self._stored:
            return None
        written, state = self._stored.pop(0)
        if self._by_all(written == self._current):
            logger.info("the solve goes on from %s", self._path)
            return state
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
            self._write([*self._done, (self._current, state)])

    def end(self, state: State) -> None:
        """The current solve is done."""
        self._done.append((self._current, state))
        known, self._latest = self._latest is None, None
        if not known and self._by_first(time.monotonic() - self._began >= self._interval):
            self._write(self._done)

    def write(self) -> None:
        """As it was last taken, if it was since it began here; ranks, ended at different moments, do not."""
        if self._latest is not None and self._ranks is None:
            self._write([*self._done, (self._current, self._latest)])

    def _write(self, solves: list[tuple[str, State]]) -> None:
        began = time.monotonic()
        self._moment += 1
        tensors: dict[str, Tensor] = {}
        header = {
            "moment": self._moment,
            "solves": [
                {"fingerprint": written, "state": packed(state, f"{k}", tensors)}
                for k, (written, state) in enumerate(solves)
            ],
        }
        try:
            write_file(self._path, "solve", header, tensors)
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

    def _read(self) -> list[tuple[str, State]]:
        stored = read_file(self._path, "solve") if self._path.exists() else None
        moment = 0 if stored is None else int(stored.header.get("moment", 0))
        if self._ranks is not None and len(set(self._ranks.texts(str(moment)))) > 1:
            logger.warning("%s is not used: it is not of the same moment on all ranks", self._path)
            return []
        if stored is None:
            return []
        try:
            return [
                (solve["fingerprint"], unpacked(solve["state"], f"{k}", stored.tensors))
                for k, solve in enumerate(stored.header["solves"])
            ]
        except (KeyError, TypeError, RuntimeError) as error:
            raise FileError(f"`{self._path}` does not hold a solve: {error!r:.200}. Delete it.") from error


def solve_files(path: Path) -> list[Path]:
    """Those that there are of a checkpoint at that path: one, or one for each rank."""
    return [path, *path.parent.glob(f"{glob.escape(path.name)}.*-of-*")]
