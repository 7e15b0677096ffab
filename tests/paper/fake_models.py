"""Rows that were never observed, models that were never trained, and solves that were never made."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from halfgp.paper.frame.context import Context, SampledSplit
from halfgp.paper.studies import records
from halfgp.paper.studies.fits import Fit, FitRequest

FEATURES = {
    "elevators": 18,
    "keggdirected": 20,
    "protein": 9,
    "pol": 26,
    "covtype_elev": 53,
    "houseelectric": 11,
}
SOLVES = 250  # rows of a set in place of those that solves are studied on
STEPS = 4
FACTORS = {"single": 1.0, "half": 1.01, "bfloat16": 1.1}  # of hyperparameters, beside single's
SECONDS = {"single": 8.0, "half": 5.0, "bfloat16": 5.0, "svgp": 1.0}
ERRORS = {"single": 0.2, "half": 0.204, "bfloat16": 0.21, "svgp": 0.3}


@dataclass(frozen=True)
class Synthetic(Context):
    """Random rows in place of the sets."""

    def rows(self, name, most=None, most_test=None, split=None) -> SampledSplit:
        n = most if name == "houseelectric" else SOLVES
        generator = torch.Generator().manual_seed(7)
        x = torch.randn(n + 10, FEATURES[name], dtype=torch.float64, generator=generator)
        y = (x[:, :3].sum(dim=1)).sin() + 0.3 * torch.randn(n + 10, dtype=torch.float64, generator=generator)
        return SampledSplit(name, x[:n], y[:n], x[n:], y[n:], available=n)


def fake_fit(request: FitRequest, **changed: float) -> Fit:
    """A model that was never trained; half is a hundredth off, bfloat16 a tenth."""
    rmse = changed.get("rmse", ERRORS[request.method]) * (1 + 0.001 * request.seed)
    factor = changed.get("factor", FACTORS.get(request.method, 1.0))
    noise = [2.0 * factor * 0.5**step for step in range(STEPS)]
    trajectory = {
        "kernel.outputscale": [factor] * STEPS,
        "kernel.lengthscale": [[factor, 2 * factor]] * STEPS,
        "noise": noise,
    }
    return Fit(
        rows=request.rows or 13_500,
        test_rows=100,
        features=26,
        rmse=rmse,
        nll=changed.get("nll", -0.5),
        constant_nll=0.5 * math.log(2 * math.pi * math.e * rmse**2),
        fit_seconds=changed.get("seconds", SECONDS[request.method]),
        predict_seconds=0.1,
        trajectory={} if request.method == "svgp" else trajectory,
        losses=[1.0] * STEPS,
        passes=10,
        residual=1e-3,
    )


def with_half(**changed: float) -> list[dict]:
    """Records of pol in which half is as told."""
    fits = {
        method: [fake_fit(FitRequest("pol", method), **(changed if method == "half" else {}))]
        for method in ("single", "half", "bfloat16", "svgp")
    }
    return [records._record("rbf", "pol", method, found, fits["single"]) for method, found in fits.items()]


def solved(rank: int, iterations: int | None, *, low: int | None = None, status: str = "max_iterations"):
    """A solve that took so many iterations, or failed."""
    good = iterations is not None
    return {
        "label": f"rank {rank}",
        "rank": rank,
        "history": [1.0, 0.4 if good else 3.0],
        "ending": status,
        "status": "converged" if good else status,
        "iterations": iterations,
        "ended": iterations or 50,
        "residual": 0.4 if good else 1.0,
        "low": low,
    }
