"""`halfgp doctor --selftest`: the contract on the device of a user, and what is said where it is broken."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from contracts.backends import BACKENDS
from typer.testing import CliRunner

from halfgp import Matern
from halfgp.backends.reference import ReferenceBackend, ReferenceMatrix
from halfgp.cli import app
from halfgp.precision import PRESETS
from halfgp.selftest import run, self_test
from halfgp.selftest.contestant import Contestant

PLACES = [place for place in BACKENDS if place.id in ("reference", "triton")]


class OffByAThousandth(ReferenceBackend):
    """A device that is not what it was taken for."""

    def bind(self, *arguments: Any, **options: Any) -> ReferenceMatrix:
        matrix = super().bind(*arguments, **options)
        product = matrix.matmul
        matrix.matmul = lambda v, diagonal: 1.001 * product(v, diagonal)  # type: ignore[method-assign]
        return matrix


@pytest.fixture(autouse=True)
def one_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "KERNELS", {"matern32": Matern(1.5)})


@pytest.mark.parametrize("contestant", PLACES)
def test_every_case_holds_and_is_told(monkeypatch: pytest.MonkeyPatch, contestant: Contestant) -> None:
    monkeypatch.setattr(run, "get_backend", lambda *_: contestant.backend)
    assert run.contestant_on("cpu").label == contestant.label
    outcomes = list(self_test("cpu"))
    assert {(case.precision, case.check) for case in outcomes} == {
        (precision, check) for precision in PRESETS for check in (*run.CHECKS, *run.GRADIENTS)
    }
    assert [case for case in outcomes if case.failure] == []


def test_what_does_not_hold_is_named_and_fails_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "get_backend", lambda *_: OffByAThousandth())
    done = CliRunner().invoke(app, ["doctor", "--selftest", "--json"])
    assert done.exit_code == 1
    told = json.loads(done.output)["selftest"]
    assert {case["check"] for case in told["failed"]} == {"square product", "rectangular product"}
    assert all("times the bound" in case["failure"] for case in told["failed"])
    shown = CliRunner().invoke(app, ["doctor", "--selftest"]).output
    assert "failed: matern32, double, square product" in shown


def test_what_a_device_raises_is_a_failure_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise torch.cuda.OutOfMemoryError("no memory")

    monkeypatch.setattr(run, "CHECKS", {"block": refuse})
    failures = {case.failure for case in self_test("cpu") if case.check == "block"}
    assert failures == {"OutOfMemoryError: no memory"}
