"""One kernel product in half precision beside the same in plain torch: how much faster, and how exact?"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from halfgp import RBF, KernelOperator

D, T = 9, 11
LENGTHSCALE = D**0.5


def torch_chunks(x: Tensor, v: Tensor, rows: int = 1024) -> Tensor:
    """exp(-|x_i - x_j|² / (2 l²)) V in torch, some rows at a time."""
    z = x / LENGTHSCALE
    halved = -0.5 * z.square().sum(1)
    parts = []
    for start in range(0, len(z), rows):
        some = slice(start, start + rows)
        block = torch.addmm(halved, z[some], z.T).add_(halved[some, None]).clamp_(max=0).exp_()
        parts.append(block @ v)
    return torch.cat(parts)


def best_of(run: Callable[[], Tensor], times: int) -> tuple[float, Tensor]:
    """The shortest of some runs in seconds, and the result."""
    shortest, result = float("inf"), torch.empty(0)
    for _ in range(times):
        start = time.perf_counter()
        result = run()
        shortest = min(shortest, time.perf_counter() - start)
    return shortest, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default=20_000, type=int, help="points")
    n = parser.parse_args().rows
    generator = torch.Generator().manual_seed(0)
    x, v = torch.randn(n, D, generator=generator), torch.randn(n, T, generator=generator)
    rows = torch.randperm(n, generator=generator)[:500]
    kernel = RBF(lengthscale=LENGTHSCALE)
    truth = kernel(x[rows].double(), x.double()) @ v.double()

    table = Table(title=f"K V: RBF, N = {n:,}, d = {D}, t = {T}", title_justify="left")
    for heading in ("", "seconds", "10⁹ entries/s", "speed-up", "relative error"):
        table.add_column(heading, justify="left" if not heading else "right")
    baseline, product = best_of(lambda: torch_chunks(x, v), 3)
    seconds = {"torch row chunks": (baseline, product)}
    for precision in ("single", "half"):
        operator = KernelOperator(kernel, x, precision=precision)
        seconds[f"halfgp, {precision} ({operator.backend})"] = best_of(lambda op=operator: op @ v, 5)
    for name, (taken, product) in seconds.items():
        error = float((product[rows].double() - truth).norm() / truth.norm())
        rate, speed_up = n**2 / taken / 1e9, baseline / taken
        table.add_row(name, f"{taken:.3f}", f"{rate:.2f}", f"{speed_up:.1f}x", f"{error:.1e}")
    Console().print(table)


if __name__ == "__main__":
    main()
