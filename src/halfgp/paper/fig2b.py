"""Figure 2b: the largest distance that a rational quadratic kernel can represent."""

from __future__ import annotations

from functools import partial

from halfgp.analysis.support import largest_distance
from halfgp.kernels import RBF, RationalQuadratic
from halfgp.paper.context import Context
from halfgp.paper.distances import distances, panels, support_claim
from halfgp.paper.part import Claim, Outcome, Part, Verdict
from halfgp.precision import HALF
from halfgp.report import words

ALPHA = 5.0  # the paper's; with less, the support is far larger


def measure(context: Context) -> Outcome:
    """Solve k(d) = ε for d; the same in quick and in full."""
    data = distances({"rational quadratic": partial(RationalQuadratic, ALPHA)})
    return Outcome(
        data,
        claims=(
            support_claim(
                data, "rational quadratic", "d > l √(2α(ε^(1/α) − 1)), which is imaginary as printed"
            ),
            _wider_than_rbf(),
        ),
        note="As Figure 2a, with α = 5. The formula used is l √(2α(ε^(−1/α) − 1)): the sign of the exponent"
        " in the paper is a misprint.",
    )


def _wider_than_rbf() -> Claim:
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


PART = Part(
    name="fig2b",
    title="Largest representable distance, rational quadratic",
    place="Figure 2b",
    module=__name__,
    measure=measure,
    panels=panels,
)
