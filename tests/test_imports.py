"""What is imported when: nobody waits for a library that the work at hand does not need."""

from __future__ import annotations

import subprocess
import sys

import pytest

from halfgp.cli.failures import COMMANDS, _imported

HEAVY = ("sklearn", "scipy.optimize", "rich", "typer", "matplotlib", "pandas", "pyarrow", "gpytorch")
HELP = """
from halfgp.cli import app
try:
    app(["--help"])
except SystemExit:
    pass
"""


@pytest.mark.parametrize(
    ("work", "without"),
    [
        ("import halfgp", ("torch", "numpy", "scipy", *HEAVY)),
        ("import halfgp; halfgp.InputError", ("torch", "numpy", "scipy", *HEAVY)),
        ("import halfgp as h; h.kernels; h.ExactGP; h.KernelOperator; h.cg; h.RBF", HEAVY),
        (HELP, ("torch", "numpy", "scipy", "sklearn", "matplotlib", "halfgp.settings")),
    ],
    ids=["package", "an exception", "a model", "help"],
)
def test_modules_that_must_not_be_loaded(work: str, without: tuple[str, ...]) -> None:
    script = f"{work}\nimport sys\nprint(*sorted(sys.modules), file=sys.stderr)"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True)
    loaded = set(found.stderr.split())
    assert not loaded & set(without)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_what_each_says_of_itself(name: str) -> None:
    assert " ".join(_imported(name).help.split()).startswith(COMMANDS[name])
