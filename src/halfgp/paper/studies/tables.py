"""The tables of trained models, and what their figures say about the paper's claims.

Table 1, and A.2 to A.5 of the appendix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from halfgp.paper.frame.context import Context
from halfgp.paper.frame.part import Claim, Data, Outcome, Part, Verdict
from halfgp.paper.studies.displays import table
from halfgp.paper.studies.fits import fit
from halfgp.paper.studies.plan import SMALL, request
from halfgp.paper.studies.published import MATERN52_NLL_TWICE, MATERN_RMSE, NAMES, RMSE, name_of
from halfgp.paper.studies.records import (
    CPU_TIMES,
    KERNELS,
    NEAR,
    Values,
    changes,
    listed,
    means,
    models_note,
    published_ratios,
    ratios,
    records,
)
from halfgp.report import words

SIGNS = (
    "In the paper's tables for half alone, what is called NLL is a log-likelihood; its signs are turned here."
)


def kept_claim(found: Sequence[Data], kernel: str = "rbf", *, required: bool = False) -> Claim:
    """That half predicts as single does on the small sets."""
    kept = {name: value for name, value in ratios(found, "rmse", "half", "single").items() if name in SMALL}
    paper = published_ratios("rmse", kept, "half", "single", kernel)
    return Claim(
        text=f"With {KERNELS[kernel]}, the RMSE of half is within {words.percent(NEAR, 0)} of single's on the"
        " small sets.",
        paper=f"Half against single: {changes(paper)}." if paper else "It has no single to compare with.",
        measured=f"Half against single: {changes(kept, 2)}.",
        verdict=Verdict.of(*(value <= 1 + NEAR for value in kept.values())),
        reason="Half rounds vectors here, and points, but not entries: gradients hardly change. Predictions"
        " are made in single or better, in the paper too.",
        required=required,
    )


def coarser_claim(found: Sequence[Data], *, required: bool = False) -> Claim:
    """That bfloat16 strays farther from single than float16 does."""
    half, other = means(found, "drift", "half"), means(found, "drift", "bfloat16")
    rmse = ratios(found, "rmse", "bfloat16", "half")
    strayed = ", ".join(
        f"{name} {words.number(half[name], 2)} and {words.number(value, 2)}" for name, value in other.items()
    )
    return Claim(
        text="bfloat16 is worse than float16: training in it strays farther from training in single.",
        paper="float16 is the easiest to work with, for its wider range. (Its range is the narrower one.)",
        measured="Difference of the logarithms of hyperparameters from single's, root mean square over all"
        f" steps, in float16 and in bfloat16: {strayed}. RMSE in bfloat16 against float16:"
        f" {changes(rmse, 2)}.",
        verdict=Verdict.of(*(value > half[name] for name, value in other.items())),
        reason="bfloat16 has 8 bits of significand where float16 has 11. Its range is of no use, for vectors"
        " are scaled before they are rounded. Predictions do not show the difference: those of either are"
        " made in single or better.",
        required=required,
    )


def faster_claim(found: Sequence[Data]) -> Claim:
    """That half takes half the time of single."""
    speed = ratios(found, "fit_seconds", "single", "half")
    fast = published_ratios("fit_seconds", speed, "single", "half")
    return Claim(
        text="Training in half is at least twice as fast as in single.",
        paper=f"Speedups of at least two times, in the text; in Table 1 {listed(fast, 2, 'x')}.",
        measured=f"Single's time over half's: {listed(speed, 3, 'x')}.",
        verdict=Verdict.of(*(value >= 2 for value in speed.values())),
        reason=CPU_TIMES,
    )


def svgp_claim(found: Sequence[Data]) -> Claim:
    """That SVGP is faster and often predicts worse."""
    worse, slower = (ratios(found, name, "svgp", "half") for name in ("rmse", "fit_seconds"))
    text = "SVGP is faster than half, and often predicts significantly worse."
    paper = "Faster on every set; its RMSE is worse than half's by more than 5 % on four of eight."
    if not worse:
        remedy = "`pip install halfgp[paper]` adds it."
        return Claim(text, paper, "GPyTorch is not installed.", Verdict.OPEN, remedy)
    return Claim(
        text=text,
        paper=paper,
        measured=f"RMSE of SVGP against half's: {changes(worse, 0)}. Its time over half's:"
        f" {listed(slower, 2, 'x')}.",
        verdict=Verdict.of(
            *(value < 1 for value in slower.values()), any(value > 1 + NEAR for value in worse.values())
        ),
        reason="A step of SVGP costs the cube of the inducing points, whatever the rows: on a processor that"
        " is dear beside products that are not. The paper does not tell its epochs.",
    )


def _against_rbf(found: Sequence[Data], rbf: dict[str, list[float]], kernel: str) -> Claim:
    """Whether it predicts better than RBF where the paper has it so."""
    ratio = {
        name: value / (sum(rbf[name]) / len(rbf[name]))
        for name, value in means(found, "rmse", "half").items()
    }
    paper: Values = {
        str(name_of(name)): half.value / base.value
        for name, (_, half, _) in MATERN_RMSE[kernel].items()
        if half is not None and (base := RMSE[name][1]) is not None
    }
    return Claim(
        text=f"In half, {KERNELS[kernel]} predicts better than RBF on most sets.",
        paper=f"RMSE against RBF's: {changes(paper, 0)}.",
        measured=f"RMSE against RBF's, of the same seeds: {changes(ratio)}.",
        verdict=Verdict.of(sum(value < 1 for value in ratio.values()) > len(ratio) / 2),
        reason="How rough the data are decides it, in any precision.",
    )


def _signs() -> Claim:
    pairs = ", ".join(
        f"{NAMES[name]} {words.number(a)} and {words.number(b)}"
        for name, (a, b) in MATERN52_NLL_TWICE.items()
    )
    return Claim(
        text="In the Matérn tables, columns called NLL hold negative log-likelihoods.",
        paper=f"It has Matérn-5/2 in half twice: {pairs}.",
        measured="The two have opposite signs on all three sets that are in both.",
        verdict=Verdict.of(*(a * b > 0 for a, b in MATERN52_NLL_TWICE.values())),
        reason="Those of the tables for half alone are log-likelihoods. In Matérn-1/2, 0.0478 is probably"
        " 0.478.",
    )


def _rbf(context: Context) -> Outcome:
    """Fit every set with every method and seed; what other parts have fitted is not fitted again."""
    found = records(context)
    return Outcome(
        {"records": found},
        claims=(
            kept_claim(found, required=True),
            coarser_claim(found, required=True),
            faster_claim(found),
            svgp_claim(found),
        ),
        note=f"{models_note(context, found)} The paper prints 0.055 for protein in single, a typo for 0.55."
        " Its NLL is from its appendix. Of keggdirected it has no such figures, and song is not at hand.",
    )


def _matern(context: Context, kernel: str, *more: Claim) -> Outcome:
    """Fit every set with every method and seed, and compare with RBF on the same sets."""
    found = records(context, kernel)
    rbf = {
        record["set"]: [
            fit(context, request(context, record["set"], "half", seed=context.seed + k)).rmse
            for k in range(len(record["rmse"]))
        ]
        for record in found
        if record["method"] == "half"
    }
    data = {"records": found, "rbf_rmse": rbf}
    claims = (kept_claim(found, kernel), _against_rbf(found, rbf, kernel), *more)
    return Outcome(data, claims, f"{models_note(context, found, kernel)} {SIGNS}")


def _part(
    name: str, place: str, kernel: str, measure: Callable[[Context], Outcome], *, minutes: float
) -> Part:
    title = f"RMSE, NLL and training time, {KERNELS[kernel]} with ARD"
    return Part(name, title, place, __name__, measure, table=table, minutes=minutes)


def _matern_part(kernel: str, place: str, *more: Claim) -> Part:
    """The table of a Matérn kernel, with further claims on what the paper prints."""
    return _part(
        f"appendix_{kernel}",
        place,
        kernel,
        lambda context: _matern(context, kernel, *more),
        minutes=150.0,
    )


PARTS = (
    _part("table1", "Table 1", "rbf", _rbf, minutes=330.0),
    _matern_part("matern12", "Appendix, Table A.3"),
    _matern_part("matern32", "Appendix, Table A.4"),
    _matern_part("matern52", "Appendix, Tables A.2 and A.5", _signs()),
)
