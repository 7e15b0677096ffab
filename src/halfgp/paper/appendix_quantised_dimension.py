"""Appendix, Theory: the expected effective dimension of eigenvalues with quantisation noise."""

from __future__ import annotations

from dataclasses import asdict

from halfgp.analysis import eigenvalues, quantised_effective_dimension
from halfgp.kernels import RBF, Matern
from halfgp.paper.context import Context
from halfgp.paper.part import Claim, Data, Outcome, Part, Table, Verdict
from halfgp.paper.spectra import NOISE, points
from halfgp.precision import BFLOAT16, HALF
from halfgp.report import words

# δ: round-off at 1, and almost as much as the noise.
STEPS = {
    "round-off of half": HALF.unit_roundoff,
    "round-off of bfloat16": BFLOAT16.unit_roundoff,
    "0.9 s": 0.9 * NOISE,
}


def measure(context: Context) -> Outcome:
    """Draw quantised eigenvalues and take the mean, beside the integral."""
    count = context.pick(quick=500, full=2000)
    samples = context.pick(quick=2000, full=20_000)
    x = points(count, context.seed)
    found = {}
    for done, (name, kernel) in enumerate({"RBF": RBF(), "Matérn-1/2": Matern(nu=0.5)}.items()):
        context.progress(done, 2, name)
        values = eigenvalues(kernel, x).clamp_min(0.0)  # below zero is round-off of the decomposition
        found[name] = [
            asdict(quantised_effective_dimension(values, NOISE, step, samples=samples, seed=context.seed))
            for step in STEPS.values()
        ]
    data: Data = {
        "rows": count,
        "samples": samples,
        "noise": NOISE,
        "steps": tuple(STEPS),
        "deltas": tuple(STEPS.values()),
        "found": found,
    }
    return Outcome(
        data,
        claims=(_larger(data), _grows(data)),
        note=f"Eigenvalues of K in double, {words.count(count)} points drawn uniformly from [−3, 3],"
        f" lengthscale 1, noise s = {NOISE:g}. Q(λ) is uniform on [λ − δ, λ + δ], independently; means of"
        f" {words.count(samples)} draws. δ must be below λ + s for the expectation to exist.",
    )


def _larger(data: Data) -> Claim:
    cases = [case for cases in data["found"].values() for case in cases]
    above = [case["mean"] - 2 * case["standard_error"] > case["effective_dimension"] for case in cases]
    below = sum(case["mean"] + 2 * case["standard_error"] < case["effective_dimension"] for case in cases)
    worst = min(cases, key=lambda case: case["mean"] / case["effective_dimension"])
    return Claim(
        text="The expected effective dimension of quantised eigenvalues is larger than without quantisation.",
        paper="E[N_eff(Q(λ))] ≥ N_eff(λ), a theorem.",
        measured=f"It is smaller by more than two standard errors in {below} of {len(cases)} cases and larger"
        f" in {sum(above)}; the farthest off is {words.number(worst['mean'], 4)} ±"
        f" {words.number(worst['standard_error'], 1)} against"
        f" {words.number(worst['effective_dimension'], 4)}. The integral gives"
        f" {words.number(worst['exact'], 4)}.",
        verdict=Verdict.of(*above),
        reason="x / (x + s) is concave, so that by Jensen’s inequality the expectation is smaller. The proof"
        " in the paper drops terms of the wrong sign. That matrices evaluated in half have a larger effective"
        " dimension (Figure A.2b) has another cause: their entries are rounded, not their eigenvalues.",
    )


def _grows(data: Data) -> Claim:
    means = {name: [case["exact"] for case in cases] for name, cases in data["found"].items()}
    return Claim(
        text="The expected effective dimension increases with δ, that is for lower precisions.",
        paper="A larger δ further increases the generalisation error.",
        measured="; ".join(
            f"{name}: {', '.join(words.number(mean, 4) for mean in values)}" for name, values in means.items()
        )
        + f" for δ of {', '.join(STEPS)}.",
        verdict=Verdict.of(*(values[-1] > values[0] for values in means.values())),
        reason="The wider the draws, the more a concave function loses.",
    )


def table(data: Data) -> Table:
    """Every case in a row."""
    rows = [
        (
            f"{name}, δ: {step}",
            words.number(case["effective_dimension"], 5),
            f"{words.number(case['mean'], 5)} ± {words.number(case['standard_error'], 1)}",
            words.number(case["exact"], 5),
        )
        for name, cases in data["found"].items()
        for step, case in zip(data["steps"], cases, strict=True)
    ]
    return Table(("kernel and step", "N_eff(λ)", "E[N_eff(Q(λ))], drawn", "by the integral"), tuple(rows))


PART = Part(
    name="appendix_quantised_dimension",
    title="Effective dimension of quantised eigenvalues",
    place="Appendix, Theory (generalisation)",
    module=__name__,
    measure=measure,
    table=table,
    minutes=0.5,
)
