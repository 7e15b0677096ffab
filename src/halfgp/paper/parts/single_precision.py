"""On the conclusion: scaling and log-scale inner products change nothing in single precision."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from halfgp.analysis import Residuals, history
from halfgp.operators import KernelOperator
from halfgp.paper.frame.context import Context
from halfgp.paper.frame.drawing import REFERENCE, SERIES
from halfgp.paper.frame.part import Claim, Data, Outcome, Panel, Part, Verdict
from halfgp.paper.studies.residuals import RANK, Case
from halfgp.precision import SINGLE
from halfgp.report import words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TOL = 0.01
ITERATIONS = 200


def _measure(context: Context) -> Outcome:
    """Solve in single with each modification, and multiply with and without scaling."""
    case = Case.load(context, "elevators", quick=2000, full=None)
    operator = case.single()
    runs = {}
    for done, (label, solver, reorthogonalise) in enumerate(
        (
            ("standard", "standard single", False),
            ("log-scale inner products", "log single", False),
            ("re-orthogonalised", "single", True),
        )
    ):
        context.progress(done, 3, label)
        runs[label] = history(
            operator,
            case.y,
            solver=solver,
            rank=RANK,
            tol=TOL,
            max_iterations=ITERATIONS,
            reorthogonalise=reorthogonalise,
        )
    data: Data = {
        "history": {label: [1.0, *run.history] for label, run in runs.items()},
        "iterations": {label: run.iterations for label, run in runs.items()},
        "residual": {label: run.residual for label, run in runs.items()},
        "apart": _apart(runs["standard"], runs["log-scale inner products"]),
        "scaling": _scaling(operator, case.y.float()),
    }
    return Outcome(
        data,
        claims=(_nothing(data), _something(data)),
        note=f"{case.size}, RBF at trained hyperparameters, solves in single with rank {RANK}, to a true"
        f" residual of {TOL:g} or {ITERATIONS} iterations. Products K(v/s)·s beside K v, with s = √N as the"
        f" paper has it and with the power of two next to it, as ours. {case.found.source}",
    )


def _apart(one: Residuals, other: Residuals) -> float:
    """The largest relative difference of two histories, as far as both go."""
    pairs = zip(one.history, other.history, strict=False)
    return max(abs(a - b) / a for a, b in pairs)


def _scaling(operator: KernelOperator, v: Tensor) -> dict[str, float]:
    """Relative differences that scaling before a product, and back after it, makes."""
    root = math.sqrt(len(v))
    plain = torch.as_tensor(operator @ v)
    found = {}
    for name, scale in (("by √N", root), ("by a power of two", 2.0 ** round(math.log2(root)))):
        scaled = torch.as_tensor(operator @ (v / scale)) * scale
        found[name] = float((scaled - plain).norm() / plain.norm())
    return found


def _nothing(data: Data) -> Claim:
    iterations, scaling = data["iterations"], data["scaling"]
    standard, log = iterations["standard"], iterations["log-scale inner products"]
    return Claim(
        text="In single, scaling and log-scale inner products have no effect.",
        paper="Apart from re-orthogonalisation the modifications have no effect on single or double.",
        measured=f"Standard CG takes {words.plural(standard, 'iteration')}, with log-scale inner products"
        f" {log}, with residuals that differ by at most {words.number(data['apart'], 2)} relatively. Scaling"
        f" changes a product by {words.number(scaling['by √N'], 2)}, and by a power of two by"
        f" {words.number(scaling['by a power of two'], 2)}.",
        verdict=Verdict.of(
            standard == log,
            scaling["by √N"] < 4 * SINGLE.unit_roundoff,
            scaling["by a power of two"] == 0.0,
        ),
        reason="Single has range enough: nothing overflows. A power of two changes the exponent only; √N is"
        " rounded, twice.",
    )


def _something(data: Data) -> Claim:
    iterations = data["iterations"]
    ratio = iterations["standard"] / iterations["re-orthogonalised"]
    return Claim(
        text="Re-orthogonalisation does have an effect in single.",
        paper="It is excepted.",
        measured=f"{words.plural(iterations['re-orthogonalised'], 'iteration')} against"
        f" {iterations['standard']}, {words.number(ratio, 3)} times fewer.",
        verdict=Verdict.of(ratio > 1.05),
        reason="Residuals of CG lose their orthogonality in single as well, only later.",
    )


def _panels(data: Data) -> list[Panel]:
    """Residuals against iterations."""

    def draw(axes: Axes) -> None:
        for (label, values), colour in zip(data["history"].items(), SERIES, strict=False):
            style = "--" if label.startswith("log") else "-"
            axes.semilogy(range(len(values)), values, style, color=colour, linewidth=2, label=label)
        axes.axhline(TOL, color=REFERENCE, linestyle=":", linewidth=1.5)
        axes.set(xlabel="iteration", ylabel="relative residual")

    return [Panel("", draw)]


PARTS = (
    Part(
        name="appendix_scaling_in_single",
        title="The modifications in single",
        place="Appendix, on the conclusion",
        module=__name__,
        measure=_measure,
        panels=_panels,
        minutes=0.5,
    ),
)
