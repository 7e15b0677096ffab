"""How fast is K V, for a kernel matrix that is never stored, beside what users have today?

N = 20,000 standard normal points, RBF with lengthscale √d, t = 11 right-hand sides, float32 in and out.
Peers run in the same process, in turns with us. An entry rate is N² / seconds, symmetry used or not.
With this lengthscale no entry is denormal, so that nobody needs `torch.set_flush_denormal`; on data with many
entries near zero the peers are slower than here.
Two columns say how busy the engine keeps the machine, by the multiply-adds that it executes: per entry of K,
half of the d for the distance and of the PROFILE for its exponential, since a pair is evaluated once for two
entries, and t for the product. The first is a share of what independent multiply-adds reach here at best, the
second of what torch's sgemm reaches in the same turns on as many threads. 16-bit integers do two an
instruction, so that half with many features can pass 100 %.

    python benchmarks/products.py                  everything; writes products.json and products.png (minutes)
    python benchmarks/products.py --quick          a smoke run on few points; prints only
    python benchmarks/products.py --only memory    some sections; prints only, unless told an --output
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor

from halfgp import RBF, KernelOperator
from halfgp.doctor import examine
from halfgp.errors import HalfGPError
from halfgp.memory import resident_memory
from peers import PEERS, KeOps, Peer, TorchDense
from product_report import Claim, console, draw_chart, print_claims, print_rates
from timing import Timing, round_robin

HERE = Path(__file__).parent
RIGHT_HAND_SIDES = 11
DIMENSIONS = (3, 9, 26, 90)
PROFILE = 5  # multiply-adds of an RBF: the polynomial of 2^x; its floor, scaling and masking are not counted
SGEMM = 2048  # rows and columns: compute-bound, a fraction of a second
# How many times a peer's rate ours has to be, on two cores with AVX-512, by the number of features.
REQUIRED = {
    3: {"KeOps": 28, "HiGP": 16},
    9: {"KeOps": 33, "HiGP": 12, "torch chunks": 11},
    26: {"KeOps": 45, "HiGP": 10},
    90: {"KeOps": 80, "HiGP": 8, "torch chunks": 7, "ours, single": 1.25},
}
ERROR_BOUNDS = {"ours, half": 1e-3, "ours, single": 1e-5}
ROWS_CHECKED = 1000


@dataclass
class Run:
    """The size of a run and what it has found so far."""

    n: int
    rounds: int
    memory_n: int
    results: dict[str, Any] = field(default_factory=dict)
    claims: list[Claim] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)


def problem(n: int, d: int) -> tuple[Tensor, Tensor]:
    """Points (n, d) and right-hand sides (n, t), float32."""
    generator = torch.Generator().manual_seed(d)
    return torch.randn(n, d, generator=generator), torch.randn(n, RIGHT_HAND_SIDES, generator=generator)


class Truth:
    """K V by its definition in float64, on random rows."""

    def __init__(self, x: Tensor, v: Tensor) -> None:
        self._rows = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:ROWS_CHECKED]
        points = x.double()
        squared = torch.stack([(points - points[i]).square().sum(1) for i in self._rows.tolist()])
        self._product = torch.exp(squared / (-2 * x.shape[1])) @ v.double()

    def error(self, product: Tensor) -> float:
        """‖Y - K V‖ / ‖K V‖ in the Frobenius norm."""
        return float((product[self._rows].double() - self._product).norm() / self._product.norm())


def ours(x: Tensor, v: Tensor, **options: Any) -> Callable[[], Tensor]:
    """Our product with the kernel of this benchmark, bound and ready."""
    operator = KernelOperator(RBF(lengthscale=x.shape[1] ** 0.5), x, **options)
    return lambda: operator @ v


def build_peers(run: Run, kinds: tuple[type[Peer], ...], x: Tensor, v: Tensor) -> dict[str, Peer]:
    """The peers that are installed here; the others are noted by name."""
    scaled = x / x.shape[1] ** 0.5
    built: dict[str, Peer] = {}
    for kind in kinds:
        try:
            built[kind.name] = kind(scaled, v)
        except (ImportError, OSError, RuntimeError, MemoryError) as reason:
            run.skipped[kind.name] = f"{type(reason).__name__}: {reason}".splitlines()[0]
    return built


def peak_multiply_adds() -> float | None:
    """Vector multiply-adds in float32 per second on all threads, or None without the compiled backend."""
    try:
        from halfgp.backends import cpu
    except ImportError:
        return None
    return max(float(cpu.peak_multiply_adds()) for _ in range(5))  # a busy moment must not pass for the peak


def multiply_adds_per_entry(d: int) -> float:
    """What the engine executes for one entry of a symmetric K with d features."""
    return (d + PROFILE) / 2 + RIGHT_HAND_SIDES


def sgemm() -> Callable[[], Tensor]:
    """A product of two dense float32 matrices on torch's threads, SGEMM³ multiply-adds."""
    a, b = torch.randn(2, SGEMM, SGEMM, generator=torch.Generator().manual_seed(0))
    out = torch.empty(SGEMM, SGEMM)
    return lambda: torch.mm(a, b, out=out)


def rates(run: Run) -> None:
    """On the fly, against every peer, at each number of features; with errors and shares of the peak."""
    peak = peak_multiply_adds()
    dense = sgemm()
    table: list[dict[str, Any]] = []
    for d in DIMENSIONS:
        x, v = problem(run.n, d)
        peers = build_peers(run, PEERS, x, v)
        candidates: dict[str, Callable[[], Tensor]] = {
            "ours, half": ours(x, v, precision="half", storage="on_the_fly"),
            "ours, single": ours(x, v, precision="single", storage="on_the_fly"),
            **peers,
        }
        truth = Truth(x, v)
        errors = {name: truth.error(product()) for name, product in candidates.items()}
        timings = round_robin({**candidates, "sgemm": dense}, rounds=run.rounds)
        dense_rate = SGEMM**3 / timings.pop("sgemm").best
        for peer in peers.values():
            peer.close()
        for name, timing in timings.items():
            rate = run.n**2 / timing.best
            row = {"d": d, "name": name, "rate": rate, "error": errors[name]}
            if name.startswith("ours"):
                executed = rate * multiply_adds_per_entry(d)
                row |= {
                    "multiply_adds": executed,
                    "share_of_peak": executed / peak if peak else None,
                    "share_of_sgemm": executed / dense_rate,
                }
            table.append(row | {"seconds": timing.as_dict()})
        run.results.setdefault("sgemm_multiply_adds", {})[d] = dense_rate
        claim_rates(run, d, timings, errors)
        print_rates(d, run.n, [row for row in table if row["d"] == d])
    run.results["rates"] = table
    run.results["peak_multiply_adds"] = peak


def claim_rates(run: Run, d: int, timings: dict[str, Timing], errors: dict[str, float]) -> None:
    """What was asked for at this number of features, beside what came."""
    for peer, required in REQUIRED[d].items():
        if peer in timings:
            ratio = timings[peer].best / timings["ours, half"].best
            run.claims.append(
                Claim(f"d = {d}: half on the fly over {peer}", ratio, "at least", required, "x")
            )
    for name, bound in ERROR_BOUNDS.items():
        run.claims.append(Claim(f"d = {d}: relative error of {name}", errors[name], "at most", bound, ""))


def stored(run: Run) -> None:
    """Entries held as float16 against torch's dense float32 product, d = 9, with the memory of each."""
    x, v = problem(run.n, 9)
    memory: dict[str, float] = {}
    before = resident_memory()
    peers = build_peers(run, (TorchDense,), x, v)
    memory[TorchDense.name] = resident_memory() - before
    before = resident_memory()
    operator = KernelOperator(RBF(lengthscale=3.0), x, precision="half", storage="stored")
    product = operator @ v  # entries may be filled at the first product: count and warm them
    memory["ours, stored"] = resident_memory() - before
    candidates: dict[str, Callable[[], Tensor]] = {"ours, stored": lambda: operator @ v, **peers}
    timings = round_robin(candidates, rounds=max(run.rounds, 3))
    for peer in peers.values():
        peer.close()
    run.results["stored"] = {
        "d": 9,
        "storage": operator.storage,
        "error": Truth(x, v).error(product),
        "resident_bytes": memory,
        "rate": {name: run.n**2 / timing.best for name, timing in timings.items()},
        "seconds": {name: timing.as_dict() for name, timing in timings.items()},
    }
    speed = timings[TorchDense.name].best / timings["ours, stored"].best
    run.claims.append(Claim("stored float16 over torch dense float32", speed, "at least", 1.6, "x"))
    if min(memory.values()) > 0:  # few points may fit into memory that the process already had
        # Half of torch's entries, and 2 % for what is not entries.
        share = memory["ours, stored"] / memory[TorchDense.name]
        run.claims.append(Claim("memory of stored float16 over torch's", share, "at most", 0.52, "x"))


def gradient(run: Run) -> None:
    """One pass for all hyperparameters against one product, for one lengthscale and for one per feature."""
    table: list[dict[str, Any]] = []
    for d in DIMENSIONS:
        x, v = problem(run.n, d)
        u = v.flip(1).contiguous()
        for kind, lengthscale in (("one lengthscale", d**0.5), (f"{d} lengthscales", [d**0.5] * d)):
            kernel = 1.5 * RBF(lengthscale=lengthscale)
            operator = KernelOperator(kernel, x, precision="half", storage="on_the_fly")
            candidates: dict[str, Callable[[], object]] = {
                "product": lambda op=operator, v=v: op @ v,
                "gradient": lambda op=operator, u=u, v=v: op.bilinear_gradient(u, v),
            }
            timings = round_robin(candidates, rounds=run.rounds)
            ratio = timings["gradient"].best / timings["product"].best
            seconds = {name: timing.as_dict() for name, timing in timings.items()}
            table.append({"d": d, "kernel": kind, "ratio": ratio, "seconds": seconds})
            run.claims.append(
                Claim(f"d = {d}: gradient pass ({kind}), in products", ratio, "at most", 3, "x")
            )
    run.results["gradient"] = table


def avx2(run: Run) -> None:
    """The AVX2 build, forced, against KeOps at d = 9."""
    x, v = problem(run.n, 9)
    try:
        from halfgp.backends.cpu import CpuBackend

        backend = CpuBackend(instruction_set="avx2")
        product = ours(x, v, precision="half", storage="on_the_fly", backend=backend)
    except (ImportError, HalfGPError) as reason:
        run.skipped["AVX2 build"] = str(reason).splitlines()[0]
        return
    peers = build_peers(run, (KeOps,), x, v)
    error = Truth(x, v).error(product())
    timings = round_robin({"ours, half, AVX2": product, **peers}, rounds=run.rounds)
    run.results["avx2"] = {
        "d": 9,
        "error": error,
        "rate": {name: run.n**2 / timing.best for name, timing in timings.items()},
        "seconds": {name: timing.as_dict() for name, timing in timings.items()},
    }
    if "KeOps" in timings:
        ratio = timings["KeOps"].best / timings["ours, half, AVX2"].best
        run.claims.append(Claim("d = 9: half with AVX2 forced over KeOps", ratio, "at least", 12, "x"))
    run.claims.append(Claim("d = 9: relative error with AVX2 forced", error, "at most", 1e-3, ""))


def memory(run: Run) -> None:
    """Memory beside inputs and outputs of one large product on the fly, in a process of its own."""
    command = [sys.executable, str(HERE / "product_memory.py"), str(run.memory_n), "9", "16"]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode:
        run.skipped["memory"] = (finished.stderr.strip() or "no message").splitlines()[-1]
        return
    found = json.loads(finished.stdout)
    run.results["memory"] = found
    what = f"memory beside inputs and outputs, N = {run.memory_n:,}"
    run.claims.append(Claim(what, found["extra_bytes"] / 1e6, "at most", 200, " MB"))


SECTIONS: dict[str, Callable[[Run], None]] = {
    "rates": rates,
    "stored": stored,
    "gradient": gradient,
    "avx2": avx2,
    "memory": memory,
}


def main(
    quick: Annotated[bool, typer.Option("--quick", help="Few points, one round: does it run?")] = False,
    only: Annotated[str, typer.Option("--only", help=f"Sections, by commas: {', '.join(SECTIONS)}.")] = "",
    output: Annotated[
        Path | None, typer.Option("--output", help="Where to write the JSON and the chart.")
    ] = None,
) -> None:
    """Measure kernel products beside KeOps, HiGP and torch."""
    chosen = [name.strip() for name in only.split(",") if name.strip()] or list(SECTIONS)
    unknown = sorted(set(chosen) - set(SECTIONS))
    if unknown:
        raise typer.BadParameter(f"no section {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    run = Run(4000, 1, 20_000) if quick else Run(20_000, 4, 500_000)
    for name in chosen:
        with console.status(f"measuring: {name}"):
            SECTIONS[name](run)
    print_claims(run.claims, run.skipped)
    if output is None and (quick or only):
        return
    directory = output or HERE
    directory.mkdir(parents=True, exist_ok=True)
    document = {
        "n": run.n,
        "t": RIGHT_HAND_SIDES,
        "rounds": run.rounds,
        "machine": examine().as_dict(),
        "skipped": run.skipped,
        "claims": [claim.as_dict() for claim in run.claims],
        **run.results,
    }
    (directory / "products.json").write_text(json.dumps(document, indent=1) + "\n")
    if "rates" in run.results:
        draw_chart(run.results["rates"], run.n, RIGHT_HAND_SIDES, directory / "products.png")


if __name__ == "__main__":
    typer.run(main)
