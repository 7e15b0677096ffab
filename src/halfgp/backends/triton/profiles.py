"""Profiles in Triton: functions of q = -|psi_i - psi_j|² / 2, in which an exponential is a power of two."""

from __future__ import annotations

import triton
import triton.language as tl

LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def profile(q, shape, NAME: tl.constexpr):
    """The covariance of a leaf; of an inner product q itself."""
    if NAME == "rbf":
        value = tl.exp2(q)
    elif NAME == "matern12":
        value = tl.exp2(-tl.sqrt(-tl.minimum(q, 0.0)))
    elif NAME == "matern32":
        a = tl.sqrt(-tl.minimum(q, 0.0))
        value = (1.0 + LN2 * a) * tl.exp2(-a)
    elif NAME == "matern52":
        a = tl.sqrt(-tl.minimum(q, 0.0))
        value = (1.0 + a * (LN2 + LN2 * LN2 / 3.0 * a)) * tl.exp2(-a)
    elif NAME == "rational_quadratic":
        value = tl.exp2(-shape * log2_of_one_plus(-tl.minimum(q, 0.0)))
    else:
        value = q
    return value


@triton.jit
def profile_slope(q, value, shape, NAME: tl.constexpr):
    """The derivative of `profile` in q, from its value; of the cusp of Matérn-1/2 zero."""
    if NAME == "rbf":
        slope = LN2 * value
    elif NAME == "matern12":
        a = tl.sqrt(-tl.minimum(q, 0.0))
        slope = tl.where(a > 0.0, 0.5 * LN2 * value / tl.maximum(a, 1e-30), 0.0)
    elif NAME == "matern32":
        a = tl.sqrt(-tl.minimum(q, 0.0))
        slope = 0.5 * LN2 * LN2 * tl.exp2(-a)
    elif NAME == "matern52":
        a = tl.sqrt(-tl.minimum(q, 0.0))
        slope = LN2 * LN2 / 6.0 * (1.0 + LN2 * a) * tl.exp2(-a)
    elif NAME == "rational_quadratic":
        slope = shape * value / (1.0 - tl.minimum(q, 0.0))
    else:
        slope = tl.full(q.shape, 1.0, tl.float32)
    return slope


@triton.jit
def shape_slope(q, value):
    """The derivative of the rational quadratic in its shape, the distance held: -k (log(1+w) - w/(1+w))."""
    w = -tl.minimum(q, 0.0)
    # The difference is w²/2 - 2w³/3 + ...: where w is small, nothing of it would be left.
    s = tl.minimum(w, 0.03125)  # beyond which the powers of a large one would overflow
    series = s * s * (0.5 + s * (-2.0 / 3.0 + s * (0.75 + s * (-0.8 + s * (5.0 / 6.0 - s * 6.0 / 7.0)))))
    difference = LN2 * log2_of_one_plus(w) - w / (1.0 + w)
    return -value * tl.where(w < 0.03125, series, difference)


@triton.jit
def log2_of_one_plus(w):
    """log2(1 + w), with what the sum rounds off put back: a large shape would multiply it."""
    base = 1.0 + w
    found = tl.log2(base)
    return found + (w - (base - 1.0)) * (tl.exp2(-found) / LN2)  # over the base, without a division
