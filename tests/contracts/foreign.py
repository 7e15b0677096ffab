"""The engine for another architecture, cross-compiled and emulated, in the place of `halfgp._cpu`.

`halfgp.backends.cpu` drives it as it drives the extension, so that plans, packing and the chain rule are the
true ones; Python and torch, which would be far too slow in an emulator, stay outside. cpp/driver.cpp is the
other end.
"""

from __future__ import annotations

import atexit
import fcntl
import functools
import importlib.util
import os
import shutil
import struct
import subprocess
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

ROOT = Path(__file__).parents[2]
DTYPES = {torch.float32: np.float32, torch.float64: np.float64}


def _tool(*names: str) -> str | None:
    """The first of these programs that there is, in the environment of this Python or on the path."""
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)])
    return next((found for name in names if (found := shutil.which(name, path=path))), None)


TOOLS = {
    "cmake": _tool("cmake"),
    "aarch64-linux-gnu-g++": _tool("aarch64-linux-gnu-g++"),
    "qemu-aarch64-static": _tool("qemu-aarch64-static", "qemu-aarch64"),
}
# Why nothing can be emulated here; empty where it can.
_lacking = ", ".join(name for name, found in TOOLS.items() if found is None)
ABSENT = f"NEON cannot be emulated here without {_lacking}" if _lacking else ""


@dataclass(frozen=True)
class Program:
    """As `_cpu.Program`, with the bytes that describe it."""

    leaves: Sequence[Any]
    nodes: Sequence[Any]
    constants: Sequence[float]
    scale: float
    negligible: float

    def message(self) -> bytes:
        parts = [struct.pack("<Q", len(self.leaves))]
        for leaf in self.leaves:
            words = [leaf.profile.value, leaf.features, leaf.shared_scale]
            words += [leaf.near_path.value, leaf.by_products]
            numbers = leaf.shape, leaf.least_exponent, leaf.factor, leaf.fixed_step
            parts += [struct.pack("<5i4d", *words, *numbers), _doubles(leaf.centre)]
        parts.append(struct.pack("<Q", len(self.nodes)))
        parts += [struct.pack("<3i", node.kind.value, node.a, node.b) for node in self.nodes]
        parts += [_doubles(self.constants), struct.pack("<2d", self.scale, self.negligible)]
        return b"".join(parts)


@dataclass
class Matrix:
    """As `_cpu.Matrix`; every operation sends all that the matrix is made of."""

    engine: Engine
    instruction_set: str
    single: bool
    program: Program
    rows: bytes
    columns: bytes | None
    stored: int = 0  # the number of `_cpu.Stored`
    skips: bool = False
    part: tuple[int, int] = (0, 1)

    def store(self, format: Any, threads: int) -> None:
        self.stored = format.value

    def choose_tiles(self, skip_zeros: bool, index: int, count: int, threads: int) -> None:
        self.skips, self.part = skip_zeros, (index, count)

    def dropped(self, threads: int) -> float:
        return self._told("dropped", threads)

    @property
    def tiles(self) -> int:
        return int(self._told("tiles"))

    @property
    def share_skipped(self) -> float:
        return self._told("share_skipped")

    def _told(self, operation: str, threads: int = 1) -> float:
        self._ask(operation, torch.float64, threads)
        return self.engine.receive(np.float64).item()

    def product(self, v: Tensor, diagonal: Tensor | None, out: Tensor, threads: int) -> None:
        self._multiply("product", v, torch.empty(0).double() if diagonal is None else diagonal, out, threads)

    def product_within(self, v: Tensor, diagonal: Tensor, out: Tensor, threads: int) -> None:
        self._multiply("product_within", v, diagonal, out, threads)

    def _multiply(self, operation: str, v: Tensor, diagonal: Tensor, out: Tensor, threads: int) -> None:
        self._ask(operation, v.dtype, threads, struct.pack("<i", v.shape[1]), _array(v), _array(diagonal))
        self._receive_into(out)

    def block(self, out: Tensor, threads: int) -> None:
        self._ask("block", out.dtype, threads)
        self._receive_into(out)

    def gradient(
        self,
        u: Tensor,
        v: Tensor,
        row_features: list[Tensor | None],
        column_features: list[Tensor | None],
        threads: int,
    ) -> tuple[float, list[float], list[float], list[list[float]]]:
        wanted = [
            _sequence(bytes(t is not None for t in tables)) for tables in (row_features, column_features)
        ]
        self._ask("gradient", u.dtype, threads, struct.pack("<i", u.shape[1]), _array(u), _array(v), *wanted)
        root, constants, shapes, *scales = (
            self.engine.receive(np.float64).tolist() for _ in range(3 + len(self.program.leaves))
        )
        for table in (*row_features, *column_features):
            found = self.engine.receive(np.float64)
            if table is not None:
                table += torch.from_numpy(found).reshape(table.shape)
        return root[0], constants, shapes, scales

    def _ask(self, operation: str, dtype: torch.dtype, threads: int, *operands: bytes) -> None:
        columns = b"\0" if self.columns is None else b"\1" + self.columns
        self.engine.send(
            _sequence(self.instruction_set.encode()),
            struct.pack("<?", self.single),
            self.program.message(),
            self.rows,
            columns,
            struct.pack("<2i?2q", self.stored, threads, self.skips, *self.part),
            _sequence(operation.encode()),
            struct.pack("<?", dtype == torch.float32),
            *operands,
        )

    def _receive_into(self, out: Tensor) -> None:
        out.copy_(torch.from_numpy(self.engine.receive(DTYPES[out.dtype])).reshape(out.shape))


class Engine:
    """What `halfgp.backends.cpu` uses of `_cpu`; built and started at the first call."""

    Program = Program

    def __init__(self, native: Any) -> None:
        # The words of a program are the same on every architecture.
        self.BLOCK, self.Node, self.NodeKind, self.Stored = (
            getattr(native, name) for name in ("BLOCK", "Node", "NodeKind", "Stored")
        )

    def instruction_sets(self) -> list[str]:
        return list(self._targets)

    def has_fixed_point(self, name: str) -> bool:
        return self._targets[name]

    def pack(
        self,
        program: Program,
        single: bool,
        near: Tensor,
        features: list[Tensor],
        order: Tensor | None,
        runs: int,
    ) -> bytes:
        held = torch.empty(0, dtype=torch.long) if order is None else order
        return b"".join(
            [
                _sequence(near.numpy().tobytes()),
                *map(_array, features),
                _array(held),
                struct.pack("<q", runs),
            ]
        )

    def Matrix(
        self, instruction_set: str, single: bool, program: Program, rows: bytes, columns: bytes | None
    ) -> Matrix:
        return Matrix(self, instruction_set, single, program, rows, columns)

    def send(self, *parts: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"".join(parts))
        self._process.stdin.flush()

    def receive(self, dtype: Any) -> np.ndarray[Any, Any]:
        (count,) = struct.unpack("<Q", self._read(8))
        return np.frombuffer(bytearray(self._read(count * np.dtype(dtype).itemsize)), dtype)

    def _read(self, count: int) -> bytes:
        assert self._process.stdout is not None
        found = self._process.stdout.read(count)
        assert len(found) == count, f"the emulated engine ended with {self._process.wait()}"
        return found

    @functools.cached_property
    def _targets(self) -> dict[str, bool]:
        names = self.receive(np.uint8).tobytes().decode().split()
        return dict(zip(names, self.receive(np.uint8).astype(bool).tolist(), strict=True))

    @functools.cached_property
    def _process(self) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        driver, failure = _build()
        assert not failure, failure
        command = [str(TOOLS["qemu-aarch64-static"]), str(driver)]
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe)
        atexit.register(process.communicate)  # which closes its input, and so ends it
        return process


@functools.cache
def cpu_module() -> Any:
    """A second copy of the module `halfgp.backends.cpu`, above the emulated engine."""
    spec = importlib.util.find_spec("halfgp.backends.cpu")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module._cpu = Engine(module._cpu)
    return module


@functools.cache  # a failure too: a thousand tests must not each try again
def _build() -> tuple[Path, str]:
    """The driver, built with the extension's flags (a minute at most), and what went wrong."""
    directory = ROOT / "build" / "aarch64-driver"
    directory.mkdir(parents=True, exist_ok=True)
    compiler = f"-DCMAKE_CXX_COMPILER={TOOLS['aarch64-linux-gnu-g++']}"
    system = ("-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64")
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in several processes, of which one builds
        for words in (
            ("-S", ROOT, "-B", directory, "-DHALFGP_DRIVER=ON", compiler, *system),
            ("--build", directory, "--parallel", "2"),
        ):
            command = [str(word) for word in (TOOLS["cmake"], *words)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                return directory, done.stdout + done.stderr
    return directory / "halfgp-driver", ""


def _sequence(items: bytes) -> bytes:
    """Items of one byte after their number."""
    return struct.pack("<Q", len(items)) + items


def _doubles(values: Sequence[float]) -> bytes:
    return struct.pack(f"<Q{len(values)}d", len(values), *values)


def _array(tensor: Tensor) -> bytes:
    """The numbers of a tensor, row after row, after their number."""
    return struct.pack("<Q", tensor.numel()) + tensor.detach().contiguous().numpy().tobytes()
