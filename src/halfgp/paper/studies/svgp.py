"""The peer of the paper's tables: GPyTorch's variational Gaussian process with inducing points (SVGP)."""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from halfgp.errors import InputError
from halfgp.paper.frame.context import SampledSplit

PACKAGES = ("gpytorch",)
BATCH = 1024
LEARNING_RATE = 0.01
NOISE_FLOOR = 1e-4  # the paper's
SMOOTHNESS = {"matern12": 0.5, "matern32": 1.5, "matern52": 2.5}


@dataclass(frozen=True, eq=False)
class Prediction:
    """What it says about the test rows.

    Attributes:
        mean: (m,).
        std: (m,), noise included.
        fit_seconds: of training.
        predict_seconds: of the test rows.
        losses: minus the lower bound on the log likelihood per row, mean over each epoch.
    """

    mean: NDArray[np.float64]
    std: NDArray[np.float64]
    fit_seconds: float
    predict_seconds: float
    losses: list[float]


def is_installed() -> bool:
    """Whether GPyTorch is."""
    return importlib.util.find_spec("gpytorch") is not None


def fit(rows: SampledSplit, kernel: str, ard: bool, *, inducing: int, epochs: int, seed: int) -> Prediction:
    """Train on minibatches with Adam, in single precision, and predict.

    Args:
        rows: standardised.
        kernel: "rbf", "matern12", "matern32" or "matern52".
        ard: one lengthscale per feature.
        inducing: points, first at random rows and then learned; no more than there are rows.
        epochs: passes over the rows.
        seed: of rows, batches and inducing points.
    """
    if not is_installed():
        raise InputError("SVGP is GPyTorch's: `pip install halfgp[paper]`.")
    gpytorch: Any = importlib.import_module("gpytorch")
    x, y, x_test = rows.x.float(), rows.y.float(), rows.x_test.float()
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]), _without_denormals():
        torch.manual_seed(seed)  # GPyTorch draws from the global generator
        start = time.perf_counter()
        centres = x[torch.randperm(len(x), generator=generator)[:inducing]].clone()
        model = _model(gpytorch, centres, kernel, ard)
        losses = _train(gpytorch, model, x, y, epochs, generator)
        fitted = time.perf_counter()
        mean, variance = _predict(model, x_test)
    end = time.perf_counter()
    return Prediction(mean.numpy(), variance.sqrt().numpy(), fitted - start, end - fitted, losses)


@contextmanager
def _without_denormals() -> Iterator[None]:
    """In single, covariances of far points are denormal, and steps that meet them take twice as long."""
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)  # as torch starts


def _model(gpytorch: Any, centres: Tensor, kernel: str, ard: bool) -> Any:
    """A variational model with a likelihood of its own."""

    class Model(gpytorch.models.ApproximateGP):  # type: ignore[misc]
        def __init__(self) -> None:
            distribution = gpytorch.variational.CholeskyVariationalDistribution(len(centres))
            super().__init__(gpytorch.variational.VariationalStrategy(self, centres, distribution))
            options = {"ard_num_dims": centres.shape[1] if ard else None}
            base = (
                gpytorch.kernels.RBFKernel(**options)
                if kernel == "rbf"
                else gpytorch.kernels.MaternKernel(nu=SMOOTHNESS[kernel], **options)
            )
            self.covariance = gpytorch.kernels.ScaleKernel(base)
            self.mean = gpytorch.means.ZeroMean()
            self.likelihood = gpytorch.likelihoods.GaussianLikelihood(
                noise_constraint=gpytorch.constraints.GreaterThan(NOISE_FLOOR)
            )

        def forward(self, x: Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.covariance(x))

    return Model()


def _train(
    gpytorch: Any, model: Any, x: Tensor, y: Tensor, epochs: int, generator: torch.Generator
) -> list[float]:
    model.train()
    bound = gpytorch.mlls.VariationalELBO(model.likelihood, model, num_data=len(y))
    optimiser = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    losses = []
    for _ in range(epochs):
        total = 0.0
        for batch in torch.split(torch.randperm(len(y), generator=generator), BATCH):
            optimiser.zero_grad()
            loss = -bound(model(x[batch]), y[batch])
            loss.backward()
            optimiser.step()
            total += float(loss.detach()) * len(batch) / len(y)
        losses.append(total)
    return losses


def _predict(model: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    model.eval()
    with torch.no_grad():
        found = [model.likelihood(model(block)) for block in torch.split(x, BATCH)]
    mean = torch.cat([block.mean.double() for block in found])
    return mean, torch.cat([block.variance.double() for block in found])
