"""Tables as text: .csv and .tsv, also compressed, and standard input."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from halfgp.data import EXACT, is_rounded
from halfgp.delimited import SAMPLE, as_integer, as_number, records
from halfgp.errors import InputError
from halfgp.tables.columns import LEAVE_OUT, Floats, Selection, Wish, rounded

STANDARD_INPUT = Path("standard input")  # its name in messages; no file without a suffix is read


@contextmanager
def _opened(path: Path) -> Iterator[io.BufferedReader]:
    """The bytes of a text file, or of standard input."""
    if path == STANDARD_INPUT:
        if sys.stdin is None:
            raise InputError("`path` is -, and standard input is closed. Name a file.")
        yield io.BufferedReader(sys.stdin.buffer)  # type: ignore[arg-type]
    else:
        opener: Any = gzip.open if path.name.lower().endswith(".gz") else open
        with opener(path, "rb") as binary:
            yield binary


def read_text(path: Path, wish: Wish, usual: str) -> tuple[Selection, Floats]:
    """The wanted columns (n, k); `usual` separates cells where nothing else splits the rows better."""
    with _opened(path) as binary:
        if b"\0" in binary.peek(4096)[:4096]:
            raise InputError(f"`path` must name text in UTF-8; {path} is binary or UTF-16. Convert it.")
        text = io.TextIOWrapper(binary, encoding="utf-8-sig", newline="")
        lines = list(itertools.islice(text, SAMPLE))
        found = wish.dialect.found(lines, usual)
        assert found.delimiter is not None
        assert found.decimal is not None
        whole = itertools.chain(lines, text)
        rows = records(csv.reader(whole, delimiter=found.delimiter, skipinitialspace=True, strict=True))
        line, first = next(rows, (0, None))
        if first is None:
            raise InputError(f"`path` must name a file with rows; {path} is empty.")
        has_header = wish.has_header(first, found.decimal)
        names = [(cell.strip() if has_header else "") or f"x{k}" for k, cell in enumerate(first)]
        selection = wish.select(names)
        if not has_header:
            rows = itertools.chain([(line, first)], rows)
        return selection, _numbers(path, rows, names, selection.positions, found.decimal)


def _numbers(
    path: Path,
    rows: Iterator[tuple[int, list[str]]],
    names: list[str],
    positions: tuple[int, ...],
    decimal: str,
) -> Floats:
    """The wanted cells of all rows (n, k)."""
    # One flat buffer of doubles: a list of rows of Python floats would take four times the memory.
    values = array("d")
    pick = itemgetter(*positions) if len(positions) > 1 else itemgetter(slice(positions[0], positions[0] + 1))
    for line, row in rows:
        if len(row) != len(names):
            raise InputError(
                f"Every row of {path} must have {len(names)} cells, as the first has; line {line} has"
                f" {len(row)}. Correct the line; a cell that holds the separator belongs in double quotes."
            )
        values.extend(
            _plain(pick(row), decimal) or [_cell(path, line, names[k], row[k], decimal) for k in positions]
        )
    return np.frombuffer(values, dtype=np.float64).reshape(-1, len(positions))


def _plain(cells: Sequence[str], decimal: str) -> list[float]:
    """The numbers in cells that hold nothing else, fast; none where they must be looked at one by one."""
    joined = "".join(cells)
    if "_" in joined or (decimal == "," and "." in joined):
        return []
    try:
        numbers = (
            [float(cell.replace(",", ".")) for cell in cells] if decimal == "," else [*map(float, cells)]
        )
    except ValueError:
        return []
    # Not `>=`: a NaN in front is the largest for Python.
    return numbers if max(map(abs, numbers)) < EXACT else []


def _cell(path: Path, line: int, name: str, cell: str, decimal: str) -> float:
    number = as_number(cell, decimal)
    shown = cell if len(cell) <= 40 else cell[:40] + "…"
    if number is None:
        comma = "," in cell and as_number(cell, ",") is not None
        remedy = " If its comma is a decimal one, say so: `decimal` (--decimal ,)." if comma else ""
        raise InputError(
            f"Column {name!r} of {path} must hold numbers; got {shown!r} in line {line}.{remedy} {LEAVE_OUT}"
        )
    integer = as_integer(cell)
    if integer is not None and is_rounded(integer):
        raise rounded(path, name, f"{shown} in line {line}")
    return number


def write_text(file: BinaryIO, columns: Mapping[str, np.ndarray[Any, Any]], delimiter: str) -> None:
    """Names, then rows, with every digit that float64 needs."""
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))
    text.flush()
    text.detach()  # the file is its opener's to close


def write_gzip(file: BinaryIO, columns: Mapping[str, np.ndarray[Any, Any]], delimiter: str) -> None:
    """The same, compressed."""
    # Neither name nor time inside: the same table gives the same bytes.
    with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as compressed:
        write_text(compressed, columns, delimiter)  # type: ignore[arg-type]
