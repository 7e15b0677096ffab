"""What a part is run with: how thoroughly, where data come from and results go, and who hears of progress."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from halfgp.datasets import Dataset, large_files, load_large, load_uci, uci_files
from halfgp.standardise import Standardisation

T = TypeVar("T")

LARGE = ("houseelectric", "osborne_magnetic", "covtype_elev")


@dataclass(frozen=True, eq=False)
class SampledSplit:
    """Training and test rows of a set, in float64, standardised by all training rows of the split.

    Attributes:
        name: of the set.
        x: (n, d).
        y: (n,).
        x_test: (m, d).
        y_test: (m,).
        available: how many training rows the split has; `n` may be fewer.
    """

    name: str
    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor
    available: int


def _nobody(done: int, total: int, what: str) -> None:
    """Hear nothing."""


@dataclass(frozen=True)
class Context:
    """The circumstances of a run.

    Attributes:
        quick: whether small sizes will do: seconds a part instead of minutes.
        output: where results go; `fits` below it holds trained models' scores.
        data: folder of the data sets; None for the one that HALFGP_DATA names.
        seed: of everything random.
        since: fits that were made before this time, in seconds of the epoch, are made again.
        progress: called with how many of how many steps of a part are done, and what comes next.
        sets: that were read so far, each with its digest: what a result is made from.
    """

    quick: bool
    output: Path
    data: Path | None = None
    seed: int = 0
    since: float = 0.0
    progress: Callable[[int, int, str], None] = _nobody
    sets: dict[str, str] = field(default_factory=dict, compare=False)

    @property
    def mode(self) -> str:
        """The word for how thoroughly: "quick" or "full"."""
        return self.pick(quick="quick", full="full")

    def pick(self, *, quick: T, full: T) -> T:
        """One of two sizes."""
        return quick if self.quick else full

    def rows(
        self, name: str, most: int | None = None, most_test: int | None = None, split: int | None = None
    ) -> SampledSplit:
        """A set by its name, UCI or large, split into training and test rows and standardised.

        Large sets have no published splits: a tenth of the rows is held out, drawn by the seed.

        Args:
            name: such as "pol", or one of `LARGE`.
            most: training rows at most, drawn at random; None for all.
            most_test: test rows at most; None for all.
            split: which of the published splits, and the seed of every draw; None for `seed`.

        Raises:
            MissingData: the set is not where data are looked for.
        """
        digest = self.digest(name)
        if digest is not None:
            self.sets[name] = digest
        k = self.seed if split is None else split
        if name in LARGE:
            # Ten ninths of the rows, of which a tenth is held out, instead of two million that are not used.
            total = None if most is None else -(-10 * most // 9)
            dataset = load_large(name, self.data, total, k)
        else:
            dataset = _uci(name, self.data)
        x, y, x_test, y_test = (torch.from_numpy(part) for part in dataset.split(k))
        features, target = Standardisation.of(x), Standardisation.of(y[:, None])
        generator = torch.Generator().manual_seed(k)
        train = torch.randperm(len(y), generator=generator)[:most]
        test = torch.randperm(len(y_test), generator=generator)[:most_test]
        return SampledSplit(
            name=name,
            x=features.apply(x[train]),
            y=target.apply(y[train, None])[:, 0],
            x_test=features.apply(x_test[test]),
            y_test=target.apply(y_test[test, None])[:, 0],
            available=len(y),
        )

    def digest(self, name: str) -> str | None:
        """SHA-256 of the files that a set is read from; None where it is not there."""
        files = (large_files if name in LARGE else uci_files)(name, self.data)
        facts = ((path, path.stat()) for path in files)
        return _digest(tuple((path, f.st_mtime_ns, f.st_size) for path, f in facts)) if files else None


@functools.cache
def _digest(files: tuple[tuple[Path, int, int], ...]) -> str:
    """Of files with the time and the size of each: read once, and again when these change."""
    return hashlib.sha256(b"".join(path.read_bytes() for path, *_ in files)).hexdigest()


@functools.lru_cache(maxsize=4)
def _uci(name: str, folder: Path | None) -> Dataset:
    """Read once: several parts in a row use the same few sets."""
    return load_uci(name, folder)
