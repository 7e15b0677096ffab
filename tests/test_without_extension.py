"""`import halfgp` needs no compiled code: the reference serves, with one warning that names the remedy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

# It runs in a process that cannot find the extension, as on a machine that never built it.
SCRIPT = """
import importlib.abc, json, sys, warnings

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "halfgp._cpu":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import numpy as np
    from halfgp import RBF, KernelOperator
    imported = [str(w.message) for w in caught if "halfgp" in str(w.message)]
    x = np.random.default_rng(0).standard_normal((30, 3))
    v = np.ones((30, 2))
    kernel = 2.0 * RBF(lengthscale=1.5)
    first = KernelOperator(kernel, x, noise=0.1)
    second = KernelOperator(kernel, x, x[:5])
    product = first @ v
    second @ v[:5]
s = ((x[:, None] - x[None]) ** 2).sum(-1)
truth = (2 * np.exp(-s / (2 * 1.5**2)) + 0.1 * np.eye(30)) @ v
ours = [w for w in caught if w.category.__name__ == "BackendWarning"]

from halfgp.doctor import examine
from halfgp.errors import BackendError

try:
    KernelOperator(kernel, x, backend="cpu")
    refused = "no error"
except BackendError as error:
    refused = str(error)
report = examine()
print(json.dumps({
    "backend": first.backend,
    "error": float(abs(product - truth).max()),
    "warnings": [str(w.message) for w in ours],
    "files": [w.filename for w in ours],
    "at_import": imported,
    "refused": refused,
    "doctor": [report.chosen, report.instruction_sets],
}))
"""


@pytest.fixture(scope="module")
def found() -> dict[str, object]:
    """What the script printed."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1] / "src")}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    printed: dict[str, object] = json.loads(done.stdout)
    return printed


def test_the_reference_serves_and_is_right(found: dict[str, object]) -> None:
    assert found["backend"] == "reference"
    # Single precision: 30 entries of at most 2.1 a row, each off by a few units of roundoff.
    assert isinstance(found["error"], float)
    assert found["error"] < 30 * 2.1 * 16 * 2.0**-24


def test_two_operators_warn_once_and_name_the_remedy(found: dict[str, object]) -> None:
    messages = found["warnings"]
    assert isinstance(messages, list)
    assert len(messages) == 1
    assert "compiler" in messages[0]


def test_the_warning_points_at_the_caller(found: dict[str, object]) -> None:
    assert found["files"] == ["<string>"]


def test_importing_alone_says_nothing(found: dict[str, object]) -> None:
    assert found["at_import"] == []


def test_asking_for_the_compiled_backend_by_name_is_an_error_with_the_remedy(
    found: dict[str, object],
) -> None:
    assert "compiler" in str(found["refused"])


def test_the_doctor_works(found: dict[str, object]) -> None:
    assert found["doctor"] == ["reference", []]
