"""Residuals of CG in half and in single: by solver, and by the rank of the preconditioner.

Figures 5a to 5c, and A.4 of the appendix.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from halfgp.analysis import history
from halfgp.paper.frame.context import Context
from halfgp.paper.frame.part import Claim, Data, Outcome, Panel, Part, Verdict
from halfgp.paper.studies.residuals import (
    DRAWN_TOL,
    ITERATIONS,
    PROBES,
    RANK,
    TOL,
    Case,
    converged,
    counts,
    draw_runs,
    listed,
    listed_low,
    outcome,
    solve,
)
from halfgp.report import words
from halfgp.solvers.ladder import LARGEST_RHO

RANKS = (0, 5, 15, 50)
CAPTION = "Residuals as the recurrence has them. A cross: overflow or breakdown."
BUZZ = " Buzz itself is not at hand: covtype, elevation as the target, stands in for it, with fewer rows."

Load = Callable[[Context], Case]


def solvers(context: Context, case: Case) -> Data:
    """Standard CG in half, stable CG in half and CG in single."""
    half, single = case.half(), case.single()
    wanted = (
        (half, "standard", 0, "half, rank 0"),
        (half, "standard", RANK, f"half, rank {RANK}"),
        (half, "stable", RANK, "stable half"),
        (single, "standard single", RANK, "single"),
    )
    runs = []
    for done, (operator, solver, rank, label) in enumerate(wanted):
        context.progress(done, len(wanted) + 1, label)
        runs.append(solve(operator, case.y, solver, rank, label))
    context.progress(len(wanted), len(wanted) + 1, "probes")
    probes = history(
        half, case.probes(context.seed), solver="stable", rank=RANK, tol=TOL, max_iterations=ITERATIONS
    )
    return {
        "runs": runs,
        "probes": {"residual": probes.residual, "iterations": probes.iterations, "status": probes.status},
    }


def solver_note(case: Case) -> str:
    """What `solvers` measures."""
    return (
        f"{case.size}, RBF with ARD at trained hyperparameters; the right-hand side is the targets. In half,"
        " entries are held in half. Standard CG in half holds everything in half, without scaling. The stable"
        f" one and single have a preconditioner of rank {RANK}. Lines end at {DRAWN_TOL:g} or after"
        f" {ITERATIONS} iterations; true residuals are in double."
        f" {case.found.source}"
    )


def solver_claims(data: Data, *, required: bool = False) -> tuple[Claim, ...]:
    """That standard CG fails in half where stable CG does not, which keeps up with single."""
    plain, plain_ranked, stable, single = data["runs"]
    probes = data["probes"]
    fails = Claim(
        text="Standard CG in half fails where stable CG in half converges.",
        paper="Standard CG in half diverges very quickly; the stable one converges.",
        measured=f"Standard without a preconditioner: {outcome(plain)}; with rank {RANK}:"
        f" {outcome(plain_ranked)}. Stable, rank {RANK}: {outcome(stable)}.",
        verdict=Verdict.of(converged(stable), not converged(plain), not converged(plain_ranked)),
        reason="With everything in half, inner products of so many terms overflow or lose what is small, and"
        " steps become zero or infinite. The stable method scales, sums in single and re-orthogonalises.",
        required=required,
    )
    as_early = converged(stable) and (
        not converged(single) or stable["iterations"] <= 1.25 * single["iterations"]
    )
    follows = Claim(
        text=f"Stable CG in half reaches a residual of {TOL:g} in fewer than {ITERATIONS} iterations, as"
        " early as CG in single.",
        paper=f"It closely matches the convergence of single and takes fewer than {ITERATIONS} iterations.",
        measured=f"Half: {outcome(stable)}. Single: {outcome(single)}.",
        verdict=Verdict.of(converged(stable), as_early),
        reason="Re-orthogonalisation saves the iterations that CG without it repeats, in single too; what"
        " half loses in each is less than that. “As early” is taken for a quarter more iterations at most.",
    )
    also = Claim(
        text="Stable CG in half also converges for the random vectors that gradients need.",
        paper="Targets and probes are solved for at the same time, by the same algorithm.",
        measured=f"The worst of {PROBES} Gaussian vectors, rank {RANK}: status {probes['status']} after"
        f" {words.plural(probes['iterations'], 'iteration')}, true residual"
        f" {words.number(probes['residual'], 3)}.",
        verdict=Verdict.of(probes["status"] == "converged"),
        reason="Random vectors have a share in every eigenvector, and those of the smallest eigenvalues come"
        " last; targets lie mostly in those of the largest.",
    )
    return fails, follows, also


def ranks(context: Context, case: Case) -> Data:
    """Stable CG in half by the rank of the preconditioner."""
    half = case.half()
    runs = []
    for done, rank in enumerate(RANKS):
        context.progress(done, len(RANKS), f"rank {rank}")
        runs.append(solve(half, case.y, "stable", rank, f"rank {rank}"))
    return {"runs": runs, "rho": case.rho()}


def rank_note(case: Case) -> str:
    """What `ranks` measures."""
    return (
        f"{case.size}, RBF at trained hyperparameters; the right-hand side is the targets. Stable CG with"
        f" entries in half, pivoted Cholesky. Lines end at {DRAWN_TOL:g} or after {ITERATIONS} iterations;"
        f" true residuals are in double. {case.found.source}"
    )


def diverges(run: Data) -> bool:
    """Whether the residual ends above that of no solution at all, or as no number."""
    last = run["history"][-1]
    return not converged(run) and (run["status"] in ("nonfinite", "breakdown") or last > 1.0)


def without_converges_claim(data: Data) -> Claim:
    """That rank 0 converges too."""
    without = data["runs"][0]
    return Claim(
        text="Stable CG in half converges without a preconditioner too.",
        paper="Here no preconditioning also converges.",
        measured=f"{listed([without])}.",
        verdict=Verdict.of(converged(without)),
        reason="The noise is large beside the rounding errors of the entries, so that the matrix stays"
        " positive definite.",
    )


def larger_is_faster_claim(data: Data) -> Claim:
    """That iterations fall with the rank, a little."""
    with_one = [run for run in data["runs"] if run["rank"] > 0]
    return Claim(
        text="Larger preconditioners converge very slightly faster.",
        paper="Larger preconditioners tend to converge very slightly faster.",
        measured=f"{listed(with_one)}. {listed_low(with_one)}.",
        verdict=Verdict.of(
            *(taken[-1] < taken[0] and taken == sorted(taken, reverse=True) for taken in counts(with_one))
        ),
        reason=_why(data["rho"]),
    )


def _why(rho: float) -> str:
    told = f"The rounding errors of the entries are about {words.number(rho, 2)} times the noise in norm (ρ)."
    if rho > LARGEST_RHO:
        return (
            f"{told} Where that is near 1 the matrix may not be positive definite, and the better a"
            " preconditioner brings out its small eigenvalues, the sooner CG meets them."
        )
    return f"{told} A preconditioner takes the largest eigenvalues out of the spectrum; many more are left."


def rescued_claim(data: Data) -> Claim:
    """That rank 5 converges where nothing does without."""
    without, five = data["runs"][:2]
    return Claim(
        text="Without a preconditioner stable CG in half diverges; one of rank 5 is enough to converge.",
        paper="It diverges without, and converges with rank 5.",
        measured=f"{listed([without, five])}.",
        verdict=Verdict.of(diverges(without) and converged(five)),
        reason=_why_rescued(data),
    )


def _why_rescued(data: Data) -> str:
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


def alike_claim(data: Data) -> Claim:
    """That larger ranks behave as rank 5."""
    taken = [run["iterations"] for run in data["runs"][1:]]
    return Claim(
        text="Ranks 15 and 50 behave as rank 5 does.",
        paper="Similarly.",
        measured=f"{listed(data['runs'][1:])}.",
        verdict=Verdict.of(None not in taken and max(taken) <= 1.25 * min(taken)),
        reason="“Similarly” is taken for a quarter more iterations at most.",
    )


def panels(data: Data) -> list[Panel]:
    """Residuals against iterations."""
    return [Panel("", partial(draw_runs, data["runs"]), CAPTION)]


def _solver_part(
    name: str, place: str, title: str, load: Load, *, required: bool = False, more: str = "", minutes: float
) -> Part:
    """Residuals by solver.

    Args:
        name: of the part.
        place: in the paper.
        title: of the part.
        load: the case.
        required: whether standard CG must fail where the stable one converges.
        more: to say in the note.
        minutes: in full.
    """

    def measure(context: Context) -> Outcome:
        """Solve for the targets with each solver."""
        case = load(context)
        data = solvers(context, case)
        return Outcome(data, solver_claims(data, required=required), f"{solver_note(case)}{more}")

    return Part(name, f"Residual norms on {title}", place, __name__, measure, panels, minutes=minutes)


def _rank_part(
    name: str,
    place: str,
    title: str,
    load: Load,
    *claims: Callable[[Data], Claim],
    more: str = "",
    minutes: float,
) -> Part:
    """Residuals by rank, with these claims; else as `_solver_part`."""

    def measure(context: Context) -> Outcome:
        """Solve for the targets with each rank."""
        case = load(context)
        data = ranks(context, case)
        return Outcome(data, tuple(claim(data) for claim in claims), f"{rank_note(case)}{more}")

    title = f"Ranks of the preconditioner on {title}"
    return Part(name, title, place, __name__, measure, panels, minutes=minutes)


def _load(set_name: str, **options: Any) -> Load:
    """3,000 rows in quick, in full all; `options` are those of `Case.load`."""
    return lambda context: Case.load(context, set_name, **{"quick": 3000, "full": None, **options})


ELEVATORS, KEGGDIRECTED = _load("elevators"), _load("keggdirected")
STAND_IN = _load("covtype_elev", full=30_000)
POL = _load("pol", ard=False, training="paper")

PARTS = (
    _solver_part("fig5a", "Figure 5a", "elevators", ELEVATORS, required=True, minutes=0.3),
    _solver_part("fig5b", "Figure 5b", "keggdirected", KEGGDIRECTED, required=True, minutes=1.4),
    _solver_part(
        "appendix_buzz_solvers",
        "Appendix, Figure A.4a",
        "a stand-in for buzz",
        STAND_IN,
        more=BUZZ,
        minutes=2.0,
    ),
    _rank_part(
        "fig5c",
        "Figure 5c",
        "a stand-in for buzz",
        STAND_IN,
        rescued_claim,
        alike_claim,
        more=BUZZ,
        minutes=0.8,
    ),
    _rank_part(
        "appendix_elevators_ranks",
        "Appendix, Figure A.4b",
        "elevators",
        ELEVATORS,
        without_converges_claim,
        larger_is_faster_claim,
        minutes=0.3,
    ),
    _rank_part(
        "appendix_keggdirected_ranks",
        "Appendix, Figure A.4c",
        "keggdirected",
        KEGGDIRECTED,
        larger_is_faster_claim,
        minutes=1.0,
    ),
    _rank_part(
        "appendix_pol_without_ard",
        "Appendix, Figure A.4d",
        "pol, one lengthscale",
        POL,
        larger_is_faster_claim,
        minutes=0.3,
    ),
)
