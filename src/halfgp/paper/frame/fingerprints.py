"""What a stored result was made from: code, versions and settings in one fingerprint, and the data beside it.

The code is that of a module and of all modules of halfgp that it imports, and theirs, compiled ones included:
a part's study, the fits that it rests on, their peers and the solvers below are found by themselves.
Comments, docstrings and layout change no figure and do not count. A module may name, as a tuple of strings,

- `PACKAGES`: that it uses where they are installed;
- `FILES`: beside it, that it reads.
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
from types import ModuleType
from typing import Any

from halfgp import backends
from halfgp.paper.frame.context import Context
from halfgp.persistence import fingerprint
from halfgp.version import __version__

LIBRARIES = ("torch", "numpy", "scipy")
# What a module imports by names that it makes up.
LOADED = {backends.__name__: tuple(f"{backends.__name__}.{name}" for name in backends.NAMES)}


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
        module: by its name.
        settings: JSON values.
        without: modules that it imports and does not use for this.
    """
    return fingerprint(dict(settings), _makers(module, frozenset(without)))


@functools.cache
def _makers(module: str, without: frozenset[str]) -> str:
    """Of code and versions: all but the settings."""
    modules = modules_of(module, without)
    packages = {*LIBRARIES, *(name for each in modules for name in _read(each).packages)}
    files = {f"{each}/{name}": _beside(each, name) for each in modules for name in _read(each).files}
    code = {each: _read(each).code for each in modules}
    return fingerprint(code, files, _versions(packages))


def modules_of(module: str, without: Collection[str] = ()) -> list[str]:
    """A module and those of halfgp that it imports, and theirs, nearest first."""
    found: list[str] = []
    waiting = [module]
    left_out = {*without, __name__}  # this file makes no figure
    while waiting:
        name = waiting.pop(0)
        if name not in found and name not in left_out:
            found.append(name)
            waiting.extend(_read(name).imports)
    return found


@functools.cache
def source_of(module: str) -> str:
    """The text of a module, read once: files may change while parts are run for hours."""
    return _file_of(module).read_text(encoding="utf-8")


def path_of(module: str) -> str:
    """Where a module lies in the project."""
    return f"src/{module.replace('.', '/')}.py"


@functools.cache
def _file_of(module: str) -> Path:
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin)


@dataclass(frozen=True)
class _Module:
    """What counts of a module: a digest of its code, what of halfgp it imports, and what it declares."""

    code: str
    imports: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


def _read(module: str) -> _Module:
    if _file_of(module).suffix == ".py":
        return _parsed(module, source_of(module))
    return _compiled(module)


@functools.cache
def _compiled(module: str) -> _Module:
    return _Module(hashlib.sha256(_file_of(module).read_bytes()).hexdigest())


@functools.cache
def _parsed(module: str, source: str) -> _Module:
    tree = ast.parse(source)
    imports = (*_imports(tree), *LOADED.get(module, ()))
    packages, files = (_declared(tree, name) for name in ("PACKAGES", "FILES"))
    return _Module(fingerprint(_normal(tree)), imports, packages, files)


def _normal(tree: ast.Module) -> str:
    """A tree without docstrings; it has no comments and no layout."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node, False):
            node.body = node.body[1:]
    return ast.dump(tree)


def _imports(tree: ast.Module) -> Iterator[str]:
    """Modules of halfgp that are imported, or imported from, wherever that stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "halfgp":
            for alias in node.names:
                if _is_module(str(node.module), alias.name):
                    yield f"{node.module}.{alias.name}"
                elif node.module != "halfgp":  # which has no code of its own
                    yield str(node.module)


@functools.cache
def _is_module(parent: str, name: str) -> bool:
    """Whether what is imported from somewhere is a module, and no function that is called as its module."""
    place = importlib.util.find_spec(parent)
    if place is None or place.submodule_search_locations is None:
        return False
    if importlib.util.find_spec(f"{parent}.{name}") is None:
        return False
    return isinstance(vars(importlib.import_module(parent)).get(name, importlib), ModuleType)


def _declared(tree: ast.Module, name: str) -> tuple[str, ...]:
    """The value of a name in a module, which need not be importable here; nothing where it has none."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(getattr(t, "id", None) == name for t in node.targets):
            return tuple(ast.literal_eval(node.value))
    return ()


def _beside(module: str, name: str) -> str:
    """The text of a file that lies beside a module."""
    return (_file_of(module).parent / name).read_text(encoding="utf-8")


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
