"""Appendix, Figure A.4c: residual norms of stable CG in half by rank, on keggdirected."""

from __future__ import annotations

from halfgp.paper.context import Context
from halfgp.paper.part import Outcome, Part
from halfgp.paper.residuals import Case, larger_is_faster_claim, panels, rank_note, ranks


def measure(context: Context) -> Outcome:
    """Solve for the targets with each rank."""
    case = Case.load(context, "keggdirected", quick=3000, full=None)
    data = ranks(context, case)
    return Outcome(data, (larger_is_faster_claim(data),), rank_note(case))


PART = Part(
    name="appendix_keggdirected_ranks",
    title="Ranks of the preconditioner on keggdirected",
    place="Appendix, Figure A.4c",
    module=__name__,
    measure=measure,
    panels=panels,
    minutes=1.0,
)
