"""Figure 5c: residual norms of stable CG in half by rank of the preconditioner, on the stand-in for buzz."""

from __future__ import annotations

from halfgp.paper.context import Context
from halfgp.paper.part import Claim, Data, Outcome, Part, Verdict
from halfgp.paper.residuals import BUZZ, Case, converged, diverges, listed, panels, rank_note, ranks
from halfgp.report import words


def measure(context: Context) -> Outcome:
    """Solve for the targets with each rank."""
    case = Case.load(context, "covtype_elev", quick=3000, full=30_000)
    data = ranks(context, case)
    return Outcome(data, (_rescued(data), _alike(data)), f"{rank_note(case)} {BUZZ}")


def _rescued(data: Data) -> Claim:
    without, five = data["runs"][:2]
    return Claim(
        text="Without a preconditioner stable CG in half diverges; one of rank 5 is enough to converge.",
        paper="It diverges without, and converges with rank 5.",
        measured=f"{listed([without, five])}.",
        verdict=Verdict.of(diverges(without) and converged(five)),
        reason=_why(data),
    )


def _why(data: Data) -> str:
    without, five = data["runs"][:2]
    told = f"The rounding errors of the entries are about {words.number(data['rho'], 2)} times the noise (ρ)."
    if diverges(without):
        return (
            f"{told} A preconditioner takes out the large eigenvalues, beside which the others are rounded."
        )
    return (
        f"{told} Re-orthogonalised against every earlier residual, CG does not diverge then: the residual"
        f" rises at first, to {words.number(max(without['history']), 2)} without a preconditioner and"
        f" {words.number(max(five['history']), 2)} with rank 5, as that of CG may, and falls later. Buzz,"
        " with more rows, may have been harder."
    )


def _alike(data: Data) -> Claim:
    taken = [run["iterations"] for run in data["runs"][1:]]
    return Claim(
        text="Ranks 15 and 50 behave as rank 5 does.",
        paper="Similarly.",
        measured=f"{listed(data['runs'][1:])}.",
        verdict=Verdict.of(None not in taken and max(taken) <= 1.25 * min(taken)),
        reason="“Similarly” is taken for a quarter more iterations at most.",
    )


PART = Part(
    name="fig5c",
    title="Ranks of the preconditioner on a stand-in for buzz",
    place="Figure 5c",
    module=__name__,
    measure=measure,
    panels=panels,
    minutes=0.8,
)
