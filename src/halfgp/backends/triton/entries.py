"""Entries of a kernel matrix, a tile at a time: from points to squared distances, leaves and the program.

Functions return at their ends alone: Triton compiles what follows a `return` within an `if` all the same.
"""

from __future__ import annotations

import triton
import triton.language as tl

from halfgp.backends.triton.dot import dot
from halfgp.backends.triton.profiles import profile


@triton.jit
def exponent(left, right, i, j, LEAF: tl.constexpr, TERMS: tl.constexpr, EXACT: tl.constexpr):
    """Q = -|psi_i - psi_j|² / 2 of a stationary leaf (I, J), or the inner product, in float32."""
    if LEAF.profile == "linear":
        q = inner_product(left, right, i, j, LEAF)
    elif LEAF.expanded and not EXACT:
        q = expansion(left, right, i, j, LEAF, TERMS)
    else:
        q = -0.5 * squared_distance(left, right, i, j, LEAF)
    return q


@triton.jit
def expansion(left, right, i, j, LEAF: tl.constexpr, TERMS: tl.constexpr):
    """By tensor cores: <psi_i, psi_j> less half of both squared norms, which the sum begins with.

    Points are sums of TERMS numbers of 16 bits. Of their products those below the last digit are left out.
    """
    # The norms are negative and halved where they are packed: here that would be an instruction an entry.
    q = tl.load(left.norms + LEAF.norm * left.stride + i)[:, None]
    q += tl.load(right.norms + LEAF.norm * right.stride + j)[None, :]
    for first in tl.range(0, LEAF.width, LEAF.chunk):
        f = LEAF.column + first + tl.arange(0, LEAF.chunk)
        for a in tl.static_range(TERMS):
            own = tl.load(left.parts + (a * left.stride + i[:, None]) * left.width + f[None, :])
            for b in tl.static_range(TERMS - a):
                other = tl.load(right.parts + (b * right.stride + j[None, :]) * right.width + f[:, None])
                q = dot(own, other, q)
    return q


@triton.jit
def squared_distance(left, right, i, j, LEAF: tl.constexpr):
    """By differences, of which nothing cancels."""
    total = tl.zeros((i.shape[0], j.shape[0]), tl.float32)
    for f in tl.range(LEAF.first, LEAF.first + LEAF.features):
        own, other = pair(left, right, i, j, f)
        difference = own - other
        total += difference * difference
    return total


@triton.jit
def inner_product(left, right, i, j, LEAF: tl.constexpr):
    """Of features, which are not centred and may be of any size: in float32."""
    total = tl.zeros((i.shape[0], j.shape[0]), tl.float32)
    for f in tl.range(LEAF.first, LEAF.first + LEAF.features):
        own, other = pair(left, right, i, j, f)
        total += own * other
    return total


@triton.jit
def pair(left, right, i, j, f):
    """One feature of rows (I, 1) and of columns (1, J)."""
    own = tl.load(left.features + f * left.stride + i)
    other = tl.load(right.features + f * right.stride + j)
    return own[:, None], other[None, :]


@triton.jit
def load_numbers(numbers, FORM: tl.constexpr):
    """Shapes and constants, as a tuple of scalars."""
    found = ()
    for k in tl.static_range(FORM.numbers):
        found = found + (tl.load(numbers + k),)
    return found


@triton.jit
def shape_of(numbers, LEAF: tl.constexpr):
    """The shape of a leaf, or any number where it has none."""
    return numbers[LEAF.shape] if LEAF.shape >= 0 else 0.0


@triton.jit
def node_value(values, leaves, numbers, NODE: tl.constexpr, I: tl.constexpr, J: tl.constexpr):
    """The value of one node (I, J) from those before it."""
    if NODE.kind == "leaf":
        value = leaves[NODE.a]
    elif NODE.kind == "constant":
        value = tl.zeros((I, J), tl.float32) + numbers[NODE.a]
    elif NODE.kind == "add":
        value = values[NODE.a] + values[NODE.b]
    else:
        value = values[NODE.a] * values[NODE.b]
    return value


@triton.jit
def node_values(leaves, numbers, FORM: tl.constexpr, I: tl.constexpr, J: tl.constexpr):
    """The values (I, J) of all nodes."""
    values = ()
    for k in tl.static_range(len(FORM.nodes)):
        values = values + (node_value(values, leaves, numbers, FORM.nodes[k], I, J),)
    return values


@triton.jit
def entries(
    left,
    right,
    row,
    column,
    numbers,
    FORM: tl.constexpr,
    TERMS: tl.constexpr,
    EXACT: tl.constexpr,
    SQUARE: tl.constexpr,
    I: tl.constexpr,
    J: tl.constexpr,
):
    """Entries (I, J) from a row and a column on, in float32, without the scale in front.

    Those of a point with itself are zero where the matrix is square.
    """
    i, j = row + tl.arange(0, I), column + tl.arange(0, J)
    leaves = ()
    for k in tl.static_range(len(FORM.leaves)):
        q = exponent(left, right, i, j, FORM.leaves[k], TERMS, EXACT)
        leaves = leaves + (profile(q, shape_of(numbers, FORM.leaves[k]), FORM.leaves[k].profile),)
    found = node_values(leaves, numbers, FORM, I, J)[len(FORM.nodes) - 1]
    found = in_units(found, left, right, i, j, numbers, FORM)
    if FORM.cut and not FORM.rounded:
        found = tl.where(tl.abs(found) > numbers[FORM.numbers - 1], found, 0.0)
    if SQUARE:
        found = without_diagonal(found, row, column, I, J)
    return found


@triton.jit
def in_units(found, left, right, i, j, numbers, FORM: tl.constexpr):
    """Values (I, J) of the root relative to the amplitude, and to the units of both points."""
    if FORM.normalised:
        found *= numbers[FORM.numbers - 1 - FORM.cut]
    if FORM.units:
        found *= tl.load(left.units + i)[:, None] * tl.load(right.units + j)[None, :]
    return found


@triton.jit
def without_diagonal(found, row, column, I: tl.constexpr, J: tl.constexpr):
    """Zeros where row and column are the same point; only tiles that have such look for them."""
    if (column < row + I) & (row < column + J):
        i, j = row + tl.arange(0, I), column + tl.arange(0, J)
        found = tl.where(i[:, None] == j[None, :], 0.0, found)
    return found
