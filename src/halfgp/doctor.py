"""What this machine has, and which backend would serve tensors on its CPU."""

from __future__ import annotations

import os
import platform
import warnings
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

import torch
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from halfgp import backends
from halfgp.errors import BackendWarning, InputError
from halfgp.memory import free_memory, physical_memory
from halfgp.version import __version__

_LIBRARIES = ("torch", "numpy", "scipy")
LEAST_TENSOR_CORES = 8  # of a GPU's compute capability: of older ones Triton does not use them


@dataclass(frozen=True)
class BackendFacts:
    """One backend: whether it can be used here, and in a few words why (or why not)."""

    name: str
    available: bool
    note: str


@dataclass(frozen=True)
class Report:
    """The facts, none of them measured by running anything for long.

    Attributes:
        system: operating system and architecture.
        processor: the model's name as the system gives it.
        cores: how many this process may use.
        threads: how many a product uses unless told otherwise (`torch.get_num_threads()`).
        memory_bytes: what this process may have, the limit of a container included; None if unknown.
        memory_available_bytes: what is free now; None if unknown. Nothing in halfgp decides by it.
        instruction_sets: of the compiled backend on this processor, best last; empty without it.
        backends: every backend the package knows.
        chosen: the backend that `backend="auto"` takes for tensors on the CPU.
        chosen_on_gpu: the one it takes for tensors on a GPU; None where there is none.
        reason: why.
        cuda: the names of the GPUs that torch sees, those of ROCm too, with what each can do.
        versions: of Python, halfgp and the libraries under it.
    """

    system: str
    processor: str
    cores: int
    threads: int
    memory_bytes: int | None
    memory_available_bytes: int | None
    instruction_sets: tuple[str, ...]
    backends: tuple[BackendFacts, ...]
    chosen: str
    chosen_on_gpu: str | None
    reason: str
    cuda: tuple[str, ...]
    versions: dict[str, str]

    def as_dict(self) -> dict[str, Any]:
        """The same facts as plain values, for JSON."""
        return asdict(self)


def examine() -> Report:
    """Collect the facts about this machine; takes milliseconds and never fails for want of one."""
    found = tuple(_examine_backend(name) for name in backends.NAMES)
    chosen, reason = _choose(found)
    return Report(
        system=f"{platform.system()} {platform.machine()}",
        processor=_processor(),
        cores=_cores(),
        threads=torch.get_num_threads(),
        memory_bytes=physical_memory(),
        memory_available_bytes=free_memory(),
        instruction_sets=_instruction_sets(),
        backends=found,
        chosen=chosen,
        chosen_on_gpu=_chosen_for("cuda") if torch.cuda.is_available() else None,
        reason=reason,
        cuda=_cuda_devices(),
        versions=_versions(),
    )


def render(report: Report) -> RenderableType:
    """One screen for people."""
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold")
    facts.add_column()
    facts.add_row("machine", f"{report.processor}, {report.system}")
    facts.add_row("cores", f"{report.cores} usable, {report.threads} threads in a product")
    facts.add_row("memory", f"{_size(report.memory_bytes)}, {_size(report.memory_available_bytes)} free now")
    facts.add_row(
        "instructions", " · ".join(report.instruction_sets) or "unknown without the compiled backend"
    )
    facts.add_row("GPU", "; ".join(report.cuda) or "no device")
    facts.add_row("versions", " · ".join(f"{name} {number}" for name, number in report.versions.items()))
    offered = Table(box=None, padding=(0, 2), show_header=False)
    for backend in report.backends:
        mark = Text("yes", "green") if backend.available else Text("no", "yellow")
        offered.add_row(Text(backend.name, "bold"), mark, backend.note)
    choice = Text.assemble("Tensors on the CPU use ", (report.chosen, "bold green"), f": {report.reason}")
    if report.chosen_on_gpu is not None:
        choice.append_text(
            Text.assemble("\nTensors on a GPU use ", (report.chosen_on_gpu, "bold green"), ".")
        )
    heading = Text("backends", "bold")
    return Panel(Group(facts, "", heading, offered, "", choice), title="halfgp doctor", expand=False)


def _examine_backend(name: str) -> BackendFacts:
    """Whether one backend loads, by loading it."""
    if name not in backends.available():
        missing = {"triton": "Triton is not installed: pip install 'halfgp[gpu]'"}
        note = missing.get(name, "not built: installing from source takes a C++ compiler")
        return BackendFacts(name, False, note)
    if name == "cpu":
        return _examine_engine()
    if name == "triton":
        return _examine_gpu()
    return BackendFacts(name, True, "torch, any device: the specification, and slow")


def _examine_gpu() -> BackendFacts:
    """Triton's kernels, and by which path a GPU would run them."""
    from halfgp.backends.triton import INTERPRETED

    if INTERPRETED:
        return BackendFacts("triton", True, "interpreted, as TRITON_INTERPRET says: to try it")
    if not torch.cuda.is_available():
        return BackendFacts("triton", False, "installed; torch sees no GPU")
    if torch.version.hip:
        return BackendFacts("triton", True, "ROCm: compiled at first use, never tried by us")
    major, minor = torch.cuda.get_device_capability()
    path = "tensor cores" if major >= LEAST_TENSOR_CORES else "no tensor cores below sm80 in Triton: slower"
    return BackendFacts("triton", True, f"sm{major}{minor}, {path}; compiled at first use")


def _examine_engine() -> BackendFacts:
    """The compiled backend, with the instructions it will use, which the environment may have chosen."""
    from halfgp.backends import cpu

    try:
        chosen = cpu.chosen_instruction_set()
    except InputError as error:
        return BackendFacts("cpu", False, str(error))
    forced = f", as {cpu.FORCED} says" if os.environ.get(cpu.FORCED) else ""
    return BackendFacts("cpu", True, f"compiled, with {chosen}{forced}")


def _choose(found: tuple[BackendFacts, ...]) -> tuple[str, str]:
    """The backend of "auto" on the CPU by asking for it, and why."""
    chosen = _chosen_for("cpu")
    missing = [backend.name for backend in found if not backend.available and backend.name == "cpu"]
    if chosen == "reference" and missing:
        return chosen, f"the faster {', '.join(missing)} is not available here."
    return chosen, "the fastest that is available here."


def _chosen_for(device: str) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BackendWarning)  # the report says it in its own words
        return backends.get_backend("auto", torch.device(device)).name


def _instruction_sets() -> tuple[str, ...]:
    """What the compiled backend can use on this processor, best last; nothing without it."""
    try:
        from halfgp.backends import cpu
    except ImportError:
        return ()
    return tuple(cpu.instruction_sets())


def _processor() -> str:
    """The processor's own name where the system tells it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(errors="replace").splitlines():
            if line.lower().startswith("model name"):
                return " ".join(line.partition(":")[2].split())
    return platform.processor() or platform.machine() or "unknown processor"


def _cores() -> int:
    """Cores that this process may run on, which a container or taskset may have cut."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cuda_devices() -> tuple[str, ...]:
    """The devices that torch can use: name, memory, and what Triton compiles for."""
    if not torch.cuda.is_available():
        return ()
    found = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    return tuple(
        f"{card.name}, {_size(card.total_memory)}"
        + ("" if torch.version.hip else f", sm{card.major}{card.minor}")
        for card in found
    )


def _versions() -> dict[str, str]:
    """Of Python, halfgp and the libraries it stands on."""
    found = {"halfgp": __version__, "Python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            found[name] = installed_version(name)
        except PackageNotFoundError:
            found[name] = "missing"
    return found


def _size(count: int | None) -> str:
    return "unknown" if count is None else f"{count / 2**30:.1f} GiB"
