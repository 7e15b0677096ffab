"""Appendix, experimental setup: predictions in half and in single, of models that were trained in half."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from halfgp.kernels import RBF, Kernel
from halfgp.operators import KernelOperator
from halfgp.paper.frame.context import Context, SampledSplit
from halfgp.paper.frame.part import Claim, Data, Outcome, Part, Table, Verdict
from halfgp.paper.studies.fits import Fit, fit
from halfgp.paper.studies.plan import SMALL, request
from halfgp.paper.studies.records import NEAR, changes, ratios
from halfgp.precision import PRESETS
from halfgp.preconditioners import PivotedCholesky
from halfgp.report import words
from halfgp.solvers import cg
from halfgp.standardise import Standardisation

METHODS = ("single", "half", "bfloat16")
RANK, TOL, ITERATIONS = 15, 0.01, 1000  # rank and tolerance are the paper's


def _measure(context: Context) -> Outcome:
    """Solve for the weights and multiply with them in each precision, at the hyperparameters of Table 1."""
    sets = context.pick(quick=("pol", "elevators"), full=SMALL)
    found: list[Data] = []
    for done, name in enumerate(sets):
        context.progress(done, len(sets), name)
        wanted = request(context, name, "half")
        model = fit(context, wanted)
        rows = context.rows(name, wanted.rows, wanted.test_rows, wanted.seed)
        found += [{"set": name, "method": method, **_predict(model, rows, method)} for method in METHODS]
    return Outcome(
        {"records": found},
        claims=(_limited(found, "half"), _limited(found, "bfloat16")),
        note=f"The models of Table 1 trained in half, seed {context.seed}, at the hyperparameters of the last"
        " step. In 16 bits, kernel matrices are stored in the format, as the paper has them, weights come"
        f" from stable CG to {TOL:g} with rank {RANK}, and weights and means are rounded too. Residuals are"
        " true ones.",
    )


def _predict(model: Fit, rows: SampledSplit, method: str) -> Data:
    """The RMSE of means whose solve and product are in one precision."""
    kernel, noise = _kernel(model)
    precision, dtype = PRESETS[method], PRESETS[method].inputs.dtype
    scale = Standardisation.of(rows.x)  # a fit scales the rows it is given
    x, x_test = scale.apply(rows.x), scale.apply(rows.x_test)
    storage = "stored" if precision.is_sixteen_bit else "on_the_fly"
    operator = KernelOperator(kernel, x, noise=noise, precision=precision, storage=storage)
    recipe: Any = PivotedCholesky(rank=RANK)
    result = cg(
        operator,
        rows.y,
        method="paper" if precision.is_sixteen_bit else "auto",
        preconditioner=recipe,
        tol=TOL,
        max_iterations=ITERATIONS,
        precision=method,
    )
    weights = torch.as_tensor(result.solution).to(dtype)
    cross = KernelOperator(kernel, x_test, x, precision=precision, storage=storage)
    mean = torch.as_tensor(cross @ weights).double()
    return {
        "rmse": [math.sqrt(float((mean - rows.y_test).square().mean()))],
        "residual": float(torch.as_tensor(result.residual_norms).max()),
        "iterations": result.iterations,
        "status": str(result.status),
        "rows": len(rows.y),
    }


def _kernel(model: Fit) -> tuple[Kernel, float]:
    """And the noise, as training left them."""
    at_end = {name: values[-1] for name, values in model.trajectory.items()}
    return at_end["kernel.outputscale"] * RBF(lengthscale=at_end["kernel.lengthscale"]), at_end["noise"]


def _limited(found: Sequence[Data], method: str) -> Claim:
    kept = ratios(found, "rmse", method, "single")
    reached = ", ".join(
        f"{r['set']} {words.number(r['residual'], 2)} after {words.plural(r['iterations'], 'iteration')}"
        for r in found
        if r["method"] == method
    )
    in_half = method == "half"
    return Claim(
        text="Predicting in half instead of single changes the RMSE little."
        if in_half
        else "Predicting in bfloat16 instead of single changes the RMSE little.",
        paper="At test time models went back to single, which had limited impact on the RMSE."
        if in_half
        else "Not tried.",
        measured=f"RMSE against single's: {changes(kept, 2)}. True residuals: {reached}.",
        verdict=Verdict.of(*(abs(value - 1) <= NEAR for value in kept.values())),
        reason=f"The noise is larger than what rounding does to K. “Little” is taken for"
        f" {words.percent(NEAR, 0)}.",
    )


def _table(data: Data) -> Table:
    """The RMSE, and how the solves went."""
    heading = ("set", "rows", "precision", "RMSE", "residual", "iterations", "status")
    rows = (
        (
            r["set"],
            words.count(r["rows"]),
            r["method"],
            f"{r['rmse'][0]:.4f}",
            words.number(r["residual"], 2),
            str(r["iterations"]),
            r["status"].replace("_", " "),
        )
        for r in data["records"]
    )
    return Table(heading, tuple(rows))


PARTS = (
    Part(
        name="appendix_test_precision",
        title="Predictions in half and in single",
        place="Appendix, experimental setup",
        module=__name__,
        measure=_measure,
        table=_table,
        minutes=2.0,
    ),
)
