"""Figure 5d: what tolerances stable CG in half can reach, and what becomes of it beyond."""

from __future__ import annotations

from typing import TYPE_CHECKING

from halfgp.analysis import history
from halfgp.paper.frame.context import Context
from halfgp.paper.frame.drawing import REFERENCE, SERIES
from halfgp.paper.frame.part import Claim, Data, Outcome, Panel, Part, Verdict
from halfgp.paper.studies.residuals import RANK, Case
from halfgp.report import words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SETS = ("elevators", "keggdirected", "protein")
TOLERANCES = (0.5, 0.1, 0.03, 0.01, 0.003, 0.001)
GROWTH = 10.0  # times its least: a residual that has grown so much has diverged


def _measure(context: Context) -> Outcome:
    """Ask for ever smaller residuals, and for one that half cannot give."""
    iterations = context.pick(quick=100, full=200)
    data: Data = {"tolerances": TOLERANCES, "iterations": iterations, "sets": {}}
    sizes = []
    for done, name in enumerate(SETS):
        context.progress(done, len(SETS), name)
        case = Case.load(context, name, quick=1500, full=15_000)
        half = case.half()
        runs = [
            history(half, case.y, solver="stable", rank=RANK, tol=tol, max_iterations=iterations)
            for tol in (*TOLERANCES, 1e-12)
        ]
        longest = runs.pop()
        data["sets"][name] = {
            "true": [run.residual for run in runs],
            "believed": [min(run.history) for run in runs],
            "taken": [run.iterations for run in runs],
            "history": [1.0, *longest.history],
            "status": longest.status,
            "rho": case.rho(),
        }
        sizes.append(case.size)
    return Outcome(
        data,
        claims=(_diverges(data), _tolerances(data)),
        note=f"Stable CG in half, entries in half, rank {RANK}, for the targets of {'; '.join(sizes)}. RBF at"
        f" trained hyperparameters. On the left a tolerance that cannot be reached, for {iterations}"
        f" iterations; on the right the true residual that each tolerance leads to. {case.found.source}",
    )


def _growth(found: Data) -> float:
    """By how much the residual was above its least in the end; infinite where it stopped being a number."""
    values = found["history"]
    last = values[-1]
    return float("inf") if last != last or last == float("inf") else last / min(values)


def _diverges(data: Data) -> Claim:
    growth = {name: _growth(found) for name, found in data["sets"].items()}
    return Claim(
        text="Run for too many iterations, CG in half diverges.",
        paper="Round-off errors grow with the number of iterations and produce divergences, on three sets.",
        measured=f"After {data['iterations']} iterations at most, the residual of the recurrence is, relative"
        " to the least it had, "
        + ", ".join(
            f"{words.number(growth[name], 2)} times on {name} (least"
            f" {words.number(min(found['history']), 2)}, {found['status']})"
            for name, found in data["sets"].items()
        )
        + ".",
        verdict=Verdict.of(*(factor > GROWTH for factor in growth.values())),
        reason="Re-orthogonalised against every earlier residual, the recurrence goes on to fall as long as"
        " the matrix with its rounded entries is positive definite. Where it is not, CG meets a direction of"
        " negative curvature sooner or later, and diverges. ρ, the norm of the rounding errors over the"
        " noise, tells which: about"
        f" {', '.join(words.number(found['rho'], 2) for found in data['sets'].values())}.",
    )


def _tolerances(data: Data) -> Claim:
    reached = {
        name: [tol for tol, true in zip(TOLERANCES, found["true"], strict=True) if true <= tol]
        for name, found in data["sets"].items()
    }
    return Claim(
        text="Low tolerances cannot be reached in half.",
        paper="Round-off prevents many iterations or low tolerances.",
        measured="; ".join(
            f"{name}: true residuals within the tolerance down to"
            f" {f'{min(tols):g}' if tols else 'none of them'}, at {TOLERANCES[-1]:g} the true residual is"
            f" {words.number(data['sets'][name]['true'][-1], 2)} (ρ about"
            f" {words.number(data['sets'][name]['rho'], 2)})"
            for name, tols in reached.items()
        )
        + ".",
        verdict=Verdict.of(*(TOLERANCES[-1] not in tols for tols in reached.values())),
        reason="The recurrence goes on to fall, but for the matrix with rounded entries: the solution for"
        " that one leaves a residual of about ρ, the norm of the rounding errors over the noise, in the true"
        " system.",
    )


def _panels(data: Data) -> list[Panel]:
    """By iteration, and by tolerance."""

    def by_iteration(axes: Axes) -> None:
        for (name, found), colour in zip(data["sets"].items(), SERIES, strict=False):
            values = [value for value in found["history"] if value is not None]
            axes.semilogy(range(len(values)), values, color=colour, linewidth=2, label=name)
            if found["status"] in ("nonfinite", "breakdown"):
                axes.semilogy(len(values) - 1, values[-1], "x", color=colour, markersize=8, markeredgewidth=2)
        axes.set(xlabel="iteration", ylabel="residual of the recurrence")

    def by_tolerance(axes: Axes) -> None:
        for (name, found), colour in zip(data["sets"].items(), SERIES, strict=False):
            axes.loglog(
                data["tolerances"], found["true"], "o-", color=colour, markersize=4, linewidth=2, label=name
            )
        axes.loglog(data["tolerances"], data["tolerances"], ":", color=REFERENCE, linewidth=1.5)
        axes.invert_xaxis()
        axes.set(xlabel="tolerance", ylabel="true residual")

    return [
        Panel("by iteration", by_iteration, "A cross: overflow or breakdown."),
        Panel("by tolerance", by_tolerance, "Dotted: the true residual is the tolerance."),
    ]


PARTS = (
    Part(
        name="fig5d",
        title="Tolerances in half",
        place="Figure 5d",
        module=__name__,
        measure=_measure,
        panels=_panels,
        minutes=2.5,
    ),
)
