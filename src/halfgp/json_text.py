"""Strict JSON as it is written: plain values, arrays and tensors, and null for what is not finite."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def as_json(document: Mapping[str, Any], indent: int | None = None) -> str:
    """A JSON document of plain values, tensors and arrays; null for what is not finite."""
    return json.dumps(_plain(document), indent=indent, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if hasattr(value, "tolist"):  # of NumPy or torch, neither of which a command that only talks should load
        return _plain(value.tolist())
    if isinstance(value, Path):
        return str(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
