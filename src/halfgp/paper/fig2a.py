"""Figure 2a: the largest distance that an RBF kernel can represent, by precision and lengthscale."""

from __future__ import annotations

from halfgp.kernels import RBF
from halfgp.paper.context import Context
from halfgp.paper.distances import SPREAD, UNIT, distances, panels, support_claim
from halfgp.paper.part import Claim, Data, Outcome, Part, Verdict
from halfgp.report import words


def measure(context: Context) -> Outcome:
    """Solve k(d) = ε for d; the same in quick and in full."""
    data = distances({"RBF": RBF})
    return Outcome(
        data,
        claims=(support_claim(data, "RBF", "d > l √(−2 log ε)"), _short_lengthscales(data)),
        note="Largest d with k(d) not rounded to zero, for 31 lengthscales from 0.01 to 10, in closed form,"
        f" and confirmed by rounding covariances on either side. The dotted line is {SPREAD:g}, about the"
        " largest distance among standardised points. bfloat16, which the paper does not show, has nearly"
        " the range of single.",
    )


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


PART = Part(
    name="fig2a",
    title="Largest representable distance, RBF",
    place="Figure 2a",
    module=__name__,
    measure=measure,
    panels=panels,
)
