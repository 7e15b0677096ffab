"""What a fitted model found, in the units of its columns."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from halfgp.model import ExactGP, FitReport
from halfgp.report import words
from halfgp.scores import Scores, score

TRAINING = {"cholesky": "exact, by Cholesky in double", "cg": "on a subset, then by conjugate gradients"}
ROUTES = {
    "double factor": "by a dense factor in double",
    "single factor": "by conjugate gradients and a dense factor in single",
    "products": "by conjugate gradients, matrix-free",
}
CHEAP_ROWS = 3000  # up to so many, predictions without each row take about a second
KERNELS = {
    "rbf": "RBF",
    "matern12": "Matérn 1/2",
    "matern32": "Matérn 3/2",
    "matern52": "Matérn 5/2",
    "rational_quadratic": "rational quadratic",
}


@dataclass(frozen=True)
class Feature:
    """One column of the points.

    Attributes:
        name: of it.
        relevance: between 0 and 1, the largest; None for kernels without one lengthscale per feature.
        lengthscale: in units of the column; None where there is none, or more than one.
    """

    name: str
    relevance: float | None
    lengthscale: float | None


@dataclass(frozen=True)
class Summary:
    """Hyperparameters in the user's units.

    Attributes:
        kernel: in words.
        noise_std: of a target about the function; None where every row was given its own.
        signal_std: of the function about its mean, before any data.
        mean: of the function, before any data.
        features: in the order of the columns.
    """

    kernel: str
    noise_std: float | None
    signal_std: float
    mean: float
    features: tuple[Feature, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)

    def by_relevance(self) -> list[Feature]:
        """The most relevant first, else in the order of the columns."""
        return sorted(self.features, key=lambda feature: -(feature.relevance or 0.0))


def summarise(model: ExactGP, feature_names: tuple[str, ...]) -> Summary:
    """Of a fitted model with one target."""
    hyperparameters = model.hyperparameters
    noise = hyperparameters.noise
    unit, offset = float(model.y_scale.scale[0]), float(model.y_scale.mean[0])
    with torch.no_grad():
        prior = float(hyperparameters.kernel.diagonal(model.posterior.problem.at(slice(1)), white=False)[0])
    mean = 0.0 if hyperparameters.mean is None else float(hyperparameters.mean.value[0])
    relevance = model.relevance
    lengthscales = _lengthscales(model)
    return Summary(
        kernel=_kernel(model),
        noise_std=None if noise is None else math.sqrt(float(noise.value)) * unit,
        signal_std=math.sqrt(prior) * unit,
        mean=offset + mean * unit,
        features=tuple(
            Feature(
                name,
                None if relevance is None else float(relevance[k]),
                None if lengthscales is None or np.isnan(lengthscales[k]) else float(lengthscales[k]),
            )
            for k, name in enumerate(feature_names)
        ),
    )


def how_it_was_fitted(report: FitReport) -> list[tuple[str, str]]:
    """Facts about the fit, each with its label."""
    dropped = f", {words.count(report.dropped)} more without a target left out" if report.dropped else ""
    evaluations = f"{words.plural(report.steps, 'evaluation')} of the likelihood"
    local = "from the nearest rows" if report.variance == "local" else "from a Cholesky factor"
    error = f"{words.number(report.error, 2)} of a predictive deviation, in 99 % of the rows no more"
    route = ROUTES.get(report.route, report.route)
    facts = [
        ("rows", f"{words.count(report.rows)}{dropped}"),
        ("training", f"{TRAINING[report.method]}; {evaluations}"),
        ("solve", f"{route}; {words.plural(report.passes, 'pass')} over K in all"),
        ("covariances", f"{words.percent(report.skipped, 0)} are zero and passed by"),
        ("residual", f"{words.number(report.residual, 2)} (relative)"),
        ("numerical error", error if report.solved else f"{error}: NOT SOLVED, deviations are widened by it"),
        ("variances", local),
        ("time", words.duration(report.seconds)),
        ("peak memory", words.size(report.memory)),
    ]
    return [*facts, ("ended", "early, by Ctrl-C")] if report.interrupted else facts


def leave_one_out_scores(model: ExactGP) -> Scores | None:
    """Of predictions of every training row from the others; None where that is not cheap."""
    problem = model.posterior.problem
    if not 2 <= problem.rows <= CHEAP_ROWS:
        return None
    found = model.leave_one_out()
    return score(model.y_scale.undo(problem.y)[:, 0].numpy(), found.mean, found.std)


def training_rows(model: ExactGP, X: NDArray[np.float64]) -> int:
    """How many of the points (m, d) are, to the last bit held, points that the model was fitted on."""
    points = model.posterior.problem.points
    known = {row.tobytes() for row in points.numpy()}
    standardised = model.x_scale.apply(torch.from_numpy(X), points.dtype).numpy()
    return sum(row.tobytes() in known for row in standardised)


def r_squared(y: NDArray[np.float64], rmse: float) -> float | None:
    """The share of the variance of the values that the means explain; None for constant values."""
    variance = float(np.var(y))
    return 1 - rmse**2 / variance if variance > 0 else None


def _kernel(model: ExactGP) -> str:
    kernel = model.settings.kernel
    if not isinstance(kernel, str):
        return str(model.hyperparameters.kernel)
    return KERNELS.get(kernel, kernel) + (", one lengthscale per feature" if model.settings.ard else "")


def _lengthscales(model: ExactGP) -> NDArray[np.float64] | None:
    """(d,) in units of the columns, if the kernel has one for each that it looks at; NaN for the others."""
    found = torch.full((model.fitted.features,), torch.nan, dtype=torch.float64)
    leaves = model.hyperparameters.kernel.program().leaves
    if len(leaves) != 1 or not leaves[0].is_stationary or leaves[0].feature_parameters:
        return None
    columns = range(len(found)) if leaves[0].columns is None else leaves[0].columns
    found[list(columns)] = 1.0 / leaves[0].scales.detach().double().expand(len(list(columns)))
    return (found * model.x_scale.scale).numpy()
