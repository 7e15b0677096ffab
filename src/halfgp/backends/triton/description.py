"""A kernel's program in terms that Triton compiles: plain tuples, of which every entry is a constant."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from halfgp.errors import BackendError
from halfgp.kernels.program import Leaf, Program

PROFILES = ("rbf", "matern12", "matern32", "matern52", "rational_quadratic", "linear")
LEAST_WIDTH = 16  # of a tensor core's product, in features
CHUNK = 64  # features at a time
DIFFERENCE_FEATURES = 2  # up to so many, differences cost no more than the expansion of the square


class LeafForm(NamedTuple):
    """One leaf, whose points are psi = (scaled features - centre) * factor.

    Attributes:
        profile: its name.
        first: of its rows among the features.
        features: how many.
        expanded: whether tensor cores form its squared distances, by |x|² + |y|² - 2xy, between near points.
        column: of its first in the parts.
        width: of it there, padded.
        chunk: features at a time.
        norm: its row among the norms.
        shape: its place among the numbers, or -1.
    """

    profile: str
    first: int
    features: int
    expanded: bool
    column: int
    width: int
    chunk: int
    norm: int
    shape: int


class NodeForm(NamedTuple):
    """One node: "leaf" a, "constant" at a among the numbers, or nodes a and b to "add" or "multiply"."""

    kind: str
    a: int
    b: int


class Form(NamedTuple):
    """A program without its numbers: what has to be compiled anew where it differs.

    Attributes:
        leaves: in their order.
        nodes: each of earlier ones.
        numbers: how many a kernel is given beside.
        normalised: whether a number behind the constants multiplies the root.
        cut: whether entries up to the last number are zero.
        rounded: whether rounding makes them zero, so that products need no look.
        units: whether entries are in units of their rows and columns.
    """

    leaves: tuple[LeafForm, ...]
    nodes: tuple[NodeForm, ...]
    numbers: int
    normalised: bool
    cut: bool
    rounded: bool
    units: bool


def describe(
    program: Program,
    features: Sequence[int],
    *,
    expand: bool,
    normalised: bool,
    cut: bool,
    rounded: bool,
    units: bool,
) -> Form:
    """The form of a program.

    Args:
        program: the kernel's.
        features: how many each leaf looks at.
        expand: whether tensor cores may form squared distances.
        normalised: whether covariances are divided by their amplitude.
        cut: whether those up to a number are zero.
        rounded: whether rounding sees to that.
        units: whether they are divided by the units of both points too.

    Raises:
        BackendError: the kernels of this backend do not have a profile.
    """
    leaves: list[LeafForm] = []
    first = column = norm = shapes = 0
    for leaf, f in zip(program.leaves, features, strict=True):
        if not is_known(leaf):
            raise BackendError(
                f"The Triton backend does not know the profile {leaf.profile.name!r}. Use"
                ' `backend="reference"` or "auto", or add it to backends/triton: profiles.py, support.py.'
            )
        expanded = expand and _expands(leaf, f)
        width = max(LEAST_WIDTH, 1 << (f - 1).bit_length()) if f <= CHUNK else -(-f // CHUNK) * CHUNK
        has_shape = leaf.shape is not None
        leaves.append(
            LeafForm(
                leaf.profile.name,
                first,
                f,
                expanded,
                column,
                width,
                min(width, CHUNK),
                norm,
                shapes if has_shape else -1,
            )
        )
        first, shapes = first + f, shapes + has_shape
        if expanded:
            column, norm = column + width, norm + 1
    nodes = tuple(NodeForm(n.kind, n.a + shapes * (n.kind == "constant"), n.b) for n in program.nodes)
    numbers = shapes + len(program.constants) + normalised + cut
    return Form(tuple(leaves), nodes, numbers, normalised, cut, rounded, units)


def numbers_of(program: Program, normalisation: float | None, cutoff: float | None) -> tuple[float, ...]:
    """Shapes, constants and, if there are such, normalisation and cutoff."""
    shapes = [leaf.shape_value for leaf in program.leaves]
    constants = [constant.item() for constant in program.constants]
    return tuple(n for n in (*shapes, *constants, normalisation, cutoff) if n is not None)


def siblings(form: Form, node: int) -> tuple[int, ...]:
    """The nodes whose product is the derivative of the root in a node.

    Every node has one use, so that this is what the products on its way up multiply it by.
    """
    found: list[int] = []
    for index, parent in enumerate(form.nodes):
        if parent.kind in ("add", "multiply") and node in (parent.a, parent.b):
            if parent.kind == "multiply":
                found.append(parent.b if parent.a == node else parent.a)
            node = index
    return tuple(found)


def is_known(leaf: Leaf) -> bool:
    """Whether the kernels of this backend have the profile of a leaf."""
    return leaf.profile.name in PROFILES and leaf.in_engine


def factor_of(leaf: Leaf) -> float:
    """From scaled features to psi."""
    form = leaf.profile.engine_form(leaf.shape_value)
    assert form is not None
    return form.factor


def reach_of(leaf: Leaf, unit_roundoff: float) -> float:
    """The largest |psi| at which the expansion is as exact as the format.

    Of points split in two numbers of roundoff u a product loses u² |psi|², and so the exponent 2 u² |psi|²
    at most; that is to stay below u / 2.
    """
    form = leaf.profile.engine_form(leaf.shape_value)
    assert form is not None
    return 0.5 / math.sqrt(unit_roundoff * form.steepness)


def _expands(leaf: Leaf, features: int) -> bool:
    return leaf.is_stationary and features > DIFFERENCE_FEATURES and not leaf.stationary.has_cusp
