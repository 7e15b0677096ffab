"""The flat form of a kernel that every backend interprets, forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from halfgp.errors import InputError
from halfgp.kernels.profiles import Profile, StationaryProfile

BLOCK_ROWS = 2**16


@dataclass(frozen=True)
class Leaf:
    """One factor: a profile of the squared distance, or the inner product, of scaled features.

    With z = features(x) * scales, a stationary profile is a function of |z(x) - z(y)|^2, and the inner
    product is <z(x), z(y)>.

    Attributes:
        profile: what becomes of the scaled features of two points.
        features: points (n, D) to base features (n, f), differentiable in points and parameters.
        scales: (1,) shared by all features, or (f,).
        shape: 0-d, of a profile that has one: the alpha of the rational quadratic.
        feature_parameters: whether `features` depends on hyperparameters.
        columns: the column of the points behind each feature where that is one to one (None: all, in order).
    """

    profile: Profile
    features: Callable[[Tensor], Tensor]
    scales: Tensor
    shape: Tensor | None = None
    feature_parameters: bool = False
    columns: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.profile, Profile):
            raise InputError(
                "The `profile` of a leaf must be a `Profile`, such as those of halfgp.kernels.profiles; got"
                f" {self.profile!r}. Derive a new one from `StationaryProfile`."
            )

    @property
    def is_stationary(self) -> bool:
        """Whether it is a function of the distance; otherwise it is the inner product."""
        return self.profile.is_stationary

    @property
    def in_engine(self) -> bool:
        """Whether the compiled engine has the profile."""
        return self.profile.engine_form(self.shape_value) is not None

    @property
    def shape_value(self) -> float | None:
        """The shape as a number."""
        return None if self.shape is None else self.shape.item()

    def scaled(self, x: Tensor, centre: Tensor | None = None) -> Tensor:
        """Scaled features (n, f) of points (n, d), differentiable, relative to a `centre` if there is one."""
        features = self.features(x)
        return (features if centre is None else features - centre) * self.scales.to(features)

    @torch.no_grad()
    def coordinates(self, x: Tensor) -> Tensor:
        """Scaled features (n, f) of points in any format, float64 and contiguous.

        Of narrower ones some are widened at a time: a wide copy of all is no more than what is asked for.
        """
        if x.dtype == torch.float64:
            return self.scaled(x).contiguous()
        found = torch.empty(0, dtype=torch.float64, device=x.device)
        for start in range(0, max(len(x), 1), BLOCK_ROWS):
            some = self.scaled(x[start : start + BLOCK_ROWS].double())
            if start == 0:
                found = some.new_empty(len(x), some.shape[1])
            found[start : start + BLOCK_ROWS] = some
        return found

    def centre(self, x: Tensor) -> Tensor | None:
        """The mean (f,) of the features, which distances may be relative to; None for an inner product."""
        return self.features(x).detach().mean(dim=0) if self.is_stationary and len(x) else None

    def between(self, z1: Tensor, z2: Tensor) -> Tensor:
        """The factor (..., n1, n2) from scaled features (..., n, f) of each side; differentiable."""
        return self.profile.between(z1, z2, self.shape)

    def covariance(self, squared: Tensor) -> Tensor:
        """The factor of a stationary leaf at squared scaled distances of any shape; differentiable."""
        return self.stationary.covariance(squared, self.shape)

    @property
    def stationary(self) -> StationaryProfile:
        """The profile of a stationary leaf."""
        assert isinstance(self.profile, StationaryProfile)
        return self.profile


@dataclass(frozen=True)
class Node:
    """One value of the program.

    `a` is the index of the leaf or of the constant, or, with `b`, of the nodes to "add" or "multiply".
    """

    kind: str
    a: int
    b: int = -1


@dataclass(frozen=True)
class Program:
    """K = scale * (the last node); every node refers to earlier ones only."""

    leaves: tuple[Leaf, ...]
    constants: tuple[Tensor, ...]
    nodes: tuple[Node, ...]
    scale: Tensor

    @property
    def has_support(self) -> bool:
        """Whether it is a function of distances alone that falls to zero in each, with no constant alone."""
        falls: list[bool] = []
        for node in self.nodes:
            if node.kind == "leaf":
                falls.append(self.leaves[node.a].is_stationary)
            elif node.kind == "constant":
                falls.append(False)
            elif node.kind == "add":
                falls.append(falls[node.a] and falls[node.b])
            else:
                falls.append(falls[node.a] or falls[node.b])
        return falls[-1] and all(leaf.is_stationary for leaf in self.leaves)

    def evaluate(self, leaf_values: Sequence[Tensor], shape: tuple[int, ...]) -> Tensor:
        """The kernel matrix, of that shape, from the values of its leaves, in their format."""
        like = leaf_values[0] if leaf_values else self.scale
        values: list[Tensor] = []
        for node in self.nodes:
            if node.kind == "leaf":
                values.append(leaf_values[node.a])
            elif node.kind == "constant":
                values.append(self.constants[node.a].to(like))
            elif node.kind == "add":
                values.append(values[node.a] + values[node.b])
            else:
                values.append(values[node.a] * values[node.b])
        return (self.scale.to(like) * values[-1]).expand(shape)


_ONE = torch.ones((), dtype=torch.float64)  # the factor of a term that has none, recognised by identity


class Term(NamedTuple):
    """A partial result of the lowering: factor * node, or the factor alone."""

    factor: Tensor
    node: int | None


@dataclass
class Lowering:
    """Collects a program while a kernel lowers itself, bottom up."""

    leaves: list[Leaf] = field(default_factory=list)
    constants: list[Tensor] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)

    def node(self, kind: str, a: int, b: int = -1) -> int:
        """Append a node."""
        self.nodes.append(Node(kind, a, b))
        return len(self.nodes) - 1

    def leaf(self, leaf: Leaf) -> Term:
        """Append a leaf with its node."""
        self.leaves.append(leaf)
        return Term(_ONE, self.node("leaf", len(self.leaves) - 1))

    def constant(self, value: Tensor) -> int:
        """Append a constant with its node."""
        self.constants.append(value)
        return self.node("constant", len(self.constants) - 1)

    def multiply(self, terms: Sequence[Term]) -> Term:
        """The product: the factors gather in front, so that they reach the root where they can."""
        factor, product = _ONE, None
        for term in terms:
            factor = term.factor if factor is _ONE else factor * term.factor
            if term.node is not None:
                product = term.node if product is None else self.node("multiply", product, term.node)
        return Term(factor, product)

    def add(self, terms: Sequence[Term]) -> Term:
        """The sum: factors become constants within it, and terms without a node become one constant."""
        if len(terms) == 1:
            return terms[0]
        total: int | None = None
        offset: Tensor | None = None
        for factor, node in terms:
            if node is None:
                offset = factor if offset is None else offset + factor
                continue
            term = node if factor is _ONE else self.node("multiply", self.constant(factor), node)
            total = term if total is None else self.node("add", total, term)
        if total is None:
            assert offset is not None
            return Term(offset, None)
        if offset is not None:
            total = self.node("add", total, self.constant(offset))
        return Term(_ONE, total)

    def finish(self, term: Term | None) -> Program:
        """The program of K = term; None is the kernel that is zero between any two points."""
        if term is None:
            term = Term(torch.zeros((), dtype=torch.float64), None)
        factor, node = term
        if node is None:
            self.constant(factor)
            factor = _ONE
        return Program(tuple(self.leaves), tuple(self.constants), tuple(self.nodes), factor)
