"""Appendix, Theory: eigenvalues above a round-off error δ, and the effective dimension of quantised ones."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from halfgp.analysis import (
    as_format,
    eigenvalues,
    entry_error_norm,
    kernel_matrix,
    quantised_effective_dimension,
    spectral_cutoff,
)
from halfgp.kernels import RBF, Matern
from halfgp.paper.frame.context import Context
from halfgp.paper.frame.drawing import COLOURS, REFERENCE, SERIES
from halfgp.paper.frame.part import Claim, Data, Outcome, Panel, Part, Table, Verdict
from halfgp.paper.studies.spectra import NOISE, points
from halfgp.precision import BFLOAT16, HALF
from halfgp.report import words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DELTAS = tuple(float(delta) for delta in np.logspace(-1, -12, 23))
FORMATS = ("bfloat16", "half", "single")
# Rasmussen & Williams 4.3.1 for a standard normal density and lengthscale 1: eigenvalues fall as B^k.
SMALL_A, SMALL_B = 0.25, 0.5
RATIO = SMALL_B / (SMALL_A + SMALL_B + math.sqrt(SMALL_A**2 + 2 * SMALL_A * SMALL_B))
GRID, GRID_END = 400, 10.0
# δ: round-off at 1, and almost as much as the noise.
STEPS = {
    "round-off of half": HALF.unit_roundoff,
    "round-off of bfloat16": BFLOAT16.unit_roundoff,
    "0.9 s": 0.9 * NOISE,
}


def _cutoff(context: Context) -> Outcome:
    """Count eigenvalues above δ, in double, and look at those of the rounded matrix."""
    count = context.pick(quick=800, full=3000)
    x = torch.randn(count, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(context.seed))
    exact = eigenvalues(RBF(), x)
    rounded = eigenvalues(RBF(), x, "half")
    counts = {
        name: [spectral_cutoff(values, delta) for delta in DELTAS]
        for name, values in (("kernel", _of_the_kernel()), ("matrix", exact))
    }
    lines = {name: np.polyfit(-np.log10(DELTAS), values, 1).tolist() for name, values in counts.items()}
    data: Data = {
        "rows": count,
        "deltas": DELTAS,
        "counts": counts,
        "formats": {name: spectral_cutoff(exact, name) for name in FORMATS},
        "lines": lines,
        "theory": -1.0 / math.log10(RATIO),
        "least": float(rounded[-1]),
        "error": entry_error_norm(RBF(), x, "half"),
        "negative": int((rounded < 0).sum()),
        "zero": int((rounded == 0).sum()),
    }
    return Outcome(
        data,
        claims=(_logarithmic(data), _cut_off(data)),
        note="RBF with lengthscale 1 under a standard normal density: the kernel itself, by quadrature on a"
        f" grid, and its matrix on {words.count(count)} points drawn from it. Eigenvalues, in double, that"
        " are at least δ times the largest; then those of the matrix with its entries rounded to half.",
    )


def _of_the_kernel() -> Tensor:
    """Eigenvalues under the normal density itself, by quadrature on a fine grid."""
    x = torch.linspace(-GRID_END, GRID_END, GRID, dtype=torch.float64)[:, None]
    root = torch.exp(-0.25 * x.square())  # of the density, up to a constant
    values: Tensor = torch.linalg.eigvalsh(root * kernel_matrix(RBF(), x) * root.T)
    return values.flip(0)


def _logarithmic(data: Data) -> Claim:
    off = {name: _off_the_line(data, name) for name in data["counts"]}
    slope = {name: line[0] for name, line in data["lines"].items()}
    formats = data["formats"]
    return Claim(
        text="The number of eigenvalues above a round-off error δ grows as log 1/δ.",
        paper="λ_k < δ for k ≥ (log δ + ½ log(A/2a)) / log B.",
        measured=f"The kernel: {words.number(slope['kernel'], 3)} eigenvalues for each decade of δ, never"
        f" more than {words.number(off['kernel'], 2)} off that line; by the formula"
        f" {words.number(data['theory'], 3)}. The matrix: {words.number(slope['matrix'], 3)}, never more than"
        f" {words.number(off['matrix'], 2)} off. Of the matrix, above the unit round-off of "
        + ", ".join(f"{name} are {formats[name]}" for name in FORMATS)
        + ".",
        verdict=Verdict.of(
            *(value <= 2 for value in off.values()), abs(slope["kernel"] / data["theory"] - 1) < 0.05
        ),
        reason="Eigenvalues of an RBF kernel under a normal density fall geometrically. Those of a matrix"
        " fall faster, for a sample has few points in the tails, where the eigenfunctions of the smallest"
        " live.",
    )


def _off_the_line(data: Data, name: str) -> float:
    """How far counts are from the straight line through them, at most."""
    slope, intercept = data["lines"][name]
    line = [intercept - slope * math.log10(delta) for delta in DELTAS]
    return float(max(abs(count - at) for count, at in zip(data["counts"][name], line, strict=True)))


def _cut_off(data: Data) -> Claim:
    least = words.number(data["least"], 2)
    return Claim(
        text="Eigenvalues below the round-off error are zero in finite precision.",
        paper="λ_k = 0 in finite precision, and the support of the kernel gets cut off.",
        measured=f"With entries rounded to half, {data['zero']} of {words.count(data['rows'])} eigenvalues"
        f" are zero and {words.count(data['negative'])} are negative, down to {least}; the norm of the"
        f" rounding error is {words.number(data['error'], 2)}.",
        verdict=Verdict.of(data["zero"] > 0 and data["negative"] == 0),
        reason="Rounding is a perturbation of the matrix, not of its eigenvalues one by one: the small ones"
        " scatter around zero by up to its norm.",
    )


def _cutoff_panels(data: Data) -> list[Panel]:
    """Counts against δ, with the line of the formula."""

    def draw(axes: Axes) -> None:
        for name, marker in (("kernel", "s"), ("matrix", "o")):
            colour = SERIES[3] if name == "kernel" else SERIES[4]
            axes.semilogx(
                data["deltas"], data["counts"][name], marker, color=colour, markersize=4, label=name
            )
        theory = [1 - math.log10(delta) * data["theory"] for delta in data["deltas"]]
        axes.semilogx(data["deltas"], theory, "-", color=REFERENCE, linewidth=2, label="formula")
        for name, count in data["formats"].items():
            at = as_format(name).unit_roundoff
            axes.semilogx(at, count, "D", color=COLOURS[name], markersize=7, label=name)
        axes.invert_xaxis()
        axes.set(xlabel="δ", ylabel="eigenvalues")

    return [Panel("", draw)]


def _quantised(context: Context) -> Outcome:
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


def _quantised_table(data: Data) -> Table:
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


PARTS = (
    Part(
        name="appendix_spectral_cutoff",
        title="Eigenvalues above round-off",
        place="Appendix, Theory (support)",
        module=__name__,
        measure=_cutoff,
        panels=_cutoff_panels,
        minutes=0.5,
    ),
    Part(
        name="appendix_quantised_dimension",
        title="Effective dimension of quantised eigenvalues",
        place="Appendix, Theory (generalisation)",
        module=__name__,
        measure=_quantised,
        table=_quantised_table,
        minutes=0.5,
    ),
)
