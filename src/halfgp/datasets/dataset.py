"""A regression problem with its names and splits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from halfgp.errors import InputError

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, eq=False)
class Dataset:
    """A regression problem.

    Attributes:
        name: of the set.
        X: (n, d) features.
        y: (n,) targets.
        feature_names: (d,).
        target_name: with its unit, where known.
        test_mask: (n, splits), True where a row is a test row of a split; None if no splits were published.
        source: where it came from.
        shape: (rows, columns) of a grid, so that `y.reshape(shape)` is its picture; None if it is none.
    """

    name: str
    X: Floats
    y: Floats
    feature_names: tuple[str, ...]
    target_name: str
    test_mask: np.ndarray[Any, np.dtype[np.bool_]] | None
    source: str
    shape: tuple[int, int] | None = None

    def split(self, k: int = 0) -> tuple[Floats, Floats, Floats, Floats]:
        """Split `k` as X_train, y_train, X_test, y_test.

        Where no splits were published, a random tenth of the rows is held out, drawn with `k` as the seed.
        """
        if k < 0 or (self.test_mask is not None and k >= self.test_mask.shape[1]):
            splits = "0 or more" if self.test_mask is None else f"0 to {self.test_mask.shape[1] - 1}"
            raise InputError(f"`k` must be a split of {self.name}, {splits}; got {k}.")
        if self.test_mask is None:
            test = np.zeros(len(self.y), dtype=np.bool_)
            test[np.random.default_rng(k).permutation(len(self.y))[: len(self.y) // 10]] = True
        else:
            test = self.test_mask[:, k]
        return self.X[~test], self.y[~test], self.X[test], self.y[test]
