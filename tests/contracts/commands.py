"""Commands run from tests: in this process, or in one of their own that can be stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from contracts import forked
from typer.testing import CliRunner, Result

from halfgp.cli import app
from halfgp.tables import write_table

# A test run in the background of a shell ignores Ctrl-C, and so would its children.
PROGRAM = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from halfgp.cli import main
main()
"""


def run(*arguments: object, code: int | None = 0) -> Result:
    result = CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": "100"})
    assert code is None or result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


def json_of(*arguments: object, code: int = 0) -> dict[str, Any]:
    document = json.loads(run(*arguments, "--json", code=code).stdout)
    assert isinstance(document, dict)
    return document


def start(*arguments: object) -> forked.Program:
    return forked.Program(PROGRAM, *arguments)


def flat(text: str) -> str:
    """Without the line breaks of a narrow screen."""
    return " ".join(text.split())


def make_rows(path: Path, rows: int, seed: int, **more: Any) -> Path:
    rng = np.random.default_rng(seed)
    wind, slope = rng.uniform(-2, 2, size=(2, rows))
    power = 50 + 10 * np.sin(wind) + 2 * slope + 0.5 * rng.standard_normal(rows)
    write_table(path, {"wind": wind, "slope": slope, "power": power, **more})
    return path
