"""How much memory this process holds, and has held at most."""

from __future__ import annotations

import resource
import sys
from pathlib import Path


def resident_bytes() -> int:
    """The resident size now; where the system does not tell it, the peak."""
    return _status("VmRSS") or peak_bytes()


def peak_bytes() -> int:
    """The largest resident size so far; it never falls."""
    # Not getrusage where it can be helped: on Linux its peak begins with that of the parent process.
    unit = 1 if sys.platform == "darwin" else 1024
    return _status("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _status(field: str) -> int | None:
    """A size in Linux's account of this process, in bytes."""
    account = Path("/proc/self/status")
    if not account.exists():
        return None
    for line in account.read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    return None
