"""The gradient of a bilinear form in one pass over the entries, by exact differences."""

from __future__ import annotations

import triton
import triton.language as tl

from halfgp.backends.triton.dot import dot
from halfgp.backends.triton.entries import (
    exponent,
    in_units,
    load_numbers,
    node_values,
    pair,
    shape_of,
    without_diagonal,
)
from halfgp.backends.triton.profiles import profile, profile_slope, shape_slope
from halfgp.backends.triton.runs_kernel import column_of, run_of

COLUMNS = tl.constexpr(64)  # of right-hand sides at a time


@triton.jit
def gradient_kernel(
    left,
    right,
    numbers,
    us,
    vs,
    out,
    spans,
    tiles,
    column_first,
    column_end,
    run,
    row_first,
    height,
    FORM: tl.constexpr,
    SUMS: tl.constexpr,
    TERMS: tl.constexpr,
    SQUARE: tl.constexpr,
    LISTED: tl.constexpr,
    I: tl.constexpr,
    J: tl.constexpr,
    T: tl.constexpr,
):
    """Add, for each row, sums over a run of columns into out (runs, sums, height); see `Sums`."""
    scalars = load_numbers(numbers, FORM)
    row = row_first + tl.program_id(0) * I
    i = row + tl.arange(0, I)
    out += tl.program_id(1) * SUMS.number * height + tl.program_id(0) * I + tl.arange(0, I)
    tiles, first, end = run_of(spans, tiles, column_first, column_end, run, LISTED, I)
    for at in tl.range(first, end, J):
        column = column_of(tiles, at, LISTED)
        j = column + tl.arange(0, J)
        w = weights(us, vs, i, j, left.stride, right.stride, TERMS, T)
        if SQUARE:
            w = without_diagonal(w, row, column, I, J)
        exponents, leaves = (), ()
        for k in tl.static_range(len(FORM.leaves)):
            q = exponent(left, right, i, j, FORM.leaves[k], 1, True)
            exponents = exponents + (q,)
            leaves = leaves + (profile(q, shape_of(scalars, FORM.leaves[k]), FORM.leaves[k].profile),)
        values = node_values(leaves, scalars, FORM, I, J)
        if FORM.cut:  # the gradient is that of the matrix that is multiplied with
            relative = in_units(values[len(FORM.nodes) - 1], left, right, i, j, scalars, FORM)
            w = tl.where(tl.abs(relative) > scalars[FORM.numbers - 1], w, 0.0)
        add(out, 0, height, w * values[len(FORM.nodes) - 1])
        for k in tl.static_range(len(SUMS.constants)):
            add(out, 1 + k, height, adjoint(w, values, SUMS.constants[k]))
        for k in tl.static_range(len(FORM.leaves)):
            add_leaf(
                out,
                height,
                adjoint(w, values, SUMS.leaves[k].siblings),
                exponents[k],
                leaves[k],
                shape_of(scalars, FORM.leaves[k]),
                left,
                right,
                i,
                j,
                FORM.leaves[k],
                SUMS.leaves[k],
            )


@triton.jit
def weights(us, vs, i, j, height, width, TERMS: tl.constexpr, T: tl.constexpr):
    """U v' (I, J), in float32."""
    w = tl.zeros((i.shape[0], j.shape[0]), tl.float32)
    CHUNK: tl.constexpr = T if T < COLUMNS else COLUMNS
    for start in tl.range(0, T, CHUNK):
        c = start + tl.arange(0, CHUNK)
        for a in tl.static_range(TERMS):
            u = tl.load(us + (a * height + i[:, None]) * T + c[None, :])
            for b in tl.static_range(TERMS - a):
                v = tl.load(vs + (b * width + j[None, :]) * T + c[:, None])
                w = dot(u, v, w)
    return w


@triton.jit
def adjoint(w, values, SIBLINGS: tl.constexpr):
    """The derivative of the root in a node, times the weights: the product with its siblings."""
    for k in tl.static_range(len(SIBLINGS)):
        w *= values[SIBLINGS[k]]
    return w


@triton.jit
def add(out, SUM: tl.constexpr, height, terms):
    """Add the sums over the columns of a tile. No two programs have an address in common."""
    tl.atomic_add(out + SUM * height, tl.sum(terms, axis=1), sem="relaxed")


@triton.jit
def add_leaf(out, height, w, q, value, shape, left, right, i, j, LEAF: tl.constexpr, SUMS: tl.constexpr):
    """The sums of one leaf, from the derivative of the form in it."""
    if LEAF.shape >= 0:
        add(out, SUMS.shape, height, w * shape_slope(q, value))
    slope = w * profile_slope(q, value, shape, LEAF.profile)
    if SUMS.shared:
        add(out, SUMS.scales, height, slope * q)
    if SUMS.points >= 0 or not SUMS.shared:
        for f in tl.range(0, LEAF.features):
            own, other = pair(left, right, i, j, LEAF.first + f)
            if LEAF.profile == "linear":
                moved, stretched = slope * other, slope * own * other
            else:
                moved = slope * (own - other)
                stretched = moved * (own - other)
            if not SUMS.shared:
                tl.atomic_add(out + (SUMS.scales + f) * height, tl.sum(stretched, axis=1), sem="relaxed")
            if SUMS.points >= 0:
                tl.atomic_add(out + (SUMS.points + f) * height, tl.sum(moved, axis=1), sem="relaxed")
