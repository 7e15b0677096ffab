"""The machine code of GPU kernels, compiled in a process of its own: nothing is run on a GPU."""

from __future__ import annotations

import itertools
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


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    path = tmp_path_factory.mktemp("codegen") / "rows.json"
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, BENCHMARK, "--quick", "--json", path]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    assert "estimate" in done.stdout.lower()
    found: list[dict[str, Any]] = json.loads(path.read_text())
    return found


def test_products_and_gradients_of_both_targets_are_told(rows: list[dict[str, Any]]) -> None:
    assert all(row.keys() >= FIELDS for row in rows)
    assert {(row["target"], row["kind"]) for row in rows} == {
        (target, kind) for target in TENSOR_CORES for kind in KINDS
    }
    assert all(row["gradient"] == row["kind"].endswith("gradient") for row in rows)


def test_half_uses_tensor_cores_single_none_of_tf32_and_nothing_spills(rows: list[dict[str, Any]]) -> None:
    assert any(row["precision"] == "single" for row in rows)
    for row in rows:
        # Dense entries are by differences, which have nothing to multiply, and nor have sums.
        plain = row["kind"] in ("block", "sum") or row["precision"] == "single"
        wanted = "" if plain else TENSOR_CORES[row["target"]]
        assert row["tensor_core"] == wanted, row
        assert row["spills"] == 0, row


def test_registers_and_shared_memory_leave_a_multiprocessor_eight_warps(rows: list[dict[str, Any]]) -> None:
    """Two blocks of four, or one of eight where right-hand sides are many."""
    for row in rows:
        assert row["blocks_per_multiprocessor"] >= (1 if row["columns"] > 32 else 2), row


def test_a_product_of_a_few_columns_takes_few_instructions_an_entry(rows: list[dict[str, Any]]) -> None:
    """Up to 10.6 were found; twelve leave room for another compiler."""
    products = [
        row
        for row in rows
        if (row["kernel"], row["kind"], row["columns"]) == ("rbf", "product", 16)
        and row["precision"].startswith("half")
    ]
    assert len(products) == 4  # with the low part of K and without, on both targets
    assert all(row["instructions_per_entry"] <= 12 for row in products)


def test_a_rectangle_takes_no_more_than_a_square_and_entries_not_many(
    rows: list[dict[str, Any]],
) -> None:
    """A rectangle has no diagonal to mask; of dense entries 41 were found, and 48 leave room."""
    for target in TENSOR_CORES:
        found = {
            row["kind"]: row["instructions_per_entry"]
            for row in rows
            if (row["target"], row["kernel"], row["precision"]) == (target, "rbf", "half")
            and row["columns"] in (0, 16)
        }
        assert found["rectangle"] <= found["product"]
        assert found["block"] <= 48


def test_a_list_of_live_tiles_costs_few_instructions_beside_the_entries(
    rows: list[dict[str, Any]],
) -> None:
    """One number is loaded for a tile of thousands of entries: up to a twentieth was found, by addresses."""
    for target, kind in itertools.product(TENSOR_CORES, ("product", "gradient")):
        found = {
            row["kind"]: row["instructions_per_entry"]
            for row in rows
            if (row["target"], row["kernel"], row["precision"]) == (target, "rbf", "half")
            and row["columns"] == 16
        }
        assert found[f"live {kind}"] <= 1.1 * found[kind]


def test_the_benchmark_for_a_gpu_runs_dry(tmp_path: Path) -> None:
    path = tmp_path / "gpu.json"
    command = [sys.executable, BENCHMARK.with_name("gpu.py"), "--dry", "--only", "halfgp", "--json", path]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "times mean nothing" in done.stdout
    rows = json.loads(path.read_text())
    errors = {row["who"]: row["error"] for row in rows if not row["gradient"]}
    zeros = {f"halfgp, half, zeros {what}" for what in ("computed", "passed by")}
    assert set(errors) == zeros | {
        "halfgp, half",
        "halfgp, half, fast",
        "halfgp, bfloat16",
        "halfgp, single",
    }
    assert {errors[who] for who in zeros} == {errors["halfgp, half, zeros passed by"]}  # the same bits
    assert errors["halfgp, half"] < 2**-11  # half's unit roundoff
    assert sum(row["gradient"] for row in rows) == 1
