"""Appendix, Figure A.4d: residual norms by rank of the preconditioner, on pol with one lengthscale."""

from __future__ import annotations

from halfgp.paper.context import Context
from halfgp.paper.part import Outcome, Part
from halfgp.paper.residuals import Case, larger_is_faster_claim, panels, rank_note, ranks


def measure(context: Context) -> Outcome:
    """Solve for the targets with each rank."""
    case = Case.load(context, "pol", quick=3000, full=None, ard=False, training="paper")
    data = ranks(context, case)
    return Outcome(data, (larger_is_faster_claim(data),), rank_note(case))


PART = Part(
    name="appendix_pol_without_ard",
    title="Ranks of the preconditioner on pol, one lengthscale",
    place="Appendix, Figure A.4d",
    module=__name__,
    measure=measure,
    panels=panels,
    minutes=0.3,
)
