"""`import halfgp` needs no compiled code: the reference serves, with one warning that names the remedy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

# Each script runs in a process that cannot find the extension, as on a machine that never built it.
BLOCK = """
import importlib.abc, json, sys, warnings

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "halfgp._cpu":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
"""


def run(script: str) -> dict[str, object]:
    """What the script printed as JSON."""
    source = Path(__file__).parents[1] / "src"
    environment = os.environ | {"PYTHONPATH": str(source)}
    finished = subprocess.run(
        [sys.executable, "-c", BLOCK + textwrap.dedent(script)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert finished.returncode == 0, finished.stderr
    printed: dict[str, object] = json.loads(finished.stdout)
    return printed


@pytest.fixture(scope="module")
def products() -> dict[str, object]:
    return run(
        """
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
        print(json.dumps({
            "backend": first.backend,
            "error": float(abs(product - truth).max()),
            "warnings": [str(w.message) for w in ours],
            "files": [w.filename for w in ours],
            "at_import": imported,
        }))
        """
    )


def test_the_reference_serves_and_is_right(products: dict[str, object]) -> None:
    assert products["backend"] == "reference"
    # Single precision: 30 entries of at most 2.1 a row, each off by a few units of roundoff.
    assert isinstance(products["error"], float)
    assert products["error"] < 30 * 2.1 * 16 * 2.0**-24


def test_two_operators_warn_once_and_name_the_remedy(products: dict[str, object]) -> None:
    messages = products["warnings"]
    assert isinstance(messages, list)
    assert len(messages) == 1
    assert "compiler" in messages[0]


def test_the_warning_points_at_the_caller(products: dict[str, object]) -> None:
    assert products["files"] == ["<string>"]


def test_importing_alone_says_nothing(products: dict[str, object]) -> None:
    assert products["at_import"] == []


def test_asking_for_the_compiled_backend_by_name_is_an_error_with_the_remedy() -> None:
    found = run(
        """
        import torch
        from halfgp import RBF, KernelOperator
        from halfgp.errors import BackendError
        try:
            KernelOperator(RBF(), torch.zeros(2, 1), backend="cpu")
            message = "no error"
        except BackendError as error:
            message = str(error)
        print(json.dumps({"message": message}))
        """
    )
    assert "compiler" in str(found["message"])


def test_the_doctor_works() -> None:
    found = run(
        """
        from halfgp.doctor import examine
        report = examine()
        print(json.dumps({"chosen": report.chosen, "sets": report.instruction_sets}))
        """
    )
    assert found == {"chosen": "reference", "sets": []}
