"""`halfgp doctor`."""

from __future__ import annotations

from typing import Annotated

import torch
import typer

from halfgp import doctor
from halfgp.cli.options import AsJson
from halfgp.cli.output import show, show_json
from halfgp.selftest import Outcome, self_test

SelfTest = Annotated[
    bool, typer.Option("--selftest", help="Also hold the backend of the GPU, or of the CPU, to its contract.")
]


def run(as_json: AsJson = False, selftest: SelfTest = False) -> None:
    """Show what this machine has, and which backend would serve it."""
    report = doctor.examine()
    device = "cuda" if report.chosen_on_gpu else "cpu"
    outcomes = list(self_test(device)) if selftest else []
    failed = [outcome for outcome in outcomes if outcome.failure]
    if as_json:
        tested = {"selftest": _as_dict(device, outcomes, failed)} if selftest else {}
        show_json({**report.as_dict(), **tested})
    else:
        show(doctor.render(report))
        if selftest:
            _tell(device, len(outcomes), failed)
    if failed:
        raise typer.Exit(1)


def _as_dict(device: str, outcomes: list[Outcome], failed: list[Outcome]) -> dict[str, object]:
    return {"device": _name(device), "cases": len(outcomes), "failed": [vars(outcome) for outcome in failed]}


def _tell(device: str, cases: int, failed: list[Outcome]) -> None:
    for outcome in failed:
        show(f"failed: {outcome.kernel}, {outcome.precision}, {outcome.check}: {outcome.failure}")
    show(f"{cases - len(failed)} of {cases} cases of the contract hold on {_name(device)}.")


def _name(device: str) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else "the CPU"
