"""How far two points may be apart before their covariance is zero in a format, by kernel and lengthscale.

Figures 2a and 2b, and A.1b of the appendix.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch

from halfgp.analysis.support import largest_distance
from halfgp.kernels import RBF, Kernel, Matern, RationalQuadratic
from halfgp.paper.frame.context import Context
from halfgp.paper.frame.drawing import COLOURS, REFERENCE
from halfgp.paper.frame.part import Claim, Data, Outcome, Panel, Part, Verdict
from halfgp.precision import BFLOAT16, DOUBLE, HALF, SINGLE, Format
from halfgp.report import words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Family = Callable[[float], Kernel]  # a kernel for each lengthscale

FORMATS = (DOUBLE, SINGLE, BFLOAT16, HALF)
ROUNDED = (SINGLE, BFLOAT16, HALF)  # covariances are computed in double and then rounded to these
LENGTHSCALES = torch.logspace(-2, 1, 31, dtype=torch.float64).tolist()
UNIT = 20  # the place of lengthscale 1 among them
SPREAD = 5.0  # the largest distance among standardised points, as the paper has it
# Relative. Covariances change ten times as much, which is more than single resolves even among its
# subnormals, through which torch converts to bfloat16.
MARGIN = 1e-5

ALPHA = 5.0  # the paper's; with less, the support is far larger
MATERN = {"Matérn 1/2": 0.5, "Matérn 3/2": 1.5, "Matérn 5/2": 2.5}
DISTANCE = 0.75  # of the paper's example


def distances(families: Mapping[str, Family]) -> Data:
    """Largest distances by family, format and lengthscale, and how many were confirmed by rounding."""
    return {
        "lengthscales": LENGTHSCALES,
        "distances": {
            label: {fmt.name: [largest_distance(family(s), fmt) for s in LENGTHSCALES] for fmt in FORMATS}
            for label, family in families.items()
        },
        "confirmed": {
            label: {fmt.name: sum(_ends_there(family(s), fmt) for s in LENGTHSCALES) for fmt in ROUNDED}
            for label, family in families.items()
        },
    }


def support_claim(data: Data, label: str, formula: str) -> Claim:
    """That a kernel in half precision has the support that its formula predicts."""
    tried = len(data["lengthscales"])
    confirmed = data["confirmed"][label]
    reach = {name: values[UNIT] for name, values in data["distances"][label].items()}
    return Claim(
        text=f"In finite precision the {label} kernel has compact support, of a radius that follows from"
        " the smallest representable number.",
        paper=formula,
        measured="Per lengthscale: "
        + ", ".join(f"{words.number(reach[fmt.name], 3)} in {fmt.name}" for fmt in reversed(FORMATS))
        + ". Covariances just inside round to a positive number and just outside to zero at "
        + ", ".join(
            f"{confirmed[fmt.name]} of {tried} lengthscales ({fmt.name})" for fmt in reversed(ROUNDED)
        )
        + ".",
        verdict=Verdict.of(*(confirmed[fmt.name] == tried for fmt in ROUNDED)),
        reason="ε is what rounds to zero, half the smallest subnormal: 2⁻²⁵ in half. The paper prints other"
        " constants for half.",
        required=True,
    )


def panels(data: Data) -> list[Panel]:
    """One for each family: distance against lengthscale, by format."""
    several = len(data["distances"]) > 1
    return [
        Panel(label if several else "", partial(_draw, data["lengthscales"], by_format))
        for label, by_format in data["distances"].items()
    ]


def _draw(lengthscales: list[float], by_format: Mapping[str, list[float]], axes: Axes) -> None:
    for name, values in by_format.items():
        style = "--" if name == "bfloat16" else "-"  # close to single, and not in the paper
        axes.loglog(lengthscales, values, style, color=COLOURS[name], linewidth=2, label=name)
    axes.axhline(SPREAD, color=REFERENCE, linestyle=":", linewidth=1.5)
    axes.set(xlabel="lengthscale", ylabel="largest distance")


def _ends_there(kernel: Kernel, fmt: Format) -> bool:
    """Whether the covariance, rounded, is positive just inside the largest distance and zero just outside."""
    edge = largest_distance(kernel, fmt)
    points = torch.tensor([[edge * (1 - MARGIN)], [edge * (1 + MARGIN)]], dtype=torch.float64)
    inside, outside = kernel(torch.zeros(1, 1, dtype=torch.float64), points)[0].to(fmt.dtype).tolist()
    return bool(inside > 0 and outside == 0)


def _short_lengthscales(data: Data) -> Claim:
    reach = data["distances"]["RBF"]
    shortest = {name: SPREAD / reach[name][UNIT] for name in ("half", "single")}
    return Claim(
        text="With short lengthscales half precision cannot relate points of standardised data that are far"
        " apart, where single and double still can.",
        paper="RBF kernels have the smallest support, especially for short lengthscales.",
        measured=f"At a distance of {SPREAD:g} a covariance is zero for lengthscales below"
        f" {words.number(shortest['half'], 3)} in half and {words.number(shortest['single'], 3)} in single.",
        verdict=Verdict.of(shortest["half"] > 2 * shortest["single"]),
        reason="The radius grows in proportion to the lengthscale, with a factor that the format sets.",
    )


def _wider_than_rbf(_data: Data) -> Claim:
    rq, slower = (largest_distance(RationalQuadratic(alpha), HALF) for alpha in (ALPHA, 2.0))
    rbf = largest_distance(RBF(), HALF)
    return Claim(
        text="RBF kernels have significantly shorter representable distances than rational quadratic ones.",
        paper="Shown at α = 5; for α = 2 and 3 the support is said to be much larger still.",
        measured=f"In half, per lengthscale: {words.number(rbf, 3)} for RBF, {words.number(rq, 3)} for"
        f" rational quadratic at α = 5, {words.number(slower, 3)} at α = 2.",
        verdict=Verdict.of(rq > 2 * rbf),
        reason="Its tail falls as a power of the distance, that of RBF as an exponential of its square.",
    )


def _between(_data: Data) -> Claim:
    reach = {label: largest_distance(Matern(nu), HALF) for label, nu in MATERN.items()}
    rbf = largest_distance(RBF(), HALF)
    widest, middle, narrow = reach.values()
    return Claim(
        text="Matérn kernels represent larger distances than RBF; 3/2 and 5/2 lie between 1/2 and RBF.",
        paper="Found by empirical investigation; no figures.",
        measured="In half, per lengthscale: "
        + ", ".join(f"{words.number(value, 3)} for {label}" for label, value in reach.items())
        + f", {words.number(rbf, 3)} for RBF.",
        verdict=Verdict.of(widest > middle > narrow > rbf),
        reason="The smoother the kernel, the faster its tail falls.",
    )


def _example(_data: Data) -> Claim:
    shortest = DISTANCE / largest_distance(Matern(0.5), HALF)
    vanishes = largest_distance(Matern(0.5, lengthscale=10.0), HALF) < DISTANCE
    return Claim(
        text=f"At a distance of {DISTANCE} half precision cannot relate two points by Matérn 1/2 for"
        " lengthscales greater than about 9.24.",
        paper="9.24 ≈ −log ε / 0.75",
        measured=f"The covariance is zero for lengthscales below {words.number(shortest, 3)};"
        f" at a lengthscale of 10 it is {'zero' if vanishes else 'not'}.",
        verdict=Verdict.of(vanishes),
        reason="Covariances vanish for short lengthscales: the condition is l < d / (−log ε), with ε = 2⁻²⁵."
        " The paper's own appendix has it the right way round.",
    )


def _part(
    name: str,
    place: str,
    kernel: str,
    families: Mapping[str, Family],
    *,
    formula: str,
    claims: Sequence[Callable[[Data], Claim]],
    note: str,
) -> Part:
    """One figure: the support of the first family is as the formula predicts, and what else is claimed."""

    def measure(_context: Context) -> Outcome:
        """Solve k(d) = ε for d; the same in quick and in full."""
        data = distances(families)
        first = support_claim(data, next(iter(families)), formula)
        return Outcome(data, (first, *(claim(data) for claim in claims)), note)

    return Part(name, f"Largest representable distance, {kernel}", place, __name__, measure, panels)


PARTS = (
    _part(
        "fig2a",
        "Figure 2a",
        "RBF",
        {"RBF": RBF},
        formula="d > l √(−2 log ε)",
        claims=(_short_lengthscales,),
        note="Largest d with k(d) not rounded to zero, for 31 lengthscales from 0.01 to 10, in closed form,"
        f" and confirmed by rounding covariances on either side. The dotted line is {SPREAD:g}, about the"
        " largest distance among standardised points. bfloat16, which the paper does not show, has nearly"
        " the range of single.",
    ),
    _part(
        "fig2b",
        "Figure 2b",
        "rational quadratic",
        {"rational quadratic": partial(RationalQuadratic, ALPHA)},
        formula="d > l √(2α(ε^(1/α) − 1)), which is imaginary as printed",
        claims=(_wider_than_rbf,),
        note="As Figure 2a, with α = 5. The formula used is l √(2α(ε^(−1/α) − 1)): the sign of the exponent"
        " in the paper is a misprint.",
    ),
    _part(
        "appendix_matern_distances",
        "Appendix, Figure A.1b",
        "Matérn",
        {label: partial(Matern, nu) for label, nu in MATERN.items()},
        formula="d > −log ε / l in the text; d > −l log ε, which is right, in its appendix",
        claims=(_between, _example),
        note="As Figure 2a. The paper shows Matérn 1/2 only. For 3/2 and 5/2 it gives no formula: the"
        " distance is the root of a monotone function, found numerically.",
    ),
)
