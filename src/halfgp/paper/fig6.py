"""Figure 6: hyperparameters by step of training on protein, in single and in half."""

from __future__ import annotations

from halfgp.paper.context import Context
from halfgp.paper.part import Outcome, Part
from halfgp.paper.trajectories import claims, note, panels, trajectories


def measure(context: Context) -> Outcome:
    """Those of two models of Table 1."""
    data = trajectories(context, "protein")
    paper = "Noise and lengthscale are very close; the output scale shows minor differences."
    return Outcome(data, claims(data, paper), note(context, data))


PART = Part(
    name="fig6",
    title="Hyperparameters by step on protein",
    place="Figure 6",
    module=__name__,
    measure=measure,
    panels=panels,
    minutes=0.1,
)
