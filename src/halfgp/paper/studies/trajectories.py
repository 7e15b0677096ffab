"""Hyperparameters by step of training, in single and in half: Figure 6, and A.5 of the appendix."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from halfgp.paper.frame.context import Context
from halfgp.paper.frame.drawing import COLOURS
from halfgp.paper.frame.part import Claim, Data, Outcome, Panel, Part, Verdict
from halfgp.paper.studies.fits import fit
from halfgp.paper.studies.plan import effort, request
from halfgp.report import words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

METHODS = ("single", "half")
NAMES = {"noise": "noise", "kernel.outputscale": "output scale", "kernel.lengthscale": "lengthscales"}
CLOSE = 0.05  # relative


def trajectories(context: Context, set_name: str) -> Data:
    """Values before each step by method and hyperparameter, of the models of Table 1."""
    found: Data = {}
    for done, method in enumerate(METHODS):
        context.progress(done, len(METHODS), f"{set_name}, {method}")
        model = fit(context, request(context, set_name, method))
        found[method] = {name: model.trajectory[name] for name in NAMES}
        found |= {"rows": model.rows, "features": model.features}
    steps = min(len(found[method]["noise"]) for method in METHODS)
    largest = {name: _difference(found, name, slice(steps)) for name in NAMES}
    last = {name: _difference(found, name, slice(steps - 1, steps)) for name in NAMES}
    return {"set": set_name, **found, "largest_difference": largest, "last_difference": last}


def _difference(found: Data, name: str, steps: slice) -> float:
    """Largest relative difference of half from single."""
    single, half = (np.array(found[method][name], dtype=float)[steps] for method in METHODS)
    return float(np.abs(half / single - 1).max())


def claims(data: Data, paper: str) -> tuple[Claim, ...]:
    """That half follows single, and ends where it does."""
    largest, last = data["largest_difference"], data["last_difference"]
    follows = Claim(
        text=f"On {data['set']}, hyperparameters in half follow those in single step by step.",
        paper=paper,
        measured=f"Largest relative difference at any step: {_listed(largest)}.",
        verdict=Verdict.of(*(value <= CLOSE for value in largest.values())),
        reason="Solves in half are as good as gradients need. Probes are the same in both, so that nothing"
        f" but rounding tells them apart. “Follow” is taken for {words.percent(CLOSE, 0)} at most.",
    )
    ends = Claim(
        text=f"On {data['set']}, they end at values similar to those in single.",
        paper="Each converges to a similar value by the end of training.",
        measured=f"Relative difference at the last step: {_listed(last)}.",
        verdict=Verdict.of(*(value <= CLOSE for value in last.values())),
        reason="What rounding does to one gradient is undone by the next ones, which pull to the same"
        " optimum.",
    )
    return follows, ends


def _listed(differences: dict[str, float]) -> str:
    return ", ".join(f"{NAMES[name]} {_share(value)}" for name, value in differences.items())


def _share(value: float) -> str:
    """In percent, with two digits that mean something."""
    if value == 0:
        return "none"
    return words.percent(value, max(0, 1 - math.floor(math.log10(100 * value))))


def note(context: Context, data: Data) -> str:
    """What was measured."""
    return (
        f"{words.count(data['rows'])} rows of {data['set']}, {data['features']} features; RBF with ARD,"
        f" {effort(context).steps} steps of Adam from a noise of 2, seed {context.seed}: the models of Table"
        " 1. Of the lengthscales, one line for each feature, and the worst one counts."
    )


def panels(data: Data) -> list[Panel]:
    """One for each kind of hyperparameter."""
    return [
        Panel(
            label, partial(_draw, {method: data[method][name] for method in METHODS}, label.removesuffix("s"))
        )
        for name, label in NAMES.items()
    ]


def _draw(lines: dict[str, list[Any]], label: str, axes: Axes) -> None:
    # Mostly the same: a broad pale line below a thin one.
    for method, style, width, opacity in (("single", "-", 5.0, 0.4), ("half", "--", 1.5, 1.0)):
        values = np.array(lines[method], dtype=float).reshape(len(lines[method]), -1)
        for k, line in enumerate(values.T):
            axes.semilogy(
                line,
                style,
                color=COLOURS[method],
                linewidth=width,
                alpha=opacity,
                label="_" if k else method,
            )
    axes.set(xlabel="step", ylabel=label)


def _part(name: str, place: str, title: str, set_name: str, paper: str, more: str = "") -> Part:
    """Those of two models of Table 1.

    Args:
        name: of the part.
        place: in the paper.
        title: of the set.
        set_name: that the models are of.
        paper: what it reports.
        more: to say in the note.
    """

    def measure(context: Context) -> Outcome:
        data = trajectories(context, set_name)
        return Outcome(data, claims(data, paper), f"{note(context, data)}{more}")

    return Part(name, f"Hyperparameters by step on {title}", place, __name__, measure, panels)


PARTS = (
    _part(
        "fig6",
        "Figure 6",
        "protein",
        "protein",
        "Noise and lengthscale are very close; the output scale shows minor differences.",
    ),
    _part(
        "appendix_osborne_trajectories",
        "Appendix, Figure A.5",
        "a stand-in for 3droad",
        "osborne_magnetic",
        "On 3droad there are clearer divergences in the output scale.",
        more=" 3droad is not at hand: an airborne magnetic survey stands in for it.",
    ),
)
