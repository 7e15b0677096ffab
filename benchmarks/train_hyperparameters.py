"""Train the hyperparameters that the benchmarks of solvers use, with GPyTorch, and store them as JSON.

A random subset of the training rows of split 0, exact Cholesky factors in float64, Adam; an outputscale and a
lengthscale for every feature, zero mean, the paper's Gamma priors, noise at least 1e-4.

    HALFGP_DATA=... python benchmarks/train_hyperparameters.py     all sets; six minutes on two cores
    python benchmarks/train_hyperparameters.py --sets pol --rows 500 --steps 20 --output elsewhere.json
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import gpytorch
import torch
import typer
from gpytorch.constraints import GreaterThan
from gpytorch.priors import GammaPrior
from torch import Tensor

from product_report import console
from uci import HYPERPARAMETERS, KERNELS, SETS, data_directory, training_rows

LEARNING_RATE = 0.1
NOISE_FLOOR = 1e-4
SEED = 0


class ExactModel(gpytorch.models.ExactGP):
    """Zero mean, outputscale times a kernel with a lengthscale for every feature."""

    def __init__(self, x: Tensor, y: Tensor, kernel_name: str) -> None:
        likelihood = gpytorch.likelihoods.GaussianLikelihood(
            noise_prior=GammaPrior(1.1, 0.05), noise_constraint=GreaterThan(NOISE_FLOOR)
        )
        super().__init__(x, y, likelihood)
        options = {"ard_num_dims": x.shape[1], "lengthscale_prior": GammaPrior(3.0, 6.0)}
        base = (
            gpytorch.kernels.RBFKernel(**options)
            if kernel_name == "rbf"
            else gpytorch.kernels.MaternKernel(nu=1.5, **options)
        )
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(base, outputscale_prior=GammaPrior(2.0, 0.15))

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def train(x: Tensor, y: Tensor, kernel_name: str, steps: int) -> dict[str, Any]:
    """Values in a form that JSON holds, with the loss (nats a row) at the end."""
    torch.manual_seed(SEED)
    model = ExactModel(x, y, kernel_name).double()
    model.likelihood.noise = 0.1
    model.train()
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    optimiser = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    loss = torch.zeros(())
    with (
        gpytorch.settings.fast_computations(False, False, False),
        gpytorch.settings.max_cholesky_size(len(x)),
    ):
        for _ in range(steps):
            optimiser.zero_grad()
            loss = -objective(model(x), y)
            loss.backward()
            optimiser.step()
    lengthscale = model.covar_module.base_kernel.lengthscale.detach().squeeze(0)
    return {
        "lengthscale": [float(f"{value:.6g}") for value in lengthscale.tolist()],
        "outputscale": float(f"{model.covar_module.outputscale.item():.6g}"),
        "noise": float(f"{model.likelihood.noise.item():.6g}"),
        "loss": float(f"{loss.item():.4g}"),
    }


def main(
    data: Annotated[Path | None, typer.Option(help="Directory of the sets; default HALFGP_DATA.")] = None,
    sets: Annotated[str, typer.Option(help="Comma-separated.")] = ",".join(SETS),
    rows: Annotated[int, typer.Option(help="Training rows in the subset.")] = 1200,
    steps: Annotated[int, typer.Option(help="Of Adam.")] = 50,
    output: Annotated[Path, typer.Option(help="Where the JSON goes.")] = HYPERPARAMETERS,
) -> None:
    """Train every set with both kernels and write the values."""
    directory = data_directory(data)
    torch.set_flush_denormal(True)
    results: dict[str, Any] = {}
    for name in sets.split(","):
        x, y = training_rows(directory, name, rows, SEED)
        results[name] = {}
        for kernel_name in KERNELS:
            start = time.perf_counter()
            values = results[name][kernel_name] = train(x, y, kernel_name, steps)
            console.print(
                f"{name}, {kernel_name}: noise {values['noise']:.3g},"
                f" outputscale {values['outputscale']:.3g}, loss {values['loss']:.3g},"
                f" {time.perf_counter() - start:.0f} s"
            )
            record = {"rows": rows, "steps": steps, "rate": LEARNING_RATE, "seed": SEED, "sets": results}
            output.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
