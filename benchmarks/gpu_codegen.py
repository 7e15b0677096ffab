"""Machine code of the GPU kernels, compiled without a GPU: `python benchmarks/gpu_codegen.py --json FILE`.

For each kernel and target: the instructions of tensor cores, registers, spills, shared memory, instructions
an entry, and what a roofline makes of these. Nothing here was run on a GPU: every rate is an estimate.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

if os.environ.get("TRITON_INTERPRET"):
    raise SystemExit("TRITON_INTERPRET is set, and interpreted kernels cannot be compiled. Unset it.")

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, CompiledKernel

from halfgp import RBF, Linear, Matern, Periodic, RationalQuadratic
from halfgp.backends.triton.description import describe
from halfgp.backends.triton.gradient import sums_of
from halfgp.backends.triton.gradient_kernel import gradient_kernel
from halfgp.backends.triton.matrix import FAST_TERMS, TERMS
from halfgp.backends.triton.points import Side
from halfgp.backends.triton.product import BLOCK_TILE, TRITON_TYPES, Terms
from halfgp.backends.triton.product_kernel import block_kernel, product_kernel
from halfgp.backends.triton.runs import ADDED, RUN
from halfgp.backends.triton.runs_kernel import add_kernel
from halfgp.backends.triton.tiles import Tile, gradient_tiles, product_tiles
from halfgp.kernels import Kernel
from halfgp.precision import PRESETS, SINGLE

FEATURES, MANY = 9, 90
COLUMNS = 16
SUM_WARPS = 4  # Triton's default
KERNELS: dict[str, Kernel] = {
    "rbf": RBF([1.0] * FEATURES),
    "matern12": Matern(0.5, [1.0] * FEATURES),
    "matern32": Matern(1.5, [1.0] * FEATURES),
    "matern52": Matern(2.5, [1.0] * FEATURES),
    "rational_quadratic": RationalQuadratic(1.0, [1.0] * FEATURES),
    "periodic": Periodic(1.0, 1.0),
    "linear": Linear(),
    "rbf + matern32": RBF([1.0] * FEATURES) + 0.5 * Matern(1.5, [1.0] * FEATURES),
    "four leaves": (RBF([1.0] * FEATURES) + Linear()) * (Matern(2.5) + Matern(0.5)),
    "rbf of many features": RBF([1.0] * MANY),
}
TENSOR_CORE = re.compile(r"\b(HGMMA|HMMA)\.")
KEOPS_ENTRIES = 4.5e11  # a second, in half, read off the paper's plot for a V100


@dataclass(frozen=True)
class Device:
    """What a roofline needs to know: per second and device, from the vendor's tables."""

    name: str
    multiprocessors: int
    hertz: float
    registers: int = 65536  # of a multiprocessor
    shared: int = 0  # bytes of a multiprocessor
    issue: int = 4  # instructions of warps a cycle
    special: int = 16  # exponentials, roots and logarithms of threads a cycle

    def entries(self, instructions: float, special: float) -> float:
        """Entries a second, bound by issue or by special functions, whichever is slower."""
        cycles = max(instructions / (32 * self.issue), special / self.special)
        return self.multiprocessors * self.hertz / cycles


DEVICES = {
    80: Device("A100", 108, 1.41e9, shared=164 * 1024),
    90: Device("H100", 132, 1.83e9, shared=228 * 1024),
}


@dataclass(frozen=True)
class Row:
    """One kernel on one target."""

    kernel: str
    target: str
    precision: str
    kind: str
    gradient: bool
    columns: int
    tensor_core: str
    registers: int
    spills: int
    shared_bytes: int
    blocks_per_multiprocessor: int
    instructions_per_entry: float
    estimated_entries_per_second: float | None  # none of sums, which wait for memory
    estimated_ratio_to_keops_half: float | None


def compile_kernel(
    kernel: Kernel, features: int, precision: str, arch: int, kind: str, columns: int
) -> tuple[CompiledKernel, Tile, int]:
    """The machine code of a pass, of one of `KINDS`, with the first tile of the candidates.

    And how often its inner loops are gone through, over features one by one or in chunks.
    """
    fmt = SINGLE if precision == "single" else PRESETS[precision.removesuffix(" fast")].inputs
    terms: Terms = (FAST_TERMS if precision.endswith("fast") else TERMS)[fmt]
    program = kernel.program()
    x = torch.zeros(1, features, dtype=torch.float64)
    widths = [leaf.features(x).shape[1] for leaf in program.leaves]
    alone = len(program.leaves) == 1 and program.leaves[0].is_stationary
    units = not all(leaf.is_stationary for leaf in program.leaves)
    sixteen_bit = fmt is not SINGLE
    form = describe(
        program,
        widths,
        expand=sixteen_bit,
        normalised=sixteen_bit and not alone,
        cut=sixteen_bit,
        rounded=sixteen_bit,
        units=sixteen_bit and units,
    )
    pointer = {torch.float16: "*fp16", torch.bfloat16: "*bf16", torch.float32: "*fp32"}[fmt.dtype]
    side = Side("*fp32", pointer, "*fp32", "*fp32", "i32", "i32")
    listed = kind.startswith("live")
    lists = {"spans": "*i64", "tiles": "*i32"} if listed else {"spans": "*fp32", "tiles": "*fp32"}
    integers = dict.fromkeys(("column_first", "column_end", "run", "row_first", "height"), "i32")
    runs = {**lists, **integers}
    common: dict[str, Any] = {"left": side, "right": side, "numbers": "*fp32"}
    trips = features
    shape: dict[str, Any] = {"SQUARE": kind != "rectangle", "T": columns, "LISTED": listed}
    if kind.endswith("gradient"):
        tile, function = gradient_tiles(form)[0], gradient_kernel
        types = {**common, "us": pointer, "vs": pointer, "out": "*fp32", **runs}
        constants: dict[str, Any] = {"SUMS": sums_of(form, program, False), "TERMS": terms.vectors}
    elif kind == "sum":
        tile, function, shape = Tile(ADDED, 1, SUM_WARPS), add_kernel, {}
        types = {"sums": "*fp64", "partial": "*fp32", "size": "i32", "count": "i32"}
        constants = {"ADDED": ADDED}
    elif kind == "block":
        tile, function, shape = BLOCK_TILE, block_kernel, {}
        types = {**common, "out": "*fp32"}
        constants = {"TERMS": terms, "DTYPE": TRITON_TYPES[fmt.dtype]}
    else:
        exact = not any(leaf.expanded for leaf in form.leaves)
        tile, function = product_tiles(form, columns, exact)[0], product_kernel
        if all(leaf.expanded for leaf in form.leaves):
            trips = max(leaf.width // leaf.chunk for leaf in form.leaves)
        types = {**common, "vectors": pointer, "out": "*fp32", **runs}
        constants = {"TERMS": terms, "EXACT": exact}
    if kind != "sum":
        constants |= {"FORM": form, "I": tile.rows, "J": tile.columns, **shape}
    signature = {name: types.get(name, "constexpr") for name in function.arg_names}
    divisible = [["tt.divisibility", 16]]  # as launches find them
    attributes = {
        path: divisible
        for k, name in enumerate(function.arg_names)
        if name in types
        for path in ([(k, part) for part in range(len(side))] if types[name] is side else [(k,)])
    }
    source = ASTSource(function, signature, constexprs=constants, attrs=attributes)
    options = {"num_warps": tile.warps, "num_stages": 2, "enable_fp_fusion": True}
    return triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options), tile, trips


def row(name: str, precision: str, arch: int, kind: str, columns: int) -> Row:
    """What the machine code of one kernel says."""
    features = MANY if name == "rbf of many features" else FEATURES
    compiled, tile, trips = compile_kernel(KERNELS.get(name, RBF()), features, precision, arch, kind, columns)
    code, usage = disassembled(compiled)
    registers, stack = (int(re.search(rf"{field}:(\d+)", usage)[1]) for field in ("REG", "STACK"))  # type: ignore[index]
    found = TENSOR_CORE.search("\n".join(text for _, text in code))
    body = repeated(code, trips) if kind == "block" else main_loop(code, trips)
    entries = tile.rows * tile.columns / (32 * tile.warps)  # of a thread
    if kind == "sum":
        entries *= RUN / columns  # each number that is added comes from a run of them
    special = sum("MUFU" in text for text in body) / entries
    instructions = len(body) / entries
    device = DEVICES[arch]
    threads = 32 * tile.warps
    fits = device.registers // (-(-registers // 8) * 8 * threads)
    blocks = min(fits, device.shared // max(compiled.metadata.shared + 1024, 1), 2048 // threads)
    rate = device.entries(instructions, special)
    return Row(
        name,
        f"sm{arch}",
        precision,
        kind,
        kind.endswith("gradient"),
        columns,
        found[1] if found else "",
        registers,
        stack + sum(text.startswith(("STL", "LDL")) for _, text in code),
        compiled.metadata.shared,
        blocks,
        round(instructions, 2),
        None if kind == "sum" else float(f"{rate:.2g}"),
        None if kind == "sum" else float(f"{rate / KEOPS_ENTRIES:.2g}"),
    )


def disassembled(compiled: CompiledKernel) -> tuple[list[tuple[int, str]], str]:
    """Addresses and instructions, and what the compiler says of resources."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "kernel.cubin"
        path.write_bytes(compiled.asm["cubin"])
        tool = triton.knobs.nvidia.cuobjdump.path
        sass = subprocess.run([tool, "-sass", path], capture_output=True, check=True, text=True).stdout
        usage = subprocess.run([tool, "-res-usage", path], capture_output=True, check=True, text=True).stdout
    lines = re.findall(r"/\*([0-9a-f]{4,5})\*/\s+(?:@!?\w+ +)?([^;]*);", sass)
    return [(int(address, 16), text.strip()) for address, text in lines], usage


def loops_of(code: list[tuple[int, str]]) -> list[tuple[int, int]]:
    """First and last addresses of every loop."""
    return sorted(
        (int(target[1], 16), address)
        for address, text in code
        if (target := re.search(r"^BRA.*?(0x[0-9a-f]+)$", text)) and int(target[1], 16) < address
    )


def main_loop(code: list[tuple[int, str]], trips: int) -> list[str]:
    """The instructions that one tile takes: of the longest loop, with those over features that often in it.

    The mask of tiles on the diagonal, which others pass by, is counted as if all had it.
    """
    first, last = max(loops_of(code), key=lambda loop: loop[1] - loop[0])
    return repeated([line for line in code if first <= line[0] <= last], trips, outer=(first, last))


def repeated(code: list[tuple[int, str]], trips: int, outer: tuple[int, int] | None = None) -> list[str]:
    """Instructions, each of a loop that often, but for the loop that is outer."""
    inner = [loop for loop in loops_of(code) if loop != outer]
    return [
        text
        for address, text in code
        for _ in range(trips if any(a <= address <= b for a, b in inner) else 1)
    ]


# Of a square matrix but for the rectangle; of live tiles alone those that say so; and the sum over runs.
KINDS = ("product", "gradient", "rectangle", "block", "live product", "live gradient", "sum")


def cases(quick: bool) -> list[tuple[str, str, str, int]]:
    """Kernel, precision, kind and right-hand sides."""
    names = ["rbf", "matern32"] if quick else list(KERNELS)[:-2]
    found = [(name, "half", kind, COLUMNS) for name in names for kind in KINDS[:2]]
    found += [("rbf", "half fast", "product", COLUMNS), ("rbf", "half", "product", 256)]
    found += [("rbf", "half", "rectangle", COLUMNS), ("rbf", "half", "block", 0)]
    found += [("rbf", "single", "product", COLUMNS)]
    found += [("rbf", "half", kind, COLUMNS) for kind in KINDS[4:6]] + [("any", "half", "sum", COLUMNS)]
    found += [(name, "half", "product", COLUMNS) for name in ("four leaves", "rbf of many features")]
    found += [("four leaves", "half", "gradient", COLUMNS)]
    if not quick:
        others = (("bfloat16", COLUMNS), ("half", 64), ("half", 128))
        found += [("rbf", precision, "product", columns) for precision, columns in others]
        found += [(name, "half", kind, COLUMNS) for name in names[1:] for kind in KINDS[4:6]]
        others = (*others, ("single", COLUMNS), ("half fast", COLUMNS), ("half", 256))
        found += [("rbf", precision, "live product", columns) for precision, columns in others]
        found += [("rbf of many features", "half", kind, c) for kind in KINDS[:5:4] for c in (64, 128, 256)]
        found += [("rbf of many features", "half", kind, COLUMNS) for kind in ("live product", "gradient")]
        found += [("four leaves", "half", "product", columns) for columns in (64, 128, 256)]
    return found


def show(rows: list[Row]) -> None:
    print("Estimates from machine code, none of it run on a GPU; bound by issue or special functions.")
    head = (
        "kernel",
        "target",
        "precision",
        "pass",
        "columns",
        "tensor core",
        "registers",
        "spills",
        "shared",
    )
    head += ("blocks", "instr/entry", "entries/s (est.)", "x KeOps half (est.)")
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for r in rows:
        cells = (r.kernel, r.target, r.precision, r.kind, r.columns, r.tensor_core or "none", r.registers)
        cells += (r.spills, r.shared_bytes, r.blocks_per_multiprocessor, r.instructions_per_entry)
        rate, ratio = r.estimated_entries_per_second, r.estimated_ratio_to_keops_half
        estimates = ("", "") if rate is None or ratio is None else (f"{rate:.1e}", f"{ratio:g}")
        print("| " + " | ".join(map(str, (*cells, *estimates))) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", metavar="FILE", help="write the rows there too")
    parser.add_argument("--quick", action="store_true", help="two kernels")
    parser.add_argument("--target", choices=[f"sm{arch}" for arch in DEVICES], help="one alone")
    arguments = parser.parse_args()
    targets = [arch for arch in DEVICES if arguments.target in (None, f"sm{arch}")]
    rows = [row(n, p, arch, k, c) for arch in targets for n, p, k, c in cases(arguments.quick)]
    show(rows)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps([asdict(r) for r in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
