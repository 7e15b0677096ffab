"""What a figure or a table of the paper is here: a measurement, claims that it decides, how it is shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from halfgp.paper.frame.context import Context
from halfgp.report.pictures import Draw

PACKAGES = ("matplotlib",)  # that draws panels
Data = dict[str, Any]


class Verdict(str, Enum):
    """What a measurement says about a claim."""

    HOLDS = "holds"
    IN_PART = "holds in part"
    FAILS = "does not hold"
    OPEN = "not measured"

    @classmethod
    def of(cls, *holds: bool) -> Verdict:
        """Of a claim about several cases, each of which was found true or false: all, some or none."""
        if not holds:
            return cls.OPEN
        return cls.HOLDS if all(holds) else cls.IN_PART if any(holds) else cls.FAILS


@dataclass(frozen=True)
class Claim:
    """One statement of the paper and what became of it.

    Attributes:
        text: the claim, in our words.
        paper: what the paper reports for it.
        measured: what was found here, with figures.
        verdict: whether it holds.
        reason: why, in a plain sentence.
        required: whether a run fails when it does not hold. Only for what has held at full size.
    """

    text: str
    paper: str
    measured: str
    verdict: Verdict
    reason: str
    required: bool = False


@dataclass(frozen=True)
class Outcome:
    """What a part found.

    Attributes:
        data: every number that is shown; plain values, lists, tensors and arrays. Files hold null for what is
            not finite, and that is also what drawing sees (None).
        claims: what was decided by it.
        note: what was measured, on what, of which size, with which seeds and stand-ins, in words.
    """

    data: Data
    claims: tuple[Claim, ...]
    note: str


@dataclass(frozen=True)
class Panel:
    """One pair of axes of a picture; panels stand beside one another, on a phone below.

    Attributes:
        title: above it; "" for a part with one panel, which has its own title.
        draw: draws into the axes, which have the style of the page and its legend.
        caption: below it.
    """

    title: str
    draw: Draw
    caption: str = ""


@dataclass(frozen=True)
class Table:
    """Text in rows and columns.

    Attributes:
        heading: of the columns; the first one names the rows.
        rows: each as long as the heading.
        caption: below it.
    """

    heading: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""


@dataclass(frozen=True)
class Part:
    """One figure or table of the paper.

    Attributes:
        name: of its result and on the command line: "fig2a".
        title: what is shown, in a few words.
        place: in the paper: "Figure 2a".
        module: the `__name__` of the file that declares it: with what that imports, the code that makes it.
        measure: finds the numbers.
        panels: the pictures of the data as it was stored; None for a table alone.
        table: of the same data; None for pictures alone.
        minutes: that it takes in full on two cores, for the time left; shared fits count once.
    """

    name: str
    title: str
    place: str
    module: str
    measure: Callable[[Context], Outcome]
    panels: Callable[[Data], Sequence[Panel]] | None = None
    table: Callable[[Data], Table] | None = None
    minutes: float = 0.1

    @property
    def short_place(self) -> str:
        """For lists: "Fig. 2a"."""
        return self.place.removeprefix("Appendix, ").replace("Figure", "Fig.")
