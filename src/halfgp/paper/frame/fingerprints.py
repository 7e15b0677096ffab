"""What a stored result was made from: code, versions and settings in one fingerprint, and the data beside it.

The code is that of a module of the paper and of all others of the paper that it imports, and theirs: a part's
study, the fits that it rests on and their peers are found by themselves. Such a module may name

- `PACKAGES`: that it uses where they are installed;
- `FILES`: beside it, that it reads.

The library below the paper counts as one. Comments, docstrings and layout change no figure and do not count.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import platform
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halfgp.paper.frame.context import Context
from halfgp.persistence import fingerprint
from halfgp.version import __version__

PAPER = "halfgp.paper"
ABOVE = ("paper", "cli")  # the library is what lies below these
EXTENSION = "halfgp._cpu"
LIBRARIES = ("torch", "numpy", "scipy")


@dataclass(frozen=True)
class Origin:
    """What something was made from.

    Attributes:
        fingerprint: of code, versions and settings.
        sets: a digest of each set of data that was read, by name.
    """

    fingerprint: str
    sets: Mapping[str, str]

    def is_current(self, now: str, context: Context) -> bool:
        """Whether the same would be made now. Data that are no longer there have not changed.

        Args:
            now: the fingerprint that it would get.
            context: tells where data are.
        """
        digests = ((context.digest(name), digest) for name, digest in self.sets.items())
        return self.fingerprint == now and all(found in (None, digest) for found, digest in digests)


def fingerprint_of(module: str, settings: Mapping[str, Any], *, without: Collection[str] = ()) -> str:
    """Of what a module makes with these settings.

    Args:
        module: of the paper, by its name.
        settings: JSON values.
        without: modules that it imports and does not use for this.
    """
    return fingerprint(dict(settings), _makers(module, frozenset(without)))


@functools.cache
def _makers(module: str, without: frozenset[str]) -> str:
    """Of code and versions: all but the settings."""
    modules = modules_of(module, without)
    packages = {*LIBRARIES, *(name for each in modules for name in _declared(each, "PACKAGES"))}
    files = {f"{each}/{name}": _beside(each, name) for each in modules for name in _declared(each, "FILES")}
    code = {each: _read(each).code for each in modules}
    return fingerprint(code, files, _versions(packages), _library())


def modules_of(module: str, without: Collection[str] = ()) -> list[str]:
    """A module and those of the paper that it imports, and theirs, nearest first."""
    found: list[str] = []
    waiting = [module]
    while waiting:
        name = waiting.pop(0)
        if name not in found and name not in without:
            found.append(name)
            waiting.extend(_read(name).imports)
    return found


@functools.cache
def source_of(module: str) -> str:
    """The text of a module, read once: files may change while parts are run for hours."""
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).read_text(encoding="utf-8")


def path_of(module: str) -> str:
    """Where a module lies in the project."""
    return f"src/{module.replace('.', '/')}.py"


@dataclass(frozen=True)
class _Module:
    """What counts of a module: its code in a normal form, and what of the paper it imports."""

    code: str
    imports: tuple[str, ...]


@functools.cache
def _read(module: str) -> _Module:
    tree = ast.parse(source_of(module))
    return _Module(_normal(tree), tuple(_imports(tree)))


def _normal(tree: ast.Module) -> str:
    """A tree without docstrings; it has no comments and no layout."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node, False):
            node.body = node.body[1:]
    return ast.dump(tree)


def _imports(tree: ast.Module) -> Iterator[str]:
    """Modules of the paper that are imported from, wherever that stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PAPER):
            inner = (f"{node.module}.{alias.name}" for alias in node.names)
            modules = [name for name in inner if _is_module(name)]
            yield from modules or [str(node.module)]


@functools.cache
def _is_module(name: str) -> bool:
    parent = name.rpartition(".")[0]
    package = importlib.util.find_spec(parent)
    if package is None or package.submodule_search_locations is None:
        return False
    return importlib.util.find_spec(name) is not None


def _declared(module: str, name: str) -> tuple[str, ...]:
    return tuple(getattr(importlib.import_module(module), name, ()))


def _beside(module: str, name: str) -> str:
    """The text of a file that lies beside a module."""
    path = Path(str(importlib.import_module(module).__file__)).parent / name
    return path.read_text(encoding="utf-8")


def _versions(packages: Collection[str]) -> dict[str, str | None]:
    """Of Python, halfgp and packages; None for what is not installed."""
    python = ".".join(platform.python_version_tuple()[:2])
    found: dict[str, str | None] = {"halfgp": __version__, "python": python}
    for name in packages:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


@functools.cache
def _library() -> str:
    """Of halfgp below the paper, compiled code included where it was built."""
    return fingerprint(_code_below(Path(__file__).parents[2]), _compiled())


def _code_below(root: Path) -> dict[str, str]:
    """The code in a folder by file, but for what lies above the library."""
    paths = (path for path in root.rglob("*.py") if path.relative_to(root).parts[0] not in ABOVE)
    return {str(path.relative_to(root)): _normal(ast.parse(path.read_text("utf-8"))) for path in paths}


def _compiled() -> str | None:
    """Of the extension's file; None without one."""
    spec = importlib.util.find_spec(EXTENSION)
    if spec is None or spec.origin is None:
        return None
    return hashlib.sha256(Path(spec.origin).read_bytes()).hexdigest()
