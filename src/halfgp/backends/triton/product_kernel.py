"""Products and dense blocks of entries: attention without the softmax."""

from __future__ import annotations

import triton
import triton.language as tl

from halfgp.backends.triton.dot import dot
from halfgp.backends.triton.entries import entries, load_numbers
from halfgp.backends.triton.runs_kernel import column_of, run_of


@triton.jit
def product_kernel(
    left,
    right,
    numbers,
    vectors,
    out,
    spans,
    tiles,
    column_first,
    column_end,
    run,
    row_first,
    height,
    FORM: tl.constexpr,
    TERMS: tl.constexpr,
    EXACT: tl.constexpr,
    SQUARE: tl.constexpr,
    LISTED: tl.constexpr,
    I: tl.constexpr,
    J: tl.constexpr,
    T: tl.constexpr,
):
    """Sums (runs, height, T) over runs of columns; a program has I rows and one run, or its live tiles."""
    scalars = load_numbers(numbers, FORM)
    row = tl.program_id(0) * I
    tiles, first, end = run_of(spans, tiles, column_first, column_end, run, LISTED, I)
    sums = tl.zeros((I, T), tl.float32)
    for k in tl.range(first, end, J):
        column = column_of(tiles, k, LISTED)
        some = entries(left, right, row_first + row, column, scalars, FORM, TERMS.points, EXACT, SQUARE, I, J)
        sums = add_products(sums, some, vectors, column, right.stride, TERMS, J, T)
    i, c = row + tl.arange(0, I), tl.arange(0, T)
    tl.store(out + (tl.program_id(1) * height + i[:, None]) * T + c[None, :], sums)


@triton.jit
def add_products(sums, k, vectors, column, stride, TERMS: tl.constexpr, J: tl.constexpr, T: tl.constexpr):
    """Add the product of entries (I, J) with vectors, by the numbers that both are split into."""
    j, c = column + tl.arange(0, J), tl.arange(0, T)
    for a in tl.static_range(TERMS.entries):
        part = k.to(vectors.dtype.element_ty)
        for b in tl.static_range(TERMS.vectors - a):
            other = tl.load(vectors + (b * stride + j[:, None]) * T + c[None, :])
            sums = dot(part, other, sums)
        k -= part.to(tl.float32)
    return sums


@triton.jit
def block_kernel(
    left,
    right,
    numbers,
    out,
    FORM: tl.constexpr,
    TERMS: tl.constexpr,
    DTYPE: tl.constexpr,
    I: tl.constexpr,
    J: tl.constexpr,
):
    """Entries (rows, columns) by differences, as the sums of numbers that products take."""
    scalars = load_numbers(numbers, FORM)
    row, column = tl.program_id(0) * I, tl.program_id(1) * J
    k = entries(left, right, row, column, scalars, FORM, TERMS.points, True, False, I, J)
    found = tl.zeros((I, J), tl.float32)
    for _ in tl.static_range(TERMS.entries):
        part = k.to(DTYPE).to(tl.float32)
        found += part
        k -= part
    i, j = row + tl.arange(0, I), column + tl.arange(0, J)
    tl.store(out + i[:, None] * right.stride + j[None, :], found)
