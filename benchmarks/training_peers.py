"""One fit and its predictions, by us or by a peer: what `training.py` runs in a process of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from halfgp import GPRegressor
from halfgp.datasets import Dataset
from halfgp.scores import LEVELS

FloatArray = NDArray[np.float64]
SKLEARN_ROWS = 1000  # L-BFGS on dense double matrices, gradients by three-way arrays: minutes beyond
CHOLESKY_ROWS = 3000  # the most that our default takes exactly, in double
HIGP_ROWS = 4000  # its products on the fly are slow here: 13,500 rows take more than five minutes
GPYTORCH_ROWS = 15_700  # of dense float32 with CG: 6 GB


@dataclass(frozen=True)
class StandardisedSplit:
    """Standardised training and test rows of split 0."""

    x: FloatArray
    y: FloatArray
    x_test: FloatArray
    y_test: FloatArray

    @classmethod
    def of(cls, dataset: Dataset, limit: int | None = None, tests: int | None = None) -> StandardisedSplit:
        """At most `limit` training rows and `tests` others, drawn at random; standardised by all of them."""
        x, y, x_test, y_test = dataset.split(0)
        spread = np.where(x.std(axis=0) > 0, x.std(axis=0), 1.0)
        x, x_test = (x - x.mean(axis=0)) / spread, (x_test - x.mean(axis=0)) / spread
        y, y_test = (y - y.mean()) / y.std(), (y_test - y.mean()) / y.std()
        if limit is not None and limit < len(y):
            some = np.random.default_rng(0).permutation(len(y))[:limit]
            x, y = x[some], y[some]
        # Files have an order: the first rows are those of one place.
        others = np.random.default_rng(1).permutation(len(y_test))[:tests]
        return cls(x, y, x_test[others], y_test[others])


@dataclass(frozen=True)
class Outcome:
    """Predictions at the test rows, seconds, and whatever else is worth telling."""

    mean: FloatArray
    std: FloatArray
    fit_seconds: float
    predict_seconds: float
    about: dict[str, Any]
    intervals: Mapping[float, tuple[FloatArray, FloatArray]] | None = None


def _ours(model: GPRegressor, rows: StandardisedSplit) -> Outcome:
    start = time.perf_counter()
    model.fit(rows.x, rows.y)
    fitted = time.perf_counter()
    mean, std = model.predict(rows.x_test, return_std=True)
    end = time.perf_counter()
    _, error = model.predict(rows.x_test, return_error=True)  # not timed: no peer tells it
    intervals = model.predict_interval(rows.x_test, coverage=LEVELS)
    report = model.report_
    about = {
        "training": report.method,
        "variance": report.variance,
        "passes": report.passes,
        "residual": report.residual,
        "noise": model.noise_,
        "mean_error": float(np.mean(error.mean)),
        "scale": report.scale,
    }
    ends = dict(zip(LEVELS, zip(intervals.lower, intervals.upper, strict=True), strict=True))
    return Outcome(mean, std, fitted - start, end - fitted, about, ends)


def default(rows: StandardisedSplit, **options: Any) -> Outcome:
    """Nothing chosen."""
    return _ours(GPRegressor(**options), rows)


def paper(rows: StandardisedSplit) -> Outcome:
    """The paper's setting, RBF with ARD, half."""
    return _ours(GPRegressor.paper(kernel="rbf", precision="half"), rows)


def paper_automatic(rows: StandardisedSplit) -> Outcome:
    """The same with the automatic preconditioner in place of rank 15, which needs fewer iterations a step."""
    automatic = {"solve__preconditioner": "auto", "solve__rank": None, "training__min_iterations": 4}
    return _ours(GPRegressor.paper(kernel="rbf", precision="half", **automatic), rows)


def gpytorch_paper(rows: StandardisedSplit) -> Outcome:
    """GPyTorch in the paper's setting: dense float32, CG, 50 steps of Adam."""
    import gpytorch

    from train_hyperparameters import ExactModel

    torch.manual_seed(0)
    torch.set_flush_denormal(True)
    x, y, x_test = (torch.from_numpy(a).float() for a in (rows.x, rows.y, rows.x_test))
    model = ExactModel(x, y, "rbf")
    model.likelihood.noise = 2.0
    settings = gpytorch.settings
    start = time.perf_counter()
    with (
        settings.max_cholesky_size(0),
        settings.cg_tolerance(1.0),
        settings.max_cg_iterations(50),
        settings.num_trace_samples(10),
        settings.max_preconditioner_size(15),
    ):
        model.train()
        objective = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
        optimiser = torch.optim.Adam(model.parameters(), lr=0.1)
        for _ in range(50):
            optimiser.zero_grad()
            loss = -objective(model(x), y)
            loss.backward()
            optimiser.step()
    fitted = time.perf_counter()
    model.eval()
    with (
        torch.no_grad(),
        settings.max_cholesky_size(0),
        settings.eval_cg_tolerance(0.01),
        settings.max_cg_iterations(1000),
        settings.max_preconditioner_size(15),
        settings.fast_pred_var(),
        settings.max_root_decomposition_size(100),
    ):
        found = model.likelihood(model(x_test))
        mean, std = found.mean.double().numpy(), found.variance.double().clamp_min(1e-12).sqrt().numpy()
    end = time.perf_counter()
    return Outcome(mean, std, fitted - start, end - fitted, {"noise": model.likelihood.noise.item()})


def gpboost_vecchia(rows: StandardisedSplit) -> Outcome:
    """GPBoost: every row given 20 neighbours, in learning and in predicting."""
    import gpboost

    ones, ones_test = np.ones((len(rows.x), 1)), np.ones((len(rows.x_test), 1))
    start = time.perf_counter()
    model = gpboost.GPModel(
        gp_coords=rows.x,
        cov_function="matern_ard",
        cov_fct_shape=1.5,
        gp_approx="vecchia",
        num_neighbors=20,
        likelihood="gaussian",
    )
    model.fit(y=rows.y, X=ones)
    fitted = time.perf_counter()
    found = model.predict(
        gp_coords_pred=rows.x_test, X_pred=ones_test, predict_var=True, predict_response=True
    )
    end = time.perf_counter()
    return Outcome(found["mu"], np.sqrt(found["var"]), fitted - start, end - fitted, {})


def sklearn_gpr(rows: StandardisedSplit) -> Outcome:
    """scikit-learn's GaussianProcessRegressor, the same kernel as our default."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    d = rows.x.shape[1]
    kernel = ConstantKernel(1.0) * Matern(np.full(d, d**0.5 / 2), (1e-2, 1e3), nu=1.5) + WhiteKernel(
        0.1, (1e-6, 10.0)
    )
    start = time.perf_counter()
    model = GaussianProcessRegressor(kernel, normalize_y=False).fit(rows.x, rows.y)
    fitted = time.perf_counter()
    mean, std = model.predict(rows.x_test, return_std=True)
    return Outcome(mean, std, fitted - start, time.perf_counter() - fitted, {})


def higp_gpr(rows: StandardisedSplit) -> Outcome:
    """HiGP: one lengthscale for all features, Matérn-3/2, Adam, its own defaults otherwise."""
    import higp

    x, x_test = rows.x.astype(np.float32), rows.x_test.astype(np.float32)
    y = rows.y.astype(np.float32)
    # It has one lengthscale only, which features in many dimensions want to be about √d.
    scale = np.float32(x.shape[1] ** 0.5)
    start = time.perf_counter()
    problem = higp.gprproblem.setup(data=(x / scale).T.copy(), label=y, kernel_type=higp.Matern32Kernel)
    model = higp.GPRModel(problem, dtype=torch.float32)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.1)
    higp.gpr_torch_minimize(model, optimiser, maxits=50)
    fitted = time.perf_counter()
    found = higp.gpr_prediction(
        data_train=(x / scale).T.copy(),
        label_train=y,
        data_prediction=(x_test / scale).T.copy(),
        kernel_type=higp.Matern32Kernel,
        gp_params=model.get_params(),
    )
    mean, std = (np.asarray(a, dtype=np.float64) for a in (found.prediction_mean, found.prediction_stddev))
    return Outcome(mean, std, fitted - start, time.perf_counter() - fitted, {})


# Name, what runs it, and the most rows it can take.
METHODS: dict[str, tuple[Callable[[StandardisedSplit], Outcome], int | None]] = {
    "default": (default, None),
    "cholesky": (default, CHOLESKY_ROWS),
    "paper": (paper, None),
    "paper-auto": (paper_automatic, None),
    "gpytorch": (gpytorch_paper, GPYTORCH_ROWS),
    "gpboost": (gpboost_vecchia, None),
    "higp": (higp_gpr, HIGP_ROWS),
    "sklearn": (sklearn_gpr, SKLEARN_ROWS),
    "memory": (lambda rows: default(rows, memory_limit="2GB"), 40_000),
}
