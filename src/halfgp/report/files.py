"""What is written: strict JSON, and files that take their name only once they are complete."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from halfgp.replacement import replacing


def as_json(document: Mapping[str, Any], indent: int | None = None) -> str:
    """A JSON document of plain values, tensors and arrays; null for what is not finite."""
    return json.dumps(_plain(document), indent=indent, allow_nan=False)


def write_whole(path: Path, text: str) -> None:
    """Write it under its name only once it is complete.

    Raises:
        FileError: it cannot be written there.
    """
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, np.ndarray | np.generic | Tensor):
        return _plain(value.tolist())
    if isinstance(value, Path):
        return str(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
