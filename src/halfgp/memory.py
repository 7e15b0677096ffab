"""Facts about memory: what the machine has, what is free, what this process holds and has held at most."""

from __future__ import annotations

import os
import re
import resource
import sys
from pathlib import Path


def physical_memory() -> int | None:
    """Bytes that the machine has, or that the group of processes may use; None where nothing tells it."""
    machine = _entry("/proc/meminfo", "MemTotal")
    if machine is None and {"SC_PHYS_PAGES", "SC_PAGE_SIZE"} <= set(os.sysconf_names):
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    text = _text("/sys/fs/cgroup/memory.max").strip()
    if not text.isdigit():  # no control groups here, or the limit reads "max"
        return machine
    return int(text) if machine is None else min(machine, int(text))


def free_memory() -> int | None:
    """Bytes that could be had now; None where the system does not tell it."""
    return _entry("/proc/meminfo", "MemAvailable")


def resident_memory() -> int:
    """The resident size of this process now, bytes; where the system does not tell it, the largest so far."""
    return _entry("/proc/self/status", "VmRSS") or peak_memory()


def peak_memory() -> int:
    """The largest resident size of this process so far, bytes."""
    # Not getrusage where it can be helped: it tells the size of the parent, if that was larger at the fork.
    unit = 1 if sys.platform == "darwin" else 1024
    return _entry("/proc/self/status", "VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _entry(path: str, name: str) -> int | None:
    """A size in one of Linux's accounts, in bytes."""
    found = re.search(rf"^{name}:\s*(\d+)", _text(path), re.MULTILINE)
    return None if found is None else int(found[1]) * 1024


def _text(path: str) -> str:
    """What such a file says; nothing where there is none."""
    try:
        return Path(path).read_text()
    except OSError:
        return ""
