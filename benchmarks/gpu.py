"""Kernel products on a GPU, beside KeOps in half and GPyTorch: `python benchmarks/gpu.py --json gpu.json`.

On any CUDA or ROCm card; needs `pip install 'halfgp[gpu,bench]'`. A peer that is not installed is left out,
and said to be. `--dry` computes everything tiny on the CPU, interpreted: its times mean nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from halfgp import RBF, KernelOperator

COLUMNS = 16


@dataclass(frozen=True)
class Row:
    """One measurement: entries of K a second, and the error relative to float64 on some rows."""

    device: str
    who: str
    kernel: str
    gradient: bool
    rows: int
    features: int
    columns: int
    seconds: float
    entries_per_second: float
    error: float


def seconds(run: Callable[[], Any], repeats: int) -> float:
    """The least of some, after one that compiles."""
    run()
    found = []
    for _ in range(repeats):
        _wait()
        start = time.perf_counter()
        run()
        _wait()
        found.append(time.perf_counter() - start)
    return min(found)


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def triton(fast: bool = False) -> Any:
    """Our backend, imported when it is known whether Triton is to interpret."""
    from halfgp.backends.triton import TritonBackend

    return TritonBackend(fast)


def ours(precision: str, fast: bool) -> Callable[[Tensor, Tensor], Callable[[], Tensor]]:
    def prepare(x: Tensor, v: Tensor) -> Callable[[], Tensor]:
        operator = KernelOperator(RBF(1.0), x, precision=precision, backend=triton(fast))
        return lambda: operator @ v

    return prepare


def keops(dtype: torch.dtype) -> Callable[[Tensor, Tensor], Callable[[], Tensor]]:
    def prepare(x: Tensor, v: Tensor) -> Callable[[], Tensor]:
        from pykeops.torch import LazyTensor

        narrow, w = x.to(dtype), v.to(dtype)
        distances = ((LazyTensor(narrow[:, None]) - LazyTensor(narrow[None])) ** 2).sum(-1)
        return lambda: (-distances / 2).exp() @ w

    return prepare


def gpytorch(x: Tensor, v: Tensor) -> Callable[[], Tensor]:
    from gpytorch.kernels import RBFKernel

    kernel = RBFKernel().to(x.device)
    kernel.lengthscale = 1.0
    single, w = x.float(), v.float()
    return lambda: kernel(single).matmul(w).detach()


CONTESTANTS: dict[str, Callable[[Tensor, Tensor], Callable[[], Tensor]]] = {
    "halfgp, half": ours("half", False),
    "halfgp, half, fast": ours("half", True),
    "halfgp, bfloat16": ours("bfloat16", False),
    "halfgp, single": ours("single", False),
    "KeOps, half": keops(torch.float16),
    "KeOps, single": keops(torch.float32),
    "GPyTorch, single": gpytorch,
}


def measure(n: int, d: int, device: str, repeats: int, only: str) -> list[Row]:
    """Products of everybody, and our gradient pass."""
    x = torch.randn(n, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(device)
    v = torch.randn(n, COLUMNS, generator=torch.Generator().manual_seed(1)).to(device)
    some = x[:64]
    exact = torch.exp(-0.5 * torch.cdist(some, x).square()) @ v.double()
    name = torch.cuda.get_device_name() if device == "cuda" else "dry run on the CPU: times mean nothing"
    rows = []
    for who, prepare in CONTESTANTS.items():
        if not who.startswith(only):
            continue
        try:
            run = prepare(x, v)
            took = seconds(run, repeats)
        except (ImportError, RuntimeError) as problem:  # not installed, or out of memory: the others go on
            print(f"{who} is left out: {type(problem).__name__}: {str(problem).splitlines()[0][:90]}")
            continue
        error = float((run()[:64].double() - exact).abs().max() / exact.abs().max())
        rows.append(Row(name, who, "rbf", False, n, d, COLUMNS, took, n * n / took, error))
    operator = KernelOperator(RBF([1.0] * d), x, precision="half", backend=triton())
    took = seconds(lambda: operator.bilinear_gradient(v, v), repeats)
    rows.append(Row(name, "halfgp, half", "rbf", True, n, d, COLUMNS, took, n * n / took, float("nan")))
    return rows


def show(rows: list[Row]) -> None:
    print(
        f"{rows[0].device}\n| | pass | rows | features | entries/s | x KeOps half | error |\n|" + "---|" * 7
    )
    for row in rows:
        same = [r for r in rows if (r.rows, r.features) == (row.rows, row.features)]
        peer = next((r.entries_per_second for r in same if r.who == "KeOps, half"), None)
        ratio = "" if peer is None else f"{row.entries_per_second / peer:.2g}"
        kind = "gradient" if row.gradient else "product"
        cells = (row.who, kind, f"{row.rows:,}", row.features, f"{row.entries_per_second:.2e}", ratio)
        print("| " + " | ".join(map(str, (*cells, f"{row.error:.1e}"))) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", metavar="FILE", help="write the rows there too")
    parser.add_argument("--dry", action="store_true", help="tiny, on the CPU, interpreted")
    parser.add_argument("--only", default="", help="contestants whose name begins so")
    arguments = parser.parse_args()
    dry = arguments.dry
    if dry:
        os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported
    elif not torch.cuda.is_available():
        raise SystemExit("torch sees no GPU here. Use --dry to try the program, or a machine with one.")
    sizes = [(200, 3)] if dry else [(n, d) for n in (20_000, 100_000) for d in (3, 9, 26, 90)]
    device, repeats = ("cpu", 1) if dry else ("cuda", 5)
    rows = [row for n, d in sizes for row in measure(n, d, device, repeats, arguments.only)]
    show(rows)
    if arguments.json:
        # NaN, for what is not measured, is no JSON.
        plain = [{k: None if v != v else v for k, v in asdict(row).items()} for row in rows]
        Path(arguments.json).write_text(json.dumps(plain, indent=1) + "\n")


if __name__ == "__main__":
    main()
