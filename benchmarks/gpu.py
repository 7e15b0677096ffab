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
FEW, SHORT = 3, 0.1  # features, and a lengthscale, with which most entries are zero


@dataclass(frozen=True)
class Row:
    """One measurement: entries of K a second, and the error relative to float64 on some rows.

    Those that are `skipped`, a share, count as if they were computed: all are computed where that is 0.
    """

    device: str
    target: str  # as in the rows of gpu_codegen.py
    who: str
    kernel: str
    gradient: bool
    rows: int
    features: int
    columns: int
    seconds: float
    entries_per_second: float
    error: float
    skipped: float = 0.0


def timed(run: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """The least seconds of some, after one that compiles, and what that one found."""
    result = run()
    found = []
    for _ in range(repeats):
        _wait()
        start = time.perf_counter()
        run()
        _wait()
        found.append(time.perf_counter() - start)
    return min(found), result


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def triton(fast: bool = False) -> Any:
    """Our backend, imported when it is known whether Triton is to interpret."""
    from halfgp.backends.triton import TritonBackend

    return TritonBackend(fast)


def ours(precision: str, fast: bool) -> Callable[[Tensor, Tensor], Callable[[], Tensor]]:
    def prepare(x: Tensor, v: Tensor) -> Callable[[], Tensor]:
        operator = KernelOperator(
            RBF(1.0), x, precision=precision, backend=triton(fast), truncate=False
        )  # as the others, who look at every entry
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


def described(device: str) -> tuple[str, str]:
    """Its name, and what Triton compiles for: "sm80" and the like, or the architecture of an AMD card."""
    if device != "cuda":
        return "dry run on the CPU: times mean nothing", "interpreted"
    card = torch.cuda.get_device_properties()
    return card.name, card.gcnArchName if torch.version.hip else f"sm{card.major}{card.minor}"


def measure(n: int, d: int, device: str, repeats: int, only: tuple[str, ...]) -> list[Row]:
    """Products of everybody, and our gradient pass."""
    x = torch.randn(n, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(device)
    v = torch.randn(n, COLUMNS, generator=torch.Generator().manual_seed(1)).to(device)
    some = x[:64]
    exact = torch.exp(-0.5 * torch.cdist(some, x).square()) @ v.double()
    place = described(device)
    rows = []
    for who, prepare in CONTESTANTS.items():
        if not who.startswith(only):
            continue
        try:
            run = prepare(x, v)
            took, found = timed(run, repeats)
        except (ImportError, RuntimeError) as problem:  # not installed, or out of memory: the others go on
            print(f"{who} is left out: {type(problem).__name__}: {str(problem).splitlines()[0][:90]}")
            continue
        error = float((found[:64].double() - exact).abs().max() / exact.abs().max())
        rows.append(Row(*place, who, "rbf", False, n, d, COLUMNS, took, n * n / took, error))
    operator = KernelOperator(RBF([1.0] * d), x, precision="half", backend=triton(), truncate=False)
    took, _ = timed(lambda: operator.bilinear_gradient(v, v), repeats)
    rows.append(Row(*place, "halfgp, half", "rbf", True, n, d, COLUMNS, took, n * n / took, float("nan")))
    if d <= FEW:
        rows += [zeros(x, v, place, skip, repeats) for skip in (False, True)]
    return rows


def zeros(x: Tensor, v: Tensor, place: tuple[str, str], skip: bool, repeats: int) -> Row:
    """A product with a short lengthscale, most of whose entries are zero, which are passed by or not."""
    (n, d), kernel = x.shape, RBF(SHORT)
    operator = KernelOperator(kernel, x, precision="half", backend=triton(), truncate=skip)
    took, found = timed(lambda: operator @ v, repeats)
    some = x[:64]
    exact = torch.exp(-0.5 * torch.cdist(some / SHORT, x / SHORT).square()) @ v.double()
    error = float((found[:64].double() - exact).abs().max() / exact.abs().max())
    who = "halfgp, half, zeros passed by" if skip else "halfgp, half, zeros computed"
    label = f"rbf, lengthscale {SHORT}"
    return Row(*place, who, label, False, n, d, COLUMNS, took, n * n / took, error, operator.skipped)


def show(rows: list[Row]) -> None:
    print(
        f"{rows[0].device}\n| | pass | rows | features | entries/s | x KeOps half | error | skipped |\n|"
        + "---|" * 8
    )
    for row in rows:
        same = [r for r in rows if (r.kernel, r.rows, r.features) == (row.kernel, row.rows, row.features)]
        peer = next((r.entries_per_second for r in same if r.who == "KeOps, half"), None)
        ratio = "" if peer is None else f"{row.entries_per_second / peer:.2g}"
        kind = "gradient" if row.gradient else "product"
        cells = (row.who, kind, f"{row.rows:,}", row.features, f"{row.entries_per_second:.2e}", ratio)
        print("| " + " | ".join(map(str, (*cells, f"{row.error:.1e}", f"{row.skipped:.0%}"))) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", metavar="FILE", help="write the rows there too")
    parser.add_argument("--dry", action="store_true", help="tiny, on the CPU, interpreted")
    parser.add_argument("--only", action="append", help="contestants whose name begins so; may be repeated")
    arguments = parser.parse_args()
    dry = arguments.dry
    if dry:
        os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported
    elif not torch.cuda.is_available():
        raise SystemExit("torch sees no GPU here. Use --dry to try the program, or a machine with one.")
    sizes = [(200, 3)] if dry else [(n, d) for n in (20_000, 100_000) for d in (3, 9, 26, 90)]
    only = tuple(arguments.only or [""])
    device, repeats = ("cpu", 1) if dry else ("cuda", 5)
    rows = [row for n, d in sizes for row in measure(n, d, device, repeats, only)]
    show(rows)
    if arguments.json:
        # NaN, for what is not measured, is no JSON.
        plain = [{k: None if v != v else v for k, v in asdict(row).items()} for row in rows]
        Path(arguments.json).write_text(json.dumps(plain, indent=1) + "\n")


if __name__ == "__main__":
    main()
