"""The command line parses, calls and prints; it shows no traceback for a mistyped command."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner, Result

from halfgp import doctor
from halfgp.cli import app
from halfgp.version import __version__


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "100"})


def test_version_is_the_package_version() -> None:
    result = run("--version")
    assert result.exit_code == 0
    assert result.output.strip() == f"halfgp {__version__}"


def test_doctor_prints_one_screen() -> None:
    result = run("doctor")
    assert result.exit_code == 0
    assert "halfgp doctor" in result.output
    assert len(result.output.splitlines()) <= 24


def test_doctor_as_json_is_the_report() -> None:
    result = run("doctor", "--json")
    assert result.exit_code == 0
    printed = json.loads(result.output)
    assert set(printed) == set(doctor.examine().as_dict())
    assert printed["versions"]["halfgp"] == __version__


@pytest.mark.parametrize("arguments", [("no-such-command",), ("doctor", "--no-such-option")])
def test_a_mistake_is_named_without_a_traceback(arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert arguments[-1] in result.output
    assert "Traceback" not in result.output


def test_without_arguments_the_commands_are_listed() -> None:
    assert "doctor" in run().output
