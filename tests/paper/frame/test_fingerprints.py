"""Results are stale once anything has changed that can change a figure, and not before."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import importlib.util
import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from contracts import forked
from paper.fakes import outcome, part, runs

from halfgp.paper.contents import PARTS
from halfgp.paper.frame import fingerprints, store
from halfgp.paper.frame.context import Context
from halfgp.paper.frame.fingerprints import fingerprint_of, modules_of, path_of, source_of
from halfgp.paper.frame.run import run

pytest.importorskip("matplotlib")

BY_NAME = {part.name: part for part in PARTS}
PACKAGE = Path(fingerprints.__file__).parents[1]
Edit = Callable[..., None]


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(quick=True, output=tmp_path)


def current(context: Context) -> dict[str, str]:
    return {part.name: store.fingerprint_now(part, context) for part in PARTS}


def stale(before: dict[str, str], context: Context) -> set[str]:
    return {name for name, now in current(context).items() if now != before[name]}


def test_a_result_is_stale_once_the_source_of_its_study_changes(context: Context, edit: Edit) -> None:
    parts = (BY_NAME["fig2a"], BY_NAME["fig1"])
    first = run(parts, context, contents=parts)
    assert [store.is_current(*pair, context) for pair in zip(parts, first.results, strict=True)] == [True] * 2
    edit("halfgp.paper.studies.support")
    assert not store.is_current(parts[0], first.results[0], context)
    assert store.is_current(parts[1], first.results[1], context)
    second = run(parts, context, contents=parts)
    assert second.results[0].fingerprint != first.results[0].fingerprint
    assert second.results[1] == first.results[1]  # kept


@pytest.mark.parametrize(
    ("module", "touched", "untouched"),
    [
        ("paper.studies.spectra", {"fig2d", "fig2e", "appendix_spectral_cutoff"}, {"fig2a", "table1"}),
        ("paper.studies.residuals", {"fig3", "fig5a", "fig5d"}, {"fig1", "fig6"}),
        ("paper.studies.plan", {"table1", "fig6", "fig7", "appendix_test_precision"}, {"fig5a"}),
        ("paper.studies.fits", {"table1", "fig6", "fig7", "appendix_nll", "appendix_matern12"}, {"fig5a"}),
        ("paper.studies.svgp", {"table1", "appendix_rmse", "appendix_nll"}, {"fig5a"}),
        ("paper.parts.tolerances", {"fig5d"}, {"fig5e"}),
        ("paper.frame.context", set(BY_NAME), set()),
        ("paper.frame.page", set(), set(BY_NAME)),
        ("solvers.cg", {"fig5a", "fig3", "table1"}, set()),
        ("analysis.rounding", {"fig1", "fig4b"}, {"table1"}),
        ("kernels.stationary", set(BY_NAME), set()),
        ("report.page", set(), set(BY_NAME)),
        ("cli.paper", set(), set(BY_NAME)),
    ],
)
def test_code_is_of_a_part_and_of_all_that_it_imports(
    context: Context, edit: Edit, module: str, touched: set[str], untouched: set[str]
) -> None:
    before = current(context)
    edit(f"halfgp.{module}")
    found = stale(before, context)
    assert touched <= found
    assert not untouched & found


def test_settings_of_fits_are_part_of_it(context: Context, edit: Edit) -> None:
    before = current(context)
    edit("halfgp.paper.studies.plan", "FULL = Effort(steps=51, epochs=50, inducing=1024)")
    assert {"table1", "fig6", "appendix_matern52"} <= stale(before, context)


def test_comments_docstrings_and_layout_change_no_figure(context: Context, edit: Edit) -> None:
    before = current(context)
    edit("halfgp.paper.studies.support", "# A comment,\n\n\n# and lines.")
    assert not stale(before, context)
    one, other = (
        fingerprints._normal(ast.parse(text))
        for text in ('"""A."""\ndef f():\n    """B."""\n    return 1', "def f():  # C\n  return (1)")
    )
    assert one == other


def test_mode_and_seed_are_settings(context: Context) -> None:
    before = current(context)
    assert stale(before, replace(context, seed=1)) == set(BY_NAME)
    assert stale(before, replace(context, quick=False)) == set(BY_NAME)


@pytest.mark.parametrize(
    ("package", "name", "other"),
    [("gpytorch", "table1", "fig5a"), ("pykeops", "fig7", "table1"), ("torch", "fig1", None)],
)
def test_versions_are_of_the_packages_that_are_used(
    context: Context, monkeypatch: pytest.MonkeyPatch, edit: Edit, package: str, name: str, other: str | None
) -> None:
    before = current(context)
    version = importlib.metadata.version

    def absent(wanted: str) -> str:
        if wanted == package:
            return "0.0"
        return version(wanted)

    monkeypatch.setattr(importlib.metadata, "version", absent)
    edit("nothing")  # what was read before is read anew
    found = stale(before, context)
    assert name in found
    assert other not in found


def test_a_package_that_is_absent_has_no_version() -> None:
    assert fingerprints._versions(["no_such_package"])["no_such_package"] is None


def test_only_backends_are_imported_by_names_that_are_made_up() -> None:
    root = PACKAGE.parent
    found = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if re.search(r'import_module\(f"halfgp', path.read_text())
    }
    # The first is for users and the second for the shell; nobody below imports either.
    assert found == {"__init__.py", "cli/failures.py", "backends/__init__.py"}
    assert "halfgp.backends.cpu" in modules_of("halfgp.paper.studies.residuals")


def test_the_compiled_extension_counts() -> None:
    pytest.importorskip("halfgp._cpu")
    assert "halfgp._cpu" in modules_of("halfgp.paper.studies.residuals")
    assert "halfgp._cpu" not in modules_of("halfgp.version")
    found = fingerprints._read("halfgp._cpu")
    assert re.fullmatch(r"[0-9a-f]{64}", found.code)
    assert not found.imports


def test_without_the_extension_there_is_a_fingerprint_too() -> None:
    program = (
        "import sys; sys.modules['halfgp._cpu'] = None\n"  # cannot be found, as where it was never built
        "from halfgp.paper.frame.fingerprints import fingerprint_of\n"
        "print(fingerprint_of('halfgp.paper.studies.residuals', {}))"
    )
    done = forked.run(program, check=True)
    assert re.fullmatch(r"[0-9a-f]{64}\n", done.stdout)
    if importlib.util.find_spec("halfgp._cpu") is not None:
        assert done.stdout.strip() != fingerprint_of("halfgp.paper.studies.residuals", {})


def test_files_beside_a_module_count(context: Context, monkeypatch: pytest.MonkeyPatch, edit: Edit) -> None:
    before = current(context)
    monkeypatch.setattr(fingerprints, "_beside", lambda module, name: "{}")
    edit("nothing")
    found = stale(before, context)
    assert {"fig3", "fig5a"} <= found
    assert not {"fig1", "table1"} & found


def test_what_modules_read_and_may_lack_is_declared() -> None:
    modules = {
        path: importlib.import_module(f"halfgp.paper.{path.parent.name}.{path.stem}")
        for folder in ("studies", "parts")
        for path in (PACKAGE / folder).glob("*.py")
    }
    lying = {
        path.name
        for folder in ("studies", "parts")
        for path in (PACKAGE / folder).iterdir()
        if path.is_file() and path.suffix != ".py"
    }
    declared = {name for module in modules.values() for name in getattr(module, "FILES", ())}
    assert declared == lying
    for path, module in modules.items():
        looked_for = set(re.findall(r'(?:find_spec|import_module)\("(\w+)"\)', path.read_text()))
        assert looked_for == set(getattr(module, "PACKAGES", ())), path


def write_set(folder: Path, scale: float = 1.0) -> Path:
    path = folder / "tiny" / "data.csv.gz"
    path.parent.mkdir(exist_ok=True)
    np.savetxt(path, scale * np.arange(60.0).reshape(20, 3), delimiter=",")
    return path


def test_a_part_is_run_again_when_its_data_change(context: Context, tmp_path: Path) -> None:
    context = replace(context, data=tmp_path)
    parts = (part("one", lambda c: (c.rows("tiny"), outcome())[1]), part("two"))
    path = write_set(tmp_path)

    def run_both() -> list[int]:
        run(parts, context, contents=parts)
        return [runs(tmp_path, name) for name in ("one", "two")]

    assert run_both() == [1, 1]
    assert json.loads((tmp_path / "one.json").read_text())["sets"].keys() == {"tiny"}
    os.utime(path, ns=(1, 1))
    assert run_both() == [1, 1]  # the same data
    write_set(tmp_path, scale=2.0)
    assert run_both() == [2, 1]
    path.unlink()
    assert run_both() == [2, 1]  # data that are not there have not changed


def test_a_result_of_earlier_versions_is_read_and_stale(context: Context) -> None:
    parts = (part("one"),)
    run(parts, context, contents=parts)
    path = context.output / "one.json"
    document = json.loads(path.read_text())
    del document["sets"]
    path.write_text(json.dumps(document | {"fingerprint": "of another kind"}))
    assert store.read(context.output, "one") is not None
    run(parts, context, contents=parts)
    assert runs(context.output, "one") == 2


def test_modules_are_told_nearest_first() -> None:
    found = modules_of("halfgp.paper.studies.dimensions")
    assert found[0] == "halfgp.paper.studies.dimensions"
    assert "halfgp.paper.studies.spectra" in found
    assert "halfgp.paper.frame.run" not in found
    assert path_of(found[0]) == "src/halfgp/paper/studies/dimensions.py"
    assert source_of(found[0]).startswith('"""The effective dimension')
    some = modules_of("halfgp.paper.studies.fits", without=("halfgp.paper.studies.svgp",))
    assert "halfgp.paper.studies.svgp" not in some


def test_fingerprints_are_the_same_in_every_call() -> None:
    settings = {"mode": "quick", "seed": 0}
    module = "halfgp.paper.studies.support"
    assert fingerprint_of(module, settings) == fingerprint_of(module, dict(reversed(settings.items())))
