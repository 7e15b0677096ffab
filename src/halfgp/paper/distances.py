"""How far two points may be apart before their covariance is zero in a format: a study of kernel families."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import torch

from halfgp.analysis.support import largest_distance
from halfgp.kernels import Kernel
from halfgp.paper.palette import COLOURS, REFERENCE
from halfgp.paper.part import Claim, Data, Panel, Verdict
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
