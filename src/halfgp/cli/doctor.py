"""`halfgp doctor`."""

from __future__ import annotations

from halfgp import doctor
from halfgp.cli.options import AsJson
from halfgp.cli.output import show, show_json


def run(as_json: AsJson = False) -> None:
    """Show what this machine has, and which backend would serve it."""
    report = doctor.examine()
    if as_json:
        show_json(report.as_dict())
    else:
        show(doctor.render(report))
