"""Memory is told in bytes, with the limit of a container, or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from halfgp import memory


def test_the_memory_of_the_group_of_processes_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = memory.physical_memory()
    assert machine is not None
    assert machine > 10**8
    for limit, expected in (("12345678\n", 12345678), ("max\n", None), ("", None)):
        texts = {"/sys/fs/cgroup/memory.max": limit}
        monkeypatch.setattr(memory, "_text", lambda path, texts=texts: texts.get(path, ""))
        found = memory.physical_memory()
        assert found is not None
        assert found == expected or (expected is None and found >= machine)


def test_nothing_is_made_up_where_nothing_tells_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_text", lambda path: "")
    monkeypatch.setattr(os, "sysconf_names", {})
    assert memory.physical_memory() is None
    assert memory.free_memory() is None
    assert memory.peak_memory() == memory.resident_memory() > 10**6


def test_the_peak_is_never_below_what_is_held() -> None:
    held = memory.resident_memory()
    assert 10**6 < held <= memory.peak_memory()
    if Path("/proc/meminfo").exists():
        free, physical = memory.free_memory(), memory.physical_memory()
        assert free is not None
        assert physical is not None
