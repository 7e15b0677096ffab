"""GPyTorch's exact-GP tutorial and a step of BoTorch, as they are and with our one line.

    python benchmarks/integrations.py                          # all of it, some twelve minutes
    python benchmarks/integrations.py --part tutorial --steps 6   # the first steps only

Every measurement runs in a process of its own, whose peak memory is told. pol comes from HALFGP_DATA. A step
of stock BoTorch on 20,000 rows would take most of an hour and more than 24 GB; it is measured on 10,000
beside ours, and what its Cholesky factors would take is told as extrapolated, by the cube of the rows.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from halfgp.datasets import load_uci
from training_peers import StandardisedSplit
from uci import data_directory

RESULTS = Path(__file__).with_suffix(".json")


def one_line(library: str) -> Any:
    """What a reader adds to the script."""
    if library == "stock":
        return contextlib.nullcontext()
    from halfgp.integrations.gpytorch import enable

    return enable()


def tutorial(x: torch.Tensor, y: torch.Tensor, x_test: torch.Tensor, steps: int) -> tuple[Any, list[float]]:
    """The simple exact-GP regression of GPyTorch's tutorial; predictions, and seconds of every step."""
    import gpytorch

    class ExactGPModel(gpytorch.models.ExactGP):
        def __init__(self, train_x: Any, train_y: Any, likelihood: Any) -> None:
            super().__init__(train_x, train_y, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = ExactGPModel(x, y, likelihood)
    model.train()
    likelihood.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    seconds = []
    for _ in range(steps):
        began = time.perf_counter()
        optimizer.zero_grad()
        loss = -mll(model(x), y)
        loss.backward()
        optimizer.step()
        seconds.append(time.perf_counter() - began)
    model.eval()
    likelihood.eval()
    with torch.no_grad(), gpytorch.settings.skip_posterior_variances():
        return model(x_test).mean, seconds


def measure_tutorial(library: str, rows: int | None, steps: int) -> dict[str, Any]:
    data = StandardisedSplit.of(load_uci("pol", data_directory(None)), rows)
    x, y, x_test, y_test = (
        torch.from_numpy(np.ascontiguousarray(a)).float() for a in (data.x, data.y, data.x_test, data.y_test)
    )
    with one_line(library):
        mean, seconds = tutorial(x, y, x_test, steps)
    rmse = float((mean - y_test).square().mean().sqrt())
    return {"rows": len(x), "steps": steps, "seconds_per_step": float(np.mean(seconds)), "rmse": rmse}


def measure_botorch(library: str, rows: int, _steps: int) -> dict[str, Any]:
    """A fit, two iterations of it, and one acquisition, of six features; double, as BoTorch wants it."""
    from botorch.acquisition import qLogExpectedImprovement
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.optim import optimize_acqf
    from botorch.test_functions import Hartmann
    from gpytorch.mlls import ExactMarginalLogLikelihood

    torch.manual_seed(0)
    x = torch.rand(rows, 6, dtype=torch.float64)
    y = -Hartmann(dim=6)(x)[:, None]
    y = (y - y.mean()) / y.std() + 0.05 * torch.randn(rows, 1, dtype=torch.float64)
    began = time.perf_counter()
    with one_line(library):
        model = SingleTaskGP(x, y)
        mll = ExactMarginalLogLikelihood(model.likelihood, model)
        fit_gpytorch_mll(mll, optimizer_kwargs={"options": {"maxiter": 1, "maxfun": 2}}, max_attempts=1)
        fitted = time.perf_counter() - began
        acquisition = qLogExpectedImprovement(model, best_f=y.max())
        options = {"batch_limit": 4, "maxiter": 2}
        point, _ = optimize_acqf(
            acquisition, torch.tensor([[0.0] * 6, [1.0] * 6], dtype=torch.float64),
            q=1, num_restarts=2, raw_samples=8, options=options,
        )  # fmt: skip
    total = time.perf_counter() - began
    return {"rows": rows, "seconds_of_fit": fitted, "seconds": total, "point": point[0].tolist()}


ROWS = {"tutorial": (13_500,), "botorch": (10_000, 20_000)}
MOST_OF_STOCK_BOTORCH = 10_000
PARTS = {"tutorial": measure_tutorial, "botorch": measure_botorch}


def alone(part: str, library: str, rows: int, steps: int, limit: float) -> dict[str, Any]:
    """In a process of its own, with its peak memory; what is not done in time is told as such."""
    command = [sys.executable, __file__, "--only", part, library, "--rows", str(rows), "--steps", str(steps)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit)
    except subprocess.TimeoutExpired:
        return {"rows": rows, "seconds": limit, "unfinished": True}
    if done.returncode:
        return {"rows": rows, "failed": done.stderr.strip().splitlines()[-1][:300]}
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", nargs=2, metavar=("PART", "LIBRARY"))
    parser.add_argument("--rows", type=int, default=0, help="of each part; by default those of the issue")
    parser.add_argument("--steps", type=int, default=50, help="of the tutorial")
    parser.add_argument("--part", choices=PARTS, help="one of them; both by default")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds of one measurement")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.only:
        part, library = arguments.only
        base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        found = PARTS[part](library, arguments.rows, arguments.steps)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(json.dumps(found | {"peak_mb": peak / 1024, "mb_before": base / 1024}))
        return
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for part, sizes in ROWS.items():
        if arguments.part in (None, part):
            for rows in (arguments.rows,) if arguments.rows else sizes:
                results |= beside(part, rows, arguments.steps, arguments.limit, results)
    if not arguments.rows:
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")


def beside(part: str, rows: int, steps: int, limit: float, known: dict[str, Any]) -> dict[str, Any]:
    """Both libraries on so many rows, and the ratio of their times; what is known before may be built on."""
    ours = alone(part, "halfgp", rows, steps, limit)
    least = MOST_OF_STOCK_BOTORCH
    if part == "botorch" and rows > least:
        measured = known.get(f"botorch, {least}, stock") or alone(part, "stock", least, steps, limit)
        theirs = {"rows": rows, "extrapolated_from": least}
        if "seconds" in measured:
            theirs["seconds"] = measured["seconds"] * (rows / least) ** 3
    else:
        theirs = alone(part, "stock", rows, steps, limit)
    what = "seconds_per_step" if part == "tutorial" else "seconds"
    ratio = theirs[what] / ours[what] if what in theirs and what in ours else None
    found = {
        f"{part}, {rows}, halfgp": ours,
        f"{part}, {rows}, stock": theirs,
        f"{part}, {rows}, ratio": ratio,
    }
    for name, value in found.items():
        print(f"{name}: {value}", flush=True)
    return found


if __name__ == "__main__":
    main()
