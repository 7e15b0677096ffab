"""What KeOps spends on compiling a kernel's product and gradient, measured in processes of their own."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import time

PACKAGES = ("pykeops",)
TIMEOUT = 600.0  # seconds
# A product with eleven vectors and its gradient, in 26 features: what a step of training needs. Few rows,
# for KeOps compiles for the number of features and vectors, whatever the rows.
PROGRAM = """
import torch
from pykeops.torch import LazyTensor
x, v = torch.randn(64, 26, requires_grad=True), torch.randn(64, 11)
rows, columns = LazyTensor(x[:, None, :]), LazyTensor(x[None, :, :])
((-((rows - columns) ** 2).sum(-1) / 2).exp() @ v).sum().backward()
"""


def is_installed() -> bool:
    """Whether KeOps is."""
    return importlib.util.find_spec("pykeops") is not None


def compilation_seconds() -> float:
    """A first run, which compiles, less a second one, which finds everything compiled.

    Raises:
        RuntimeError: a run failed, for want of a compiler, say.
    """
    with tempfile.TemporaryDirectory() as folder:
        first, second = (_run(folder) for _ in range(2))
    return first - second


def _run(folder: str) -> float:
    """Seconds of the program, with a cache of compiled kernels of its own."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | {"KEOPS_CACHE_FOLDER": folder},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"KeOps failed: {done.stderr.strip().splitlines()[-1:]}")
    return time.perf_counter() - start
