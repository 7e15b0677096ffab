"""Samples of a kernel's prior as functions, by random features of its program."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from halfgp.errors import InputError
from halfgp.kernels.base import Kernel
from halfgp.kernels.profiles import Profile
from halfgp.kernels.program import Leaf, Node, Program

CHUNK_BYTES = 2**24  # of temporaries: smaller is no faster, and larger leaves the cache


@dataclass(frozen=True, eq=False)
class LeafDraw:
    """What is random about a leaf, free of its hyperparameters; m features for each of s samples.

    Attributes:
        profile: of the leaf.
        columns: of the leaf.
        directions: (f, s m), frequencies per unit of scaled features; a linear leaf's weights.
        phases: (s m,) in [0, 2 pi); None for a linear leaf.
        levels: (s m,) what the profile's frequencies depend on beside its shape, or None.
    """

    profile: Profile
    columns: tuple[int, ...] | None
    directions: Tensor
    phases: Tensor | None
    levels: Tensor | None


@dataclass(frozen=True, eq=False)
class PriorSamples:
    """Functions f with E[f(x) f(y)] = k(x, y), for any number of features, frozen to be evaluated anywhere.

    Each node of the program has random features φ with E[φ(x) φ(y)] its covariance:

        stationary leaf   √2 cos(ω·z(x) + b), ω from the spectral density of the profile, b uniform
        linear leaf       g·z(x), g normal
        constant c        √c
        sum               φ_a + ε φ_b, ε a random sign
        product           φ_a φ_b, which are independent, since every node is used once

    and f(x) = √(scale / m) Σ w φ(x) over the m features, w normal. Every sample has frequencies of its own,
    so that the covariance over draws is exactly k: more features bring f closer to a Gaussian, not to k.

    What is drawn does not depend on hyperparameters, in which f therefore is smooth.

    Attributes:
        d: columns of the points.
        samples: s, how many functions.
        features: m, features of each.
        nodes: of the program for which the samples were drawn.
        leaves: one draw for each leaf.
        signs: (s m,) for each node that is a sum.
        weights: (s, m).
    """

    d: int
    samples: int
    features: int
    nodes: tuple[Node, ...]
    leaves: tuple[LeafDraw, ...]
    signs: dict[int, Tensor]
    weights: Tensor

    @classmethod
    def draw(
        cls,
        kernel: Kernel,
        d: int,
        samples: int,
        features: int,
        seed: int,
        device: torch.device | str | None = None,
    ) -> PriorSamples:
        """Draw functions of points with `d` columns; the same for a seed on every device.

        Args:
            kernel: its structure is used, its hyperparameters are not; White is noise and takes no part.
            d: columns of the points.
            samples: s, how many functions.
            features: m, random features of each.
            seed: of a generator of its own.
            device: of the points to come.

        O(s m f) memory and time, f the features of all leaves.
        """
        for name, value in (("d", d), ("samples", samples), ("features", features)):
            if value < 1:
                raise InputError(f"`{name}` must be at least 1; got {value}.")
        kernel.check_columns(d)
        program = kernel.detached().program()
        # On the CPU whatever the device: its generator alone gives the same numbers everywhere.
        generator = torch.Generator().manual_seed(seed)
        count = samples * features
        with torch.no_grad():
            leaves = tuple(_draw_leaf(leaf, d, count, generator, device) for leaf in program.leaves)
        signs = {
            k: (2.0 * torch.randint(2, (count,), generator=generator).to(torch.float64) - 1.0).to(device)
            for k, node in enumerate(program.nodes)
            if node.kind == "add"
        }
        weights = torch.randn(samples, features, generator=generator, dtype=torch.float64).to(device)
        return cls(d, samples, features, program.nodes, leaves, signs, weights)

    @torch.no_grad()
    def samples_at(self, kernel: Kernel, x: Tensor) -> Tensor:
        """The functions at points, for the kernel at any hyperparameters.

        Args:
            kernel: of the structure for which the samples were drawn.
            x: points (n, d), on the device of the draws.

        Returns:
            (n, s) in float64. O(n s m f) time, CHUNK_BYTES of temporaries.
        """
        x = kernel._points(x)
        if x.shape[1] != self.d:
            raise InputError(
                f"`x` must have {self.d} columns, as the samples were drawn for; got {x.shape[1]}."
            )
        if x.device != self.weights.device:
            raise InputError(
                f"`x` must be on {self.weights.device}, as the samples are; got {x.device}. Move it there."
            )
        program = kernel.detached().program()
        self._check_structure(program)
        scale, *constants = (_root(value).to(x.device) for value in (program.scale, *program.constants))
        frequencies = [
            _frequencies(leaf, draw) for leaf, draw in zip(program.leaves, self.leaves, strict=True)
        ]
        weights = scale / math.sqrt(self.features) * self.weights
        result = torch.empty(len(x), self.samples, dtype=torch.float64, device=x.device)
        step = self._chunk_rows()
        for start in range(0, len(x), step):
            chunk = slice(start, start + step)
            values = self._values(program, constants, frequencies, x[chunk].to(torch.float64))
            result[chunk] = (values.view(-1, self.samples, self.features) * weights).sum(dim=2)
        return result

    def _values(
        self, program: Program, constants: list[Tensor], frequencies: list[Tensor], x: Tensor
    ) -> Tensor:
        """The features (n, s m) of the root at the points of a chunk."""
        values: list[Tensor] = []
        for k, node in enumerate(program.nodes):
            if node.kind == "leaf":
                values.append(
                    _leaf_values(program.leaves[node.a], self.leaves[node.a], frequencies[node.a], x)
                )
            elif node.kind == "constant":
                values.append(constants[node.a])
            elif node.kind == "add":
                values.append(values[node.a] + self.signs[k] * values[node.b])
            else:
                values.append(values[node.a] * values[node.b])
        return values[-1].expand(len(x), self.weights.numel())

    def _chunk_rows(self) -> int:
        """Rows whose features, of all nodes and with two more in passing, stay within CHUNK_BYTES."""
        numbers = (len(self.nodes) + 2) * self.weights.numel() + sum(
            len(draw.directions) for draw in self.leaves
        )
        return max(1, CHUNK_BYTES // (8 * numbers))

    def _check_structure(self, program: Program) -> None:
        """Raise unless the program differs in its tensors only from the one that was drawn for."""
        drawn = [(draw.profile, draw.columns) for draw in self.leaves]
        if self.nodes != program.nodes or drawn != [(leaf.profile, leaf.columns) for leaf in program.leaves]:
            raise InputError(
                "`kernel` must have the structure for which the samples were drawn; got another. Only its"
                " hyperparameters may differ. Draw anew."
            )


def _draw_leaf(
    leaf: Leaf, d: int, count: int, generator: torch.Generator, device: torch.device | str | None
) -> LeafDraw:
    """The random part of a leaf, for so many features."""
    f = leaf.features(torch.zeros(1, d, dtype=torch.float64)).shape[1]
    normal = torch.randn(f, count, generator=generator, dtype=torch.float64)
    phases = None
    if leaf.is_stationary:
        phases = (2.0 * math.pi * torch.rand(count, generator=generator, dtype=torch.float64)).to(device)
    directions, levels = leaf.profile.draw(normal, generator)
    levels = None if levels is None else levels.to(device)
    return LeafDraw(leaf.profile, leaf.columns, directions.to(device), phases, levels)


def _frequencies(leaf: Leaf, draw: LeafDraw) -> Tensor:
    """Frequencies (f, s m) of the features before scaling, at the hyperparameters of the leaf."""
    scaled = draw.directions * leaf.scales.to(draw.directions)[:, None]
    return leaf.profile.frequencies(scaled, draw.levels, leaf.shape)


def _leaf_values(leaf: Leaf, draw: LeafDraw, frequencies: Tensor, x: Tensor) -> Tensor:
    """The features (n, s m) of a leaf.

    In float64 throughout: frequencies have heavy tails, a phase of 10⁴ in float32 is off by 5e-4, and phases
    in float64 with cosines in float32 are no faster, for the reduction of the phase between them.
    """
    if draw.phases is None:
        return leaf.features(x) @ frequencies
    return torch.addmm(draw.phases, leaf.features(x), frequencies).cos_().mul_(math.sqrt(2.0))


def _root(value: Tensor) -> Tensor:
    """The root of a constant, which only bounds set by hand can have let become negative."""
    if value < 0:
        raise InputError(
            f"`kernel` must not have negative factors to be sampled; got {value.item():g}. Change them."
        )
    return value.sqrt()
