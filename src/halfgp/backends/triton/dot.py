"""One product of two tiles, on tensor cores where the format has them."""

from __future__ import annotations

import triton
import triton.language as tl

INTERPRETED = tl.constexpr(bool(triton.knobs.runtime.interpret))


@triton.jit
def dot(a, b, sums):
    """Sums + a b in float32. Single stays single: tf32, the default elsewhere, has 11 digits."""
    if INTERPRETED:  # it multiplies the bits of bfloat16; in float32 the products of both are the same
        sums = tl.dot(a.to(tl.float32), b.to(tl.float32), acc=sums)
    else:
        sums = tl.dot(a, b, acc=sums, input_precision="ieee")
    return sums
