"""Appendix, Figure A.5: hyperparameters by step on a large set with few features, in single and in half."""

from __future__ import annotations

from halfgp.paper.context import Context
from halfgp.paper.part import Outcome, Part
from halfgp.paper.trajectories import claims, note, panels, trajectories


def measure(context: Context) -> Outcome:
    """Those of two models of Table 1."""
    data = trajectories(context, "osborne_magnetic")
    paper = "On 3droad there are clearer divergences in the output scale."
    said = f"{note(context, data)} 3droad is not at hand: an airborne magnetic survey stands in for it."
    return Outcome(data, claims(data, paper), said)


PART = Part(
    name="appendix_osborne_trajectories",
    title="Hyperparameters by step on a stand-in for 3droad",
    place="Appendix, Figure A.5",
    module=__name__,
    measure=measure,
    panels=panels,
    minutes=0.1,
)
