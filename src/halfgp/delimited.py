"""Cells of text: what separates them, and how their numbers are written."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from halfgp.errors import InputError

DELIMITERS = (",", ";", "\t")  # that are tried where none is given
DECIMALS = (".", ",")
SAMPLE = 100  # lines that are looked at to find out
MISSING = frozenset({"", "na", "n/a", "<na>", "nan", "null", "none"})
LONGEST = 400  # digits; beyond, no float64 is finite
FLAGS = {"true": 1.0, "false": 0.0}  # as Parquet has them
_COMMA = re.compile(r"[+-]?(\d+,\d*|,\d+)([eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")
_INTEGER = re.compile(r"[+-]?\d+")


@dataclass(frozen=True)
class Dialect:
    """How a text file is written; None for what is to be found out.

    Attributes:
        header: whether the first row holds the names of the columns.
        delimiter: the character between cells.
        decimal: "." or ",", in numbers.
    """

    header: bool | None = None
    delimiter: str | None = None
    decimal: str | None = None

    def check(self) -> Dialect:
        """Itself, or an `InputError` that names what cannot be."""
        delimiter, decimal = self.delimiter, self.decimal
        if decimal not in (None, *DECIMALS):
            raise InputError(f'`decimal` must be "." or ","; got {decimal!r}.')
        if delimiter is not None and not re.fullmatch(r'[^\w"\r\n\0.+-]', delimiter):
            raise InputError(
                "`delimiter` must be one character that is in no number, such as ; or a tab; got"
                f" {delimiter!r}."
            )
        if delimiter is not None and delimiter == decimal:
            raise InputError(f"`delimiter` and `decimal` must differ; got {decimal!r} for both.")
        return self

    def found(self, lines: Sequence[str], usual: str) -> Dialect:
        """With delimiter and decimal as the first lines of a file tell, where they are not given.

        Args:
            lines: up to `SAMPLE` of them.
            usual: the delimiter that the name of the file promises.
        """
        delimiter = self.delimiter or self._delimiter(lines, usual)
        return replace(self, delimiter=delimiter, decimal=self.decimal or _decimal(_rows(lines, delimiter)))

    def _delimiter(self, lines: Sequence[str], usual: str) -> str:
        """The one that splits all rows alike, and into numbers where several do."""
        tried = [d for d in dict.fromkeys((usual, *DELIMITERS)) if d != self.decimal]
        rows = {delimiter: _rows(lines, delimiter) for delimiter in tried}
        alike = [d for d in tried if len(widths := {len(row) for row in rows[d]}) == 1 and widths != {1}]
        if len(alike) > 1:
            alike = [d for d in alike if self._numeric(rows[d][1:] or rows[d])] or alike
        # With none, the message about rows of different lengths should be about what there is most of.
        return alike[0] if alike else max(tried, key=lambda d: len(rows[d][0]) if rows[d] else 0)

    def _numeric(self, rows: Sequence[Sequence[str]]) -> bool:
        decimal = self.decimal or _decimal(rows)
        return all(as_number(cell, decimal) is not None for row in rows for cell in row)


GUESSED = Dialect()  # all of it is to be found out


def records(reader: Any) -> Iterator[tuple[int, list[str]]]:
    """Rows that are not blank, with the line on which each begins: a quoted cell may go over several."""
    line = 1
    for row in reader:
        if len(row) > 1 or (row and row[0].strip()):
            yield line, row
        line = reader.line_num + 1


def as_number(cell: str, decimal: str = ".") -> float | None:
    """The number in a cell, NaN if it is missing, None if it holds something else."""
    cell = cell.strip().lower()
    if cell in MISSING:
        return math.nan
    if cell in FLAGS:
        return FLAGS[cell]
    if "_" in cell:  # Python reads 2020_01 as 202001; in a table it is a label
        return None
    if decimal == ",":
        if "." in cell:  # which there separates thousands, if anything
            return None
        cell = cell.replace(",", ".")
    try:
        return float(cell)
    except ValueError:
        return None


def as_integer(cell: str) -> int | None:
    """The integer that is written in a cell, in digits alone."""
    digits = _INTEGER.fullmatch(cell.strip())
    return None if digits is None or len(cell) > LONGEST else int(cell)


def _rows(lines: Sequence[str], delimiter: str) -> list[list[str]]:
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
    try:
        rows = [row for _, row in records(reader)]
    except csv.Error:  # which is for who reads the whole file to tell
        return []
    return rows[:-1] if len(lines) == SAMPLE else rows  # the last may go on below


def _decimal(rows: Sequence[Sequence[str]]) -> str:
    """A comma only where some cell can be no number without it, and none is one with a point."""
    cells = [cell.strip() for row in rows for cell in row]
    commas = [cell for cell in cells if _COMMA.fullmatch(cell)]
    points = any("." in cell and as_number(cell) is not None for cell in cells)
    return "," if not points and any(not _THOUSANDS.fullmatch(cell) for cell in commas) else "."
