"""The machine code of GPU kernels, compiled in a process of its own: nothing is run on a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")

pytestmark = pytest.mark.elsewhere
BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "gpu_codegen.py"
TENSOR_CORES = {"sm80": "HMMA", "sm90": "HGMMA"}
KINDS = ("product", "gradient", "rectangle", "block", "live product", "live gradient", "sum")
FIELDS = {
    "kernel",
    "kind",
    "target",
    "gradient",
    "tensor_core",
    "registers",
    "spills",
    "shared_bytes",
    "instructions_per_entry",
}


Rows = list[dict[str, Any]]


@pytest.mark.parametrize("target", TENSOR_CORES)
def test_the_machine_code_of_a_target_is_what_was_meant(target: str, tmp_path: Path) -> None:
    """One test, so that each target is compiled once, whoever shares tests out."""
    path = tmp_path / "rows.json"
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, BENCHMARK, "--quick", "--target", target, "--json", path]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    assert "estimate" in done.stdout.lower()
    rows: Rows = json.loads(path.read_text())
    assert all(row.keys() >= FIELDS for row in rows)
    assert {(row["target"], row["kind"]) for row in rows} == {(target, kind) for kind in KINDS}
    assert all(row["gradient"] == row["kind"].endswith("gradient") for row in rows)
    check_that_half_uses_tensor_cores_single_none_of_tf32_and_nothing_spills(rows)
    check_that_registers_and_shared_memory_leave_a_multiprocessor_eight_warps(rows)
    check_that_an_entry_takes_few_instructions(rows)


def check_that_half_uses_tensor_cores_single_none_of_tf32_and_nothing_spills(rows: Rows) -> None:
    assert any(row["precision"] == "single" for row in rows)
    for row in rows:
        # Dense entries are by differences, which have nothing to multiply, and nor have sums.
        plain = row["kind"] in ("block", "sum") or row["precision"] == "single"
        # Instructions of whole warp groups want 64 rows, and gradients of many leaves have registers for 32.
        small = row["kernel"] == "four leaves" and row["gradient"]
        wanted = "" if plain else "HMMA" if small else TENSOR_CORES[row["target"]]
        assert row["tensor_core"] == wanted, row
        assert row["spills"] == 0, row


def check_that_registers_and_shared_memory_leave_a_multiprocessor_eight_warps(rows: Rows) -> None:
    """Two blocks of four, or one of eight where right-hand sides are many."""
    for row in rows:
        assert row["blocks_per_multiprocessor"] >= (1 if row["columns"] > 32 else 2), row


def check_that_an_entry_takes_few_instructions(rows: Rows) -> None:
    def instructions(kind: str, precision: str = "half", columns: int = 16) -> float:
        return float(
            next(
                row["instructions_per_entry"]
                for row in rows
                if (row["kernel"], row["kind"], row["precision"], row["columns"])
                == ("rbf", kind, precision, columns)
            )
        )

    # Up to 10.6 were found, with the low part of K and without; twelve leave room for another compiler.
    assert instructions("product") <= 12
    assert instructions("product", "half fast") < instructions("product")
    # A rectangle has no diagonal to mask; of dense entries 41 were found, and 48 leave room.
    assert instructions("rectangle") <= instructions("product")
    assert instructions("block", columns=0) <= 48
    # One number is loaded for a tile of thousands of entries: up to a twentieth was found, by addresses.
    for kind in ("product", "gradient"):
        assert instructions(f"live {kind}") <= 1.1 * instructions(kind)


def test_the_benchmark_for_a_gpu_runs_dry(tmp_path: Path) -> None:
    path = tmp_path / "gpu.json"
    command = [sys.executable, BENCHMARK.with_name("gpu.py"), "--dry", "--json", path]
    command += ["--only", "halfgp", "--only", "GPyTorch"]  # KeOps would compile, and has no half on a CPU
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "times mean nothing" in done.stdout
    rows = json.loads(path.read_text())
    assert all(row["target"] == "interpreted" for row in rows)  # by which the codegen's rows are found
    errors = {row["who"]: row["error"] for row in rows if not row["gradient"]}
    zeros = {f"halfgp, half, zeros {what}" for what in ("computed", "passed by")}
    assert set(errors) == zeros | {
        "halfgp, half",
        "halfgp, half, fast",
        "halfgp, bfloat16",
        "halfgp, single",
        "GPyTorch, single",
    }
    assert {errors[who] for who in zeros} == {errors["halfgp, half, zeros passed by"]}  # the same bits
    assert errors["halfgp, half"] < 2**-11  # half's unit roundoff
    assert sum(row["gradient"] for row in rows) == 1
