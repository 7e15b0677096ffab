"""Appendix, Figure A.4b: residual norms of stable CG in half by rank, on elevators."""

from __future__ import annotations

from halfgp.paper.context import Context
from halfgp.paper.part import Outcome, Part
from halfgp.paper.residuals import (
    Case,
    larger_is_faster_claim,
    panels,
    rank_note,
    ranks,
    without_converges_claim,
)


def measure(context: Context) -> Outcome:
    """Solve for the targets with each rank."""
    case = Case.load(context, "elevators", quick=3000, full=None)
    data = ranks(context, case)
    return Outcome(
        data,
        (
            without_converges_claim(data),
            larger_is_faster_claim(data),
        ),
        rank_note(case),
    )


PART = Part(
    name="appendix_elevators_ranks",
    title="Ranks of the preconditioner on elevators",
    place="Appendix, Figure A.4b",
    module=__name__,
    measure=measure,
    panels=panels,
    minutes=0.3,
)
