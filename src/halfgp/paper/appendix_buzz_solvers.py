"""Appendix, Figure A.4a: residual norms of CG in half and in single on the stand-in for buzz."""

from __future__ import annotations

from halfgp.paper.context import Context
from halfgp.paper.part import Outcome, Part
from halfgp.paper.residuals import BUZZ, Case, panels, solver_claims, solver_note, solvers


def measure(context: Context) -> Outcome:
    """Solve for the targets with each solver."""
    case = Case.load(context, "covtype_elev", quick=3000, full=30_000)
    data = solvers(context, case)
    return Outcome(data, solver_claims(data), f"{solver_note(case)} {BUZZ}")


PART = Part(
    name="appendix_buzz_solvers",
    title="Residual norms on a stand-in for buzz",
    place="Appendix, Figure A.4a",
    module=__name__,
    measure=measure,
    panels=panels,
    minutes=2.0,
)
