"""The doctor tells facts, never fails for want of one, and agrees with what operators choose."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import platform
from pathlib import Path
from types import SimpleNamespace

import numpy
import pytest
import torch
from rich.console import Console

from halfgp import backends, doctor, memory
from halfgp.version import __version__


@pytest.fixture
def report() -> doctor.Report:
    return doctor.examine()


def test_the_report_is_frozen(report: doctor.Report) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.chosen = "other"  # type: ignore[misc]


def test_the_report_survives_json(report: doctor.Report) -> None:
    assert json.loads(json.dumps(report.as_dict()))["chosen"] == report.chosen


def test_cores_and_threads_are_those_of_this_process(report: doctor.Report) -> None:
    assert 1 <= report.cores <= (os.cpu_count() or 1)
    assert report.threads == torch.get_num_threads()


@pytest.mark.skipif(platform.system() != "Linux", reason="reads Linux's /proc")
def test_memory_is_known_on_linux(report: doctor.Report) -> None:
    assert report.memory_bytes is not None
    assert report.memory_available_bytes is not None
    assert 2**28 < report.memory_bytes < 2**50


def test_versions_are_the_imported_ones(report: doctor.Report) -> None:
    assert report.versions["halfgp"] == __version__
    assert report.versions["torch"] == torch.__version__
    assert report.versions["numpy"] == numpy.__version__
    assert report.versions["Python"] == platform.python_version()


def test_the_chosen_backend_is_the_one_that_auto_takes(report: doctor.Report) -> None:
    assert report.chosen == backends.get_backend("auto", torch.device("cpu")).name
    assert report.chosen in {backend.name for backend in report.backends if backend.available}
    assert report.reason


def test_every_backend_is_listed(report: doctor.Report) -> None:
    assert tuple(backend.name for backend in report.backends) == backends.NAMES


def test_instruction_sets_start_with_the_portable_one(report: doctor.Report) -> None:
    if "cpu" not in backends.available():
        assert report.instruction_sets == ()
    else:
        assert report.instruction_sets[0] == "scalar"


def engine_note() -> tuple[bool, str]:
    return next((found.available, found.note) for found in doctor.examine().backends if found.name == "cpu")


@pytest.mark.skipif("cpu" not in backends.available(), reason="halfgp._cpu was not built")
def test_an_instruction_set_that_the_environment_forces_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HALFGP_INSTRUCTION_SET", raising=False)
    assert "HALFGP_INSTRUCTION_SET" not in engine_note()[1]
    monkeypatch.setenv("HALFGP_INSTRUCTION_SET", "scalar")
    assert engine_note() == (True, "compiled, with scalar, as HALFGP_INSTRUCTION_SET says")
    monkeypatch.setenv("HALFGP_INSTRUCTION_SET", "mmx")
    available, note = engine_note()
    assert not available
    assert "`HALFGP_INSTRUCTION_SET` must be one of ['scalar'" in note


def test_without_the_extension_the_reference_is_chosen_and_the_reason_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backends, "available", lambda: ("reference",))
    monkeypatch.setattr(backends, "is_available", lambda name: name == "reference")
    monkeypatch.setattr(doctor, "_instruction_sets", lambda: ())
    report = doctor.examine()
    assert report.chosen == "reference"
    assert "cpu" in report.reason
    assert "compiler" in next(backend.note for backend in report.backends if backend.name == "cpu")


def test_a_machine_without_proc_is_reported_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "exists", lambda self: False)
    monkeypatch.setattr(memory, "_text", lambda path: "")
    report = doctor.examine()
    assert report.processor
    assert report.memory_available_bytes is None


@pytest.mark.parametrize("width", [80, 120])
def test_the_screen_fits_a_terminal(report: doctor.Report, width: int) -> None:
    screen = io.StringIO()
    Console(file=screen, width=width).print(doctor.render(report))
    lines = screen.getvalue().splitlines()
    assert len(lines) <= 24
    assert report.chosen in screen.getvalue()


def test_a_gpu_is_told_with_the_path_and_the_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.examine().chosen_on_gpu is None or torch.cuda.is_available()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    cards = [
        SimpleNamespace(name=name, total_memory=40 * 2**30, major=8, minor=minor)
        for name, minor in (("A card", 0), ("Another", 9))
    ]
    monkeypatch.setattr(torch.cuda, "get_device_properties", cards.__getitem__)
    monkeypatch.setattr(backends, "is_available", lambda name: name == "reference")
    report = doctor.examine()
    assert report.cuda == ("A card, 40.0 GiB, sm80", "Another, 40.0 GiB, sm89")
    assert report.chosen_on_gpu == "reference"
    screen = io.StringIO()
    Console(file=screen, width=100).print(doctor.render(report))
    assert "Tensors on a GPU use reference" in screen.getvalue()


@pytest.mark.parametrize(
    ("capability", "path"), [((9, 0), "sm90, tensor cores"), ((7, 5), "no tensor cores")]
)
def test_the_path_of_a_gpu_follows_from_what_it_can_do(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], path: str
) -> None:
    triton = pytest.importorskip("halfgp.backends.triton")
    monkeypatch.setattr(triton, "INTERPRETED", False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    assert path in doctor._examine_gpu().note
