"""Bayesian optimisation with BoTorch after 20,000 observations: the script is BoTorch's but for one line.

python examples/bayesian_optimisation.py              # some minutes on two cores
python examples/bayesian_optimisation.py --rows 2000  # a look
"""

from __future__ import annotations

import argparse
import time
import warnings

import torch
from botorch.acquisition import qLogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from botorch.test_functions import Hartmann
from gpytorch.mlls import ExactMarginalLogLikelihood

from halfgp.integrations.gpytorch import enable


def observe(x: torch.Tensor) -> torch.Tensor:
    """What is to be maximised, with noise: Hartmann's function of six features, at most 3.32."""
    return -Hartmann(dim=6)(x)[:, None] + 0.02 * torch.randn(len(x), 1, dtype=torch.float64)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000, help="past observations")
    parser.add_argument("--steps", type=int, default=2, help="of optimisation")
    parser.add_argument("--iterations", type=int, default=5, help="of L-BFGS for the hyperparameters")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # BoTorch's, about a few iterations being few
    torch.manual_seed(0)
    bounds = torch.tensor([[0.0] * 6, [1.0] * 6], dtype=torch.float64)
    x = torch.rand(arguments.rows, 6, dtype=torch.float64)
    y = observe(x)

    enable()  # the one line

    for step in range(arguments.steps):
        began = time.perf_counter()
        standardised = (y - y.mean()) / y.std()
        model = SingleTaskGP(x, standardised)
        mll = ExactMarginalLogLikelihood(model.likelihood, model)
        options = {"maxiter": arguments.iterations}
        fit_gpytorch_mll(mll, optimizer_kwargs={"options": options}, max_attempts=1)
        fitted = time.perf_counter() - began
        point, _ = optimize_acqf(
            qLogExpectedImprovement(model, best_f=standardised.max()),
            bounds,
            q=1,
            num_restarts=2,
            raw_samples=16,
            options={"maxiter": 10, "batch_limit": 2},
        )
        found = observe(point)
        x, y = torch.cat([x, point]), torch.cat([y, found])
        seconds = time.perf_counter() - began
        print(
            f"step {step + 1}: fitted {len(x) - 1:,} rows in {fitted:.1f} s, one point in"
            f" {seconds - fitted:.1f} s: {float(found):.3f}, best so far {float(y.max()):.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
