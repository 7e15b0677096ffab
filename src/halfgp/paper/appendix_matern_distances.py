"""Appendix, Figure A.1b: the largest distances that Matérn kernels can represent."""

from __future__ import annotations

from functools import partial

from halfgp.analysis.support import largest_distance
from halfgp.kernels import RBF, Matern
from halfgp.paper.context import Context
from halfgp.paper.distances import distances, panels, support_claim
from halfgp.paper.part import Claim, Outcome, Part, Verdict
from halfgp.precision import HALF
from halfgp.report import words

FAMILIES = {"Matérn 1/2": 0.5, "Matérn 3/2": 1.5, "Matérn 5/2": 2.5}
DISTANCE = 0.75  # of the paper's example


def measure(context: Context) -> Outcome:
    """Solve k(d) = ε for d; the same in quick and in full."""
    data = distances({label: partial(Matern, nu) for label, nu in FAMILIES.items()})
    return Outcome(
        data,
        claims=(
            support_claim(
                data,
                "Matérn 1/2",
                "d > −log ε / l in the text; d > −l log ε, which is right, in its appendix",
            ),
            _between(),
            _example(),
        ),
        note="As Figure 2a. The paper shows Matérn 1/2 only. For 3/2 and 5/2 it gives no formula: the"
        " distance is the root of a monotone function, found numerically.",
    )


def _between() -> Claim:
    reach = {label: largest_distance(Matern(nu), HALF) for label, nu in FAMILIES.items()}
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


def _example() -> Claim:
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


PART = Part(
    name="appendix_matern_distances",
    title="Largest representable distance, Matérn",
    place="Appendix, Figure A.1b",
    module=__name__,
    measure=measure,
    panels=panels,
)
