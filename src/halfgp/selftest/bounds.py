"""How far a backend's entries and products may be from the definition, from the formats alone."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from halfgp.kernels import Kernel, Leaf
from halfgp.precision import DOUBLE, HALF, Precision

FIXED_POINT_FEATURES = 16  # from how many on a backend may hold 16-bit inputs as integers
FIXED_POINT_REACH = 16383  # the largest |integer vector|, so that squared distances stay below 2^30


def entry_bound(
    kernel: Kernel,
    x1: Tensor,
    x2: Tensor | None,
    precision: Precision,
    *,
    inputs: str = "rounded",
    expansion: bool = False,
) -> Tensor:
    """Bounds (n1, n2) on |computed K_ij - K_ij| for entries off the diagonal.

    Derivation. Let u be the unit roundoff of the inputs and c that of the format that computes (`vectors`).

    1. Scaled features are rounded relative to a centre among the points, so that each coordinate k moves by
       at most u R_k, with R_k the spread of that coordinate. A distance r then moves by at most
       delta = 2 u sqrt(sum R_k^2). A backend whose `inputs` are "unrounded" holds them in the format that
       computes: u = c. With "fixed point" it does so too, but in 16 bits, from FIXED_POINT_FEATURES features
       on, coordinates are multiples of a step. A vector of integers is at most FIXED_POINT_REACH long, and
       rounding adds half a step to every coordinate, so that a point `reach` from the centre needs
       step = reach / (FIXED_POINT_REACH - sqrt(f)); reach is at most |R|, and it is at most where the mean
       square error of a coordinate of a difference, step sqrt(1/6), is half's unit roundoff (points further
       out are not rounded). Both points move by half a step in each coordinate: delta = step sqrt(f) more.
       With "split" a point is the sum of two numbers of the format, so that u is the square of its roundoff.
    2. The squared distance of f coordinates, by differences, has a relative error of (f + 8) c, the
       arithmetic inside the profile's argument included; by expansion, which forms products of size
       |z_i|^2 + |z_j|^2, an error of (f + 8) c (|z_i|^2 + |z_j|^2), z from the mean of the columns. A
       split point also leaves out the product of its last parts, u |z_i| |z_j|, twice in the square. A
       backend with `expansion` must turn to differences where 2 c |z|^2 could exceed 64 c, in 16 bits half of
       half's unit roundoff: whatever the profile, beyond |z| = Z no pair may pay for the expansion.
    3. Profiles fall with r, so a leaf errs by at most profile(r-) - profile(r+) at the two ends of the
       interval for r, and by 8 c of itself for the evaluation of the profile. An inner product of features
       (not centred) errs by sum_k u S_k (|z_ik| + |z_jk|) + sum_k (u S_k)^2 + (f + 2) c sum_k |z_ik z_jk|,
       with S_k the largest |z_k|. An exponential below the smallest normal number m may be flushed, with the
       polynomial p(r) that multiplies it, and so may products of features: m p(r), or m.
    4. Sums and products of the program propagate both errors, and round: c of the result each, or flush: m a,
       with a the amplitude.
    5. In 16 bits what is below a_ij v, with v = 2**vanishing_exponent and a_ij the root of the product of the
       variances of the two points, may be zero; stored entries are rounded, by u_entries of themselves or
       by a_ij v. (Units of points go down to 2**-50 of the largest.)
    6. The definition that we compare with is computed in float64, and errs itself as "double" does.
    """
    points = [x.to(torch.float64) for x in ([x1] if x2 is None else [x1, x2])]
    shape = (len(points[0]), len(points[-1]))
    if 0 in shape:
        return torch.zeros(shape, dtype=torch.float64)
    c = precision.vectors.unit_roundoff
    program = kernel.program()
    exact: list[Tensor] = []
    error: list[Tensor] = []
    leaves = [_leaf_bound(leaf, points, precision, inputs, expansion) for leaf in program.leaves]
    for node in program.nodes:
        if node.kind == "leaf":
            value, wrong = leaves[node.a]
        elif node.kind == "constant":
            value = program.constants[node.a].expand(shape)
            wrong = c * value
        elif node.kind == "add":
            value = exact[node.a] + exact[node.b]
            wrong = error[node.a] + error[node.b]
            wrong = wrong + c * (value.abs() + wrong)
        else:
            value = exact[node.a] * exact[node.b]
            wrong = exact[node.a].abs() * error[node.b] + error[node.a] * (
                exact[node.b].abs() + error[node.b]
            )
            wrong = wrong + c * (value.abs() + wrong)
        exact.append(value)
        error.append(wrong)
    entries, wrong = program.scale * exact[-1], program.scale * error[-1]
    wrong = wrong + 2 * c * (entries.abs() + wrong)
    amplitude = kernel.amplitude(*points).item()
    least = 2.0**-50 * math.sqrt(amplitude)
    deviations = [kernel.diagonal(x, white=False).sqrt().clamp_min(least) for x in points]
    pairs = deviations[0][:, None] * deviations[-1]
    if precision.is_sixteen_bit:
        wrong = wrong + pairs * 2.0**precision.inputs.vanishing_exponent
    if precision.entries.bytes == 2:
        wrong = wrong + precision.entries.unit_roundoff * (entries.abs() + wrong)
        wrong = wrong + pairs * 2.0**precision.entries.vanishing_exponent
    wrong = wrong + (len(program.nodes) + 1) * amplitude * precision.vectors.smallest_normal
    return 2 * wrong if precision.inputs is DOUBLE else wrong


def product_bound(entries: Tensor, bound: Tensor, v: Tensor, precision: Precision, run: int = 0) -> Tensor:
    """Bounds (n1, t) on |computed K v - K v|, from exact entries (n1, n2) and the bounds of computed ones.

    Vectors are rounded once, products once, `run` products are added in the products' format, the rest in the
    wide one, and the result is rounded to the format of v: each rounding is relative to sum_j |K_ij v_j|.
    Products below the smallest normal number may be flushed.
    """
    magnitude = (entries.abs() + bound) @ v.abs().to(torch.float64)
    result = torch.finfo(v.dtype).eps / 2
    relative = (
        precision.vectors.unit_roundoff
        + (1 + min(run, len(v))) * precision.products.unit_roundoff
        + (len(v) + 2) * precision.sums.unit_roundoff
        + result
    )
    flushed = len(v) * precision.products.smallest_normal
    return bound @ v.abs().to(torch.float64) + 2 * relative * magnitude + flushed


def gradient_tolerance(
    kernel: Kernel,
    x1: Tensor,
    x2: Tensor | None,
    precision: Precision,
    *,
    expansion: bool = False,
    run: int = 0,
) -> float:
    """How far sum_ij w_ij dK_ij may be off, relative to the same sum without its signs.

    dK_ij is a product of polynomials of r and of one exponential or power for every leaf. A relative error e
    of r^2 (or e r^2 of an argument) changes each by at most (2 + r^2) e of itself; e is as in `entry_bound`,
    steps 1 and 2, with the rounding of inputs relative to the smallest distance between two points. Terms are
    added in the format that computes by slices of `run` rows by 32 columns, in any order: as many roundings.
    """
    c, u = precision.vectors.unit_roundoff, precision.inputs.unit_roundoff
    pairs = len(x1) * len(x1 if x2 is None else x2)
    total = (8 + min(32 * run, pairs)) * c
    for leaf in kernel.program().leaves:
        z = [leaf.features(x.double()) * leaf.scales for x in (x1, x2) if x is not None]
        everything = torch.cat(z)
        spread = (everything.amax(dim=0) - everything.amin(dim=0)).norm().item()
        r = torch.cdist(z[0], z[-1], compute_mode="donot_use_mm_for_euclid_dist")
        least, most = r[r > 0].min().item(), r.max().item()
        lost = max(1.0, 2 * min(spread**2, _expansion_reach(precision) ** 2) / least**2) if expansion else 1.0
        relative = (everything.shape[1] + 8) * c * lost
        relative += 4 * u * spread / least
        total += (2 + most**2) * relative
    return total


def _expansion_reach(precision: Precision) -> float:
    """Z of `entry_bound`: the largest |z| for which distances may come from the expansion."""
    c = precision.vectors.unit_roundoff
    return math.sqrt((HALF.unit_roundoff / 2 if precision.is_sixteen_bit else 64 * c) / (2 * c))


def _moved(spread: Tensor, precision: Precision, inputs: str) -> float:
    """Delta of `entry_bound`: how far the rounding of two points moves their distance."""
    c, f = precision.vectors.unit_roundoff, len(spread)
    reach = spread.norm().item()
    if inputs == "rounded":
        return float(2 * precision.inputs.unit_roundoff * reach)
    if inputs == "split" and precision.is_sixteen_bit:
        return float(2 * precision.inputs.unit_roundoff**2 * reach)
    step = 0.0
    if inputs == "fixed point" and precision.is_sixteen_bit and f >= FIXED_POINT_FEATURES:
        most = FIXED_POINT_REACH * HALF.unit_roundoff / math.sqrt(1 / 6)
        step = min(reach, most) / (FIXED_POINT_REACH - math.sqrt(f))
    return float(2 * c * reach + math.sqrt(f) * step)


def _leaf_bound(
    leaf: Leaf, points: list[Tensor], precision: Precision, inputs: str, expansion: bool
) -> tuple[Tensor, Tensor]:
    """The exact factor of a leaf and the bound on its error, both (n1, n2)."""
    c, least = precision.vectors.unit_roundoff, precision.vectors.smallest_normal
    z = [leaf.scaled(x) for x in points]
    z1, z2, f = z[0], z[-1], z[0].shape[1]
    everything = torch.cat(z)
    exact = leaf.between(z1, z2)
    if not leaf.is_stationary:
        u = precision.inputs.unit_roundoff if inputs == "rounded" else c
        s = everything.abs().amax(dim=0)
        rounding = u * ((z1.abs() @ s)[:, None] + z2.abs() @ s) + (u * s).square().sum()
        return exact, rounding + (f + 2) * c * (z1.abs() @ z2.abs().T) + 2 * f * least
    spread = everything.amax(dim=0) - everything.amin(dim=0)
    delta = _moved(spread, precision, inputs)
    r = torch.cdist(z1, z2, compute_mode="donot_use_mm_for_euclid_dist")
    near, far = (r - delta).clamp(min=0.0).square(), (r + delta).square()
    formed = far
    if expansion:
        norms = [(side - z2.mean(dim=0)).norm(dim=1) + delta for side in (z1, z2)]
        both = torch.maximum(norms[0][:, None], norms[1]) <= _expansion_reach(precision) + delta
        products = norms[0].square()[:, None] + norms[1].square()
        formed = torch.where(both, torch.maximum(far, products), far)
    evaluation = (f + 8) * c * formed
    if inputs == "split" and precision.is_sixteen_bit:
        evaluation = evaluation + 2 * precision.inputs.unit_roundoff**2 * formed
    near, far = (near - evaluation).clamp(min=0.0).sqrt(), (far + evaluation).sqrt()
    high, low = (_profile(leaf, distance) for distance in (near, far))
    polynomial = {"matern32": 1 + math.sqrt(3) * far, "matern52": 1 + math.sqrt(5) * far + 5 / 3 * far**2}
    return exact, high - low + 8 * c * high + least * polynomial.get(leaf.profile.name, torch.ones_like(far))


def _profile(leaf: Leaf, r: Tensor) -> Tensor:
    """The stationary profile at given distances, from the origin to points on a line."""
    return leaf.between(r.new_zeros(1, 1), r.reshape(-1, 1)).reshape(r.shape)
