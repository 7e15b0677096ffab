"""Figure 5a: residual norms of CG in half and in single on elevators."""

from __future__ import annotations

from halfgp.paper.context import Context
from halfgp.paper.part import Outcome, Part
from halfgp.paper.residuals import Case, panels, solver_claims, solver_note, solvers


def measure(context: Context) -> Outcome:
    """Solve for the targets with each solver."""
    case = Case.load(context, "elevators", quick=3000, full=None)
    data = solvers(context, case)
    return Outcome(data, solver_claims(data, required=True), solver_note(case))


PART = Part(
    name="fig5a",
    title="Residual norms on elevators",
    place="Figure 5a",
    module=__name__,
    measure=measure,
    panels=panels,
    minutes=0.3,
)
