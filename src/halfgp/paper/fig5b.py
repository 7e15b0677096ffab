"""Figure 5b: residual norms of CG in half and in single on keggdirected."""

from __future__ import annotations

from halfgp.paper.context import Context
from halfgp.paper.part import Outcome, Part
from halfgp.paper.residuals import Case, panels, solver_claims, solver_note, solvers


def measure(context: Context) -> Outcome:
    """Solve for the targets with each solver."""
    case = Case.load(context, "keggdirected", quick=3000, full=None)
    data = solvers(context, case)
    return Outcome(data, solver_claims(data, required=True), solver_note(case))


PART = Part(
    name="fig5b",
    title="Residual norms on keggdirected",
    place="Figure 5b",
    module=__name__,
    measure=measure,
    panels=panels,
    minutes=1.4,
)
