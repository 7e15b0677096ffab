"""What a program goes over, and how the sums of programs are added up."""

from __future__ import annotations

import triton
import triton.language as tl

from halfgp.backends.triton.points import PADDING

TILE = tl.constexpr(PADDING)  # of the list of live tiles; those of kernels divide it


@triton.jit
def run_of(spans, tiles, column_first, column_end, run, LISTED: tl.constexpr, I: tl.constexpr):
    """The first and the last column of a program's run; or its live tiles, and columns counted from 0."""
    if LISTED:
        height = tl.num_programs(0) * I // TILE
        span = spans + 2 * (tl.program_id(1) * height + tl.program_id(0) * I // TILE)
        begin = tl.load(span)
        tiles += begin
        first = 0
        end = ((tl.load(span + 1) - begin) * TILE).to(tl.int32)
    else:
        first = column_first + tl.program_id(1) * run
        end = tl.minimum(first + run, column_end)
    return tiles, first, end


@triton.jit
def column_of(tiles, k, LISTED: tl.constexpr):
    """The place of a column of a run."""
    if LISTED:
        which = k // TILE
        k += (tl.load(tiles + which) - which) * TILE
    return k


@triton.jit
def add_kernel(sums, partial, size, count, ADDED: tl.constexpr):
    """Add partial (count, size), float32, to sums (size,), float64, one after the other."""
    at = tl.program_id(0) * ADDED + tl.arange(0, ADDED)
    inside = at < size
    total = tl.load(sums + at, mask=inside)
    for _ in tl.range(0, count):
        total += tl.load(partial + at, mask=inside).to(tl.float64)
        partial += size
    tl.store(sums + at, total, mask=inside)
