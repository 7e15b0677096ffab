"""Run one large product on the fly and print, as JSON, the memory it took beside its inputs and outputs.

    python benchmarks/product_memory.py N D T

Meant to run in a process of its own: the highest resident size of a process cannot be lowered again.
"""

from __future__ import annotations

import json
import sys
import time

import torch

from halfgp import RBF, KernelOperator
from halfgp.memory import peak_memory, resident_memory


def main() -> None:
    n, d, t = (int(argument) for argument in sys.argv[1:4])
    kernel = RBF(lengthscale=d**0.5)
    # A small product first, so that libraries and threads are loaded before the count begins.
    KernelOperator(kernel, torch.randn(500, d), precision="half", storage="on_the_fly") @ torch.randn(500, t)
    x, v = torch.randn(n, d), torch.randn(n, t)
    before = resident_memory()  # not the peak so far, which would hide what fits under it
    start = time.perf_counter()
    operator = KernelOperator(kernel, x, precision="half", storage="on_the_fly")
    product = operator @ v
    seconds = time.perf_counter() - start
    extra = peak_memory() - before - product.nbytes
    size = {"n": n, "d": d, "t": t}
    print(json.dumps(size | {"seconds": seconds, "rate": n**2 / seconds, "extra_bytes": extra}))


if __name__ == "__main__":
    main()
