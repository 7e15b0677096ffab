"""How the CPU engine evaluates each leaf: by which path, in which units, and what is dropped as zero."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from halfgp import _cpu
from halfgp.errors import BackendError
from halfgp.kernels.profiles import EngineForm
from halfgp.kernels.program import Leaf, Program
from halfgp.precision import HALF, SINGLE, Precision

# With fewer features, 16-bit integers save less than the conversion of their result costs (measured).
FIXED_POINT_FEATURES = 16
# |integer| of a point, so that squared distances stay below 2**30.
FIXED_POINT_REACH = 16383
# Up to this many features, differences cost no more than the expansion of the square.
DIFFERENCE_FEATURES = 2


@dataclass(frozen=True)
class LeafPlan:
    """How one leaf is evaluated.

    The engine works with psi = (scaled feature - centre) * factor and q = -|psi_i - psi_j|^2 / 2, which the
    factor puts into the units of the profile (see cpp/profile.inl).

    Attributes:
        path: how squared distances are formed between points within `reach` of the centre; other pairs take
            differences, so that an outlier costs no accuracy.
        by_products: whether gradients come from products with the features between such points, which is
            three times as fast with twenty features; of other pairs they come from differences.
        centre: (f,), of the scaled features.
        factor: from scaled features to psi.
        reach: the largest |psi| for which `path` and products are accurate.
        step: of psi in fixed point.
        least_exponent: covariances whose power of two is below are zero.
    """

    path: _cpu.Path
    by_products: bool
    centre: Tensor
    factor: float
    reach: float
    step: float
    least_exponent: float

    def describe(self, leaf: Leaf) -> _cpu.Leaf:
        """What the extension wants to know of a leaf."""
        return _cpu.Leaf(
            profile=_cpu.Profile[leaf.profile.name],
            features=len(self.centre),
            shared_scale=len(leaf.scales) == 1,
            shape=leaf.shape_value or 0.0,
            least_exponent=self.least_exponent,
            near_path=self.path,
            by_products=self.by_products,
            centre=self.centre.tolist(),
            factor=self.factor,
            fixed_step=self.step,
        )

    def near(self, scaled: Tensor) -> Tensor:
        """Which points (n, f) the fast path serves, (n,) bool: a matter of each point alone."""
        if math.isinf(self.reach):
            return torch.ones(len(scaled), dtype=torch.bool)
        return _norms(scaled, self.centre, self.factor) <= self.reach


def plan_leaf(
    leaf: Leaf, scaled: Sequence[Tensor], precision: Precision, *, fixed_point: bool, vanishing: float
) -> LeafPlan:
    """Choose the path of a leaf by its error bound.

    Args:
        leaf: the leaf.
        scaled: scaled features (n, f) of each side; the last gives the centre.
        precision: what is asked for.
        fixed_point: whether the instruction set gains by 16-bit integers.
        vanishing: covariances of the leaf that are zero: where it is the whole kernel, and otherwise 0.
    """
    columns = scaled[-1]
    f = columns.shape[1]
    form = engine_form(leaf)
    factor = form.factor
    if not leaf.is_stationary:
        return LeafPlan(_cpu.Path.expansion, True, columns.new_zeros(f), factor, math.inf, 0.0, 0.0)
    centre = columns.mean(dim=0) if len(columns) else columns.new_zeros(f)
    least = float(precision.vectors.min_exponent)  # the engine flushes denormals
    if vanishing > 0.0:
        least = max(least, leaf.stationary.engine_exponent(math.log2(vanishing)))
    cusp = leaf.stationary.has_cusp
    if precision.is_sixteen_bit and fixed_point and f >= FIXED_POINT_FEATURES:
        reach = _fixed_point_reach(torch.cat([_norms(z, centre, factor) for z in scaled]), factor)
        if reach > 0.0:
            # Rounding can add half a step to every feature, so |psi| to half a step times sqrt(f).
            step = reach / (FIXED_POINT_REACH - math.sqrt(f))
            return LeafPlan(_cpu.Path.fixed_point, not cusp, centre, factor, reach, step, least)
    if f <= DIFFERENCE_FEATURES or cusp:
        # Near zero the square root of Matern-1/2 would magnify what the expansion leaves there, and its slope
        # grows without bound.
        return LeafPlan(_cpu.Path.difference, False, centre, factor, math.inf, 0.0, least)
    # Products err by up to 2 u |psi|^2 in q. Keep what that does to the exponent within half's own rounding,
    # or else within 64 units: data mostly lie well inside, and what lies outside takes differences.
    roundoff = SINGLE.unit_roundoff if precision.vectors is SINGLE else precision.vectors.unit_roundoff
    allowed = HALF.unit_roundoff / 2.0 if precision.is_sixteen_bit else 64.0 * roundoff
    reach = math.sqrt(allowed / (2.0 * roundoff * form.steepness))
    # What the expansion loses is the same however near two points are, where a solve sees it beside the
    # noise; and it saves a few percent. So entries take it where they are rounded to 16 bits anyway.
    path = _cpu.Path.expansion if precision.is_sixteen_bit else _cpu.Path.difference
    return LeafPlan(path, True, centre, factor, reach, 0.0, least)


def engine_form(leaf: Leaf) -> EngineForm:
    """How the engine writes the profile of a leaf.

    Raises:
        BackendError: it does not know the profile.
    """
    form = leaf.profile.engine_form(leaf.shape_value)
    if form is None or leaf.profile.name not in _cpu.Profile.__members__:
        raise BackendError(
            f'The CPU engine does not know the profile {leaf.profile.name!r}. Use `backend="reference"` or'
            ' "auto", or add the profile to cpp/profile.inl.'
        )
    return form


def _fixed_point_reach(norms: Tensor, factor: float) -> float:
    """The largest |psi| to be held in 16-bit integers, or 0 where most points lie too far out for that.

    Rounding two points to a step moves each coordinate of their difference by sqrt(1/6) steps in the mean
    square; that is to stay below half's unit round-off, in units of the lengthscale.
    """
    most = FIXED_POINT_REACH * HALF.unit_roundoff / math.sqrt(1.0 / 6.0) * factor
    inside = norms[norms <= most]
    return inside.max().item() if len(inside) and 2 * len(inside) >= len(norms) else 0.0


def _norms(scaled: Tensor, centre: Tensor, factor: float) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(scaled - centre, dim=1)
    return norms * factor


def describe_nodes(program: Program) -> list[_cpu.Node]:
    """The nodes of a program in the extension's terms."""
    return [_cpu.Node(_cpu.NodeKind[node.kind], node.a, node.b) for node in program.nodes]
