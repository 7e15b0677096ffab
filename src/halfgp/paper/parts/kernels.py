"""Figure 5e: residual norms of stable CG in half by kernel, on pol with one lengthscale."""

from __future__ import annotations

from functools import partial

from halfgp.paper.frame.context import Context
from halfgp.paper.frame.part import Claim, Data, Outcome, Panel, Part, Verdict
from halfgp.paper.studies.residuals import RANK, Case, counts, draw_runs, listed, listed_low, solve
from halfgp.report import words

KERNELS = {"matern12": "Matérn-1/2", "matern32": "Matérn-3/2", "matern52": "Matérn-5/2", "rbf": "RBF"}
TRAININGS = {"paper": "trained as in the paper", "optimum": "trained to the optimum"}


def _measure(context: Context) -> Outcome:
    """Solve for the targets with each kernel, at what two ways of training end with."""
    data: Data = {"runs": {}, "noise": {}}
    for done, training in enumerate(TRAININGS):
        runs: list[Data] = []
        noises: list[float] = []
        for kernel, label in KERNELS.items():
            context.progress(4 * done + len(runs), 8, f"{label}, {TRAININGS[training]}")
            case = Case.load(
                context, "pol", quick=3000, full=None, kernel=kernel, ard=False, training=training
            )
            runs.append(solve(case.half(), case.y, "stable", RANK, label))
            noises.append(case.found.noise)
        data["runs"][training], data["noise"][training] = runs, noises
    return Outcome(
        data,
        claims=(_fewer(data), _at_the_optimum(data)),
        note=f"{case.size}, one lengthscale for all. Stable CG in half, entries in half, rank {RANK}. Trained"
        " as in the paper: 50 steps of Adam from a noise of 2, on 4,000 rows. Trained to the optimum: L-BFGS"
        " on the exact likelihood of 1,200 rows.",
    )


def _fewer(data: Data) -> Claim:
    runs = data["runs"]["paper"]
    return Claim(
        text="Matérn-1/2 converges in fewer iterations than RBF.",
        paper="Matérn-1/2 kernels tend to converge fastest, and 3/2 faster than RBF.",
        measured=f"{listed(runs)}. {listed_low(runs)}.",
        verdict=Verdict.of(*_comparisons(runs)),
        reason="Trained so briefly, all kernels have about the same noise ("
        + ", ".join(words.number(noise, 2) for noise in data["noise"]["paper"])
        + "). The eigenvalues of a rougher kernel fall more slowly, so that fewer are large beside the noise"
        " and those that are lie closer together.",
        required=True,
    )


def _at_the_optimum(data: Data) -> Claim:
    runs, noises = data["runs"]["optimum"], data["noise"]["optimum"]
    return Claim(
        text="Matérn-1/2 also takes fewer iterations than RBF where training has gone on to the optimum.",
        paper="",
        measured=f"{listed(runs)}. {listed_low(runs)}.",
        verdict=Verdict.of(*_comparisons(runs)),
        reason="A rougher kernel fits the data with less noise, "
        + ", ".join(words.number(noise, 2) for noise in noises)
        + ", and small noise is what makes a system ill-conditioned.",
    )


def _comparisons(runs: list[Data]) -> list[bool]:
    """Whether the first kernel takes fewer iterations than the last, to either tolerance."""
    return [taken[0] < taken[-1] for taken in counts(runs)]


def _panels(data: Data) -> list[Panel]:
    """One for each way of training."""
    return [Panel(title, partial(draw_runs, data["runs"][training])) for training, title in TRAININGS.items()]


PARTS = (
    Part(
        name="fig5e",
        title="Kernels on pol, one lengthscale",
        place="Figure 5e",
        module=__name__,
        measure=_measure,
        panels=_panels,
        minutes=0.4,
    ),
)
