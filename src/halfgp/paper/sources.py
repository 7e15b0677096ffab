"""The code of a part: its file and the studies that it shares with others, but not the frame around them."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
from collections.abc import Iterator, Mapping

PACKAGE = "halfgp.paper"
# What every part stands on; a change there changes no figure.
FRAME = ("part", "context", "fits", "svgp", "palette")


@functools.cache
def sources_of(module: str) -> Mapping[str, str]:
    """Source by module name: of a part's module first, then of the studies it imports, and theirs."""
    found: dict[str, str] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop(0)
        if name not in found:
            found[name] = inspect.getsource(importlib.import_module(name))
            waiting.extend(_studies(found[name]))
    return found


def path_of(module: str) -> str:
    """Where a module lies in the project."""
    return f"src/{module.replace('.', '/')}.py"


def _studies(source: str) -> Iterator[str]:
    """Modules beside the parts that a source imports from."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.ImportFrom) or node.module is None:
            continue
        if node.module == PACKAGE:
            yield from (f"{PACKAGE}.{alias.name}" for alias in node.names if alias.name not in FRAME)
        elif node.module.startswith(f"{PACKAGE}.") and node.module.rpartition(".")[2] not in FRAME:
            yield node.module
