"""The state of a training on disk, so that one that was killed goes on as if it had not been."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from halfgp.compact import COMPACT
from halfgp.distributed.ranks import Ranks
from halfgp.distributed.stored import read_for_all
from halfgp.errors import FileError, InputError
from halfgp.hyperparameters import Hyperparameters
from halfgp.persistence import Stored, fingerprint, may_be_same, read_file, write_file
from halfgp.problem import Problem
from halfgp.solvers import SolveCheckpoint
from halfgp.solvers.checkpoint import solve_files
from halfgp.training.history import Step
from halfgp.training.settings import Training
from halfgp.training.stochastic import State
from halfgp.version import __version__


@dataclass(frozen=True)
class Reached:
    """How far a training is, between two stages or two steps on all rows.

    Attributes:
        vector: (p,) where pre-training ended.
        refined: whether what all rows have to say of it is in it.
        weights: (m, q) of the targets there, where they were solved for, or None.
        state: of the steps on all rows, or None before the first.
    """

    vector: Tensor
    refined: bool = False
    weights: Tensor | None = None
    state: State | None = None


@dataclass(frozen=True)
class Checkpoint:
    """Where it lies, and which fit it belongs to.

    Attributes:
        path: of the file; written atomically, by the first rank where there are several.
        fingerprint: of data, settings and version, and not of who holds which rows: vectors are of all rows.
            Of points it has what compact ones have: one process reads what several wrote.
        exact: that of points in double; None where they are compact.
        problem: the rows.
        ranks: that fit them, also where each does all of it by itself; None for a process that is alone.
    """

    path: Path
    fingerprint: str
    exact: str | None
    problem: Problem
    ranks: Ranks | None = None

    @classmethod
    def of(
        cls,
        path: Path,
        problem: Problem,
        start: Hyperparameters,
        settings: Training,
        priors: object,
        ranks: Ranks | None = None,
    ) -> Checkpoint:
        """For a fit of that problem, with these settings."""
        tensors = [problem.points.to(COMPACT), problem.y]
        tensors += [] if problem.fixed_noise is None else [problem.fixed_noise]
        for p in start.named_parameters().values():
            tensors += [
                p.value,
                torch.tensor([p.lower, p.upper, *([1.0] if p.fixed else [])], dtype=torch.float64),
            ]
        names = list(start.named_parameters())
        backend = problem.backend if isinstance(problem.backend, str) else problem.backend.name
        about = [settings, start.kernel, problem.precision, priors, backend, names, __version__]
        exact = None if problem.points.dtype == COMPACT else fingerprint(problem.points)
        return cls(path, fingerprint(*tensors, *map(repr, about)), exact, problem, ranks)

    def write(self, reached: Reached, earlier: list[Step]) -> None:
        """After every stage of pre-training, and after every step on all rows.

        Args:
            reached: how far it is.
            earlier: history of pre-training.
        """
        tensors, state = {"pretrained": reached.vector}, reached.state
        header: dict[str, Any] = {
            "fingerprint": self.fingerprint,
            "exact": self.exact,
            "earlier": [s.as_dict() for s in earlier],
            "refined": reached.refined,
        }
        if reached.weights is not None:
            tensors["weights"] = self._whole(reached.weights)
        if state is not None:
            tensors["vector"] = state.vector
            if state.solutions is not None:
                tensors["solutions"] = self._whole(state.solutions)
            if state.before is not None:
                tensors["before.point"], tensors["before.gradient"] = state.before
            if state.anchor is not None:
                tensors["anchor"] = state.anchor
            if state.secant is not None:
                tensors["secant.moved"] = state.secant[0]
                tensors["secant.change"] = self._whole(state.secant[1])
            tensors |= {f"optimiser.{name}": t for name, t in state.optimiser.items()}
            tensors["loss"] = torch.tensor([state.loss, state.loss_error], dtype=torch.float64)
            header["state"] = {
                "index": state.index,
                "precision": state.precision,
                "history": [step.as_dict() for step in state.history],
            }
        if self._writes:
            write_file(self.path, "checkpoint", header, tensors)

    def read(self) -> tuple[Reached, list[Step]] | None:
        """What `write` was given, or None where there is nothing to resume from.

        Raises:
            FileError: it is no checkpoint.
            InputError: it belongs to another fit, which is not done.
        """
        stored = read_for_all(self.ranks, self.path, "checkpoint")
        if stored is None:
            return None
        if not self._wrote(stored):
            if stored.header.get("finished"):
                return None
            raise InputError(
                f"The checkpoint {self.path} belongs to a fit with other data, settings or version of halfgp."
                " Give `checkpoint` another path, or delete that file to begin anew."
            )
        earlier = [_step(values) for values in stored.header["earlier"]]
        tensors, about = dict(stored.tensors), stored.header.get("state")
        for name in ("weights", "solutions", "secant.change"):
            if name in tensors:
                tensors[name] = tensors[name][self.problem.held]
        reached = Reached(tensors["pretrained"], bool(stored.header["refined"]), tensors.get("weights"))
        if about is None:
            return reached, earlier
        prefix = "optimiser."

        def pair(first: str, second: str) -> tuple[Tensor, Tensor] | None:
            return (tensors[first], tensors[second]) if first in tensors else None

        loss, loss_error = tensors["loss"].tolist()
        state = State(
            vector=tensors["vector"],
            solutions=tensors.get("solutions"),
            index=int(about["index"]),
            precision=str(about["precision"]),
            before=pair("before.point", "before.gradient"),
            anchor=tensors.get("anchor"),
            secant=pair("secant.moved", "secant.change"),
            optimiser={n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)},
            loss=loss,
            loss_error=loss_error,
            history=[_step(values) for values in about["history"]],
        )
        return replace(reached, state=state), earlier

    def solves(self, hyperparameters: Hyperparameters, recipe: object) -> SolveCheckpoint | None:
        """Of the solves that follow the training, in a file beside this one.

        Where every rank solves by itself the first one has it, and others none.

        Args:
            hyperparameters: where training ended.
            recipe: of the preconditioner.
        """
        if self.problem.ranks is None and not self._writes:
            return None
        values = [parameter.value for parameter in hyperparameters.named_parameters().values()]
        about = fingerprint(self.fingerprint, *values, repr(recipe))
        return SolveCheckpoint(
            solve_path(self.path),
            about,
            ranks=self.problem.ranks,
            held_by=self.problem.held_by,
            exact=self.exact,
        )

    def finish(self) -> None:
        """Once the fit is done: another one may take its place. It stays until the model is saved."""
        if not self._writes:
            return
        with contextlib.suppress(FileError):  # the fit is done, whether that can be written down or not
            stored = read_file(self.path, "checkpoint")
            write_file(self.path, "checkpoint", {**stored.header, "finished": True}, stored.tensors)

    def remove(self) -> None:
        """Once the model is saved; what another fit has put there meanwhile stays."""
        with contextlib.suppress(FileError):
            if self._wrote(read_file(self.path, "checkpoint")):
                for solve in solve_files(solve_path(self.path)):
                    solve.unlink(missing_ok=True)
                self.path.unlink(missing_ok=True)

    @property
    def _writes(self) -> bool:
        return self.ranks is None or self.ranks.is_first

    def _whole(self, v: Tensor) -> Tensor:
        """All rows of a vector of those held here: whoever reads it may hold others."""
        return self.problem.whole(v)

    def _wrote(self, stored: Stored) -> bool:
        alike = stored.header.get("fingerprint") == self.fingerprint
        return bool(alike) and may_be_same(stored.header.get("exact"), self.exact)


def solve_path(path: Path) -> Path:
    """Where the solves of a fit are, whose training is there."""
    return path.with_name(f"{path.name}.solve")


def _step(values: dict[str, Any]) -> Step:
    whole: dict[str, Any] = {k: math.nan if value is None else value for k, value in values.items()}
    return Step(**whole)
