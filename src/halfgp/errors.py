"""Exceptions and warnings; every message names the argument, what was required, what came, and the remedy."""

from __future__ import annotations

from collections.abc import Sequence

SHOWN_COLUMNS = 10  # in a warning


class HalfGPError(Exception):
    """Anything that halfgp refuses to do."""


class InputError(HalfGPError, ValueError):
    """An argument that cannot be used: nothing has been computed."""


class OutOfRangeError(InputError):
    """Points or variances that the format asked for cannot hold; a wider one may."""


class MissingData(InputError):
    """A set of that name is in none of the folders that were looked into."""


class NotFittedError(HalfGPError, ValueError, AttributeError):
    """Something was asked of a model before `fit`."""


class FileError(HalfGPError, ValueError):
    """A file that cannot be read as what it should be, or not be written where it should go."""


class DownloadError(HalfGPError, RuntimeError):
    """A file could not be fetched, or is not the one that was expected: nothing was kept."""


class BackendError(HalfGPError, RuntimeError):
    """A backend that was asked for by name is not available here."""


class MemoryLimitError(HalfGPError, MemoryError):
    """A fit that would not fit into memory; nothing has been computed."""


class TrainingError(HalfGPError, RuntimeError):
    """No finite gradient was to be had, even in double."""


class UnsolvedError(HalfGPError, ArithmeticError):
    """The solve that predictions would rest on is not exact enough, by whatever route."""


class RankError(HalfGPError, RuntimeError):
    """The processes of a job do not do the same, or one of them is gone."""


class HalfGPWarning(UserWarning):
    """Something about a result that deserves to be known: a subclass says what, and whether it is weaker."""


class BackendWarning(HalfGPWarning):
    """A slower backend serves than this machine could have."""


class ConvergenceWarning(HalfGPWarning):
    """A solve ended above its tolerance; the message names the likely cause and the remedy."""


class UnsolvedWarning(HalfGPWarning):
    """Predictions rest on a solve that is not exact enough; their deviations include its error."""


class DataWarning(HalfGPWarning):
    """Rows or columns were left out."""


class ConstantColumnsWarning(DataWarning):
    """Columns of points have one value in all rows.

    Attributes:
        columns: which, from 0.
        total: how many there are in all.
    """

    def __init__(self, columns: Sequence[int], total: int) -> None:
        self.columns, self.total = tuple(columns), total
        super().__init__(f"{self.naming(range(total))} (from 0).")

    def naming(self, names: Sequence[object]) -> str:
        """The same words with the columns' names (total,), without a full stop."""
        shown = ", ".join(str(names[k]) for k in self.columns[:SHOWN_COLUMNS])
        more = ", ..." if len(self.columns) > SHOWN_COLUMNS else ""
        return (
            f"{len(self.columns)} of the {self.total} columns of `X` have one value in all rows and are left"
            f" out, here and in predictions: {shown}{more}"
        )
