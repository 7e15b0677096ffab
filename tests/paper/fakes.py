"""Parts that measure nothing, to see what the frame around them does."""

from __future__ import annotations

import os
import time
import warnings
from pathlib import Path

from halfgp.errors import HalfGPWarning
from halfgp.paper.frame.context import Context
from halfgp.paper.frame.part import Claim, Data, Outcome, Panel, Part, Table, Verdict

HOSTILE = "<script>alert(1)</script> & \" ' </style> $title ${x} 標高"


def claim(verdict: Verdict = Verdict.HOLDS, required: bool = False, text: str = "It is so.") -> Claim:
    return Claim(text, "It is.", "It was, by 3.", verdict, "Because.", required)


def outcome(*claims: Claim) -> Outcome:
    return Outcome({"x": [1.0, 2.0, float("inf")], "rows": [["a", "1"]]}, claims or (claim(),), "Noted.")


def panels(data: Data) -> list[Panel]:
    return [Panel("left", lambda axes: axes.plot(data["x"][:2])), Panel("right", lambda axes: axes.bar(0, 1))]


def table(data: Data) -> Table:
    return Table(("name", "value"), tuple(map(tuple, data["rows"])), "In words.")


def part(name: str, measure=None, **options) -> Part:
    """One that counts its runs in a file beside its result."""

    def counted(context: Context) -> Outcome:
        with (context.output / f"{name}.count").open("a") as file:
            file.write("x")
        return outcome() if measure is None else measure(context)

    place = options.pop("place", f"Figure {name}")
    return Part(name, f"Title of {name}", place, __name__, counted, **options)


def runs(output: Path, name: str) -> int:
    path = output / f"{name}.count"
    return len(path.read_text()) if path.exists() else 0


def fail(context: Context) -> Outcome:
    raise ZeroDivisionError("of <something>")


def warned(context: Context) -> Outcome:
    for _ in range(2):
        warnings.warn("A warning to keep.", HalfGPWarning, stacklevel=2)
    return outcome()


def wait_to_be_killed(context: Context) -> Outcome:
    """Wait, the first time, for a signal that ends everything."""
    waiting = context.output / "waiting"
    if not waiting.exists():
        waiting.write_text(str(os.getpid()))
        time.sleep(60)
    return outcome()


KILLED = (part("first", panels=panels), part("second", wait_to_be_killed), part("third"))
