"""Training by L-BFGS on a likelihood with an exact gradient: of all rows, of some, or of neighbourhoods."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from halfgp.errors import InputError
from halfgp.hyperparameters import Coordinates, Hyperparameters
from halfgp.memory import peak_memory
from halfgp.precision import DOUBLE
from halfgp.threads import one_thread_of_openblas
from halfgp.training.history import Step, values_of

REACH = 8.0  # on the real line: a factor of 3000
WALL = 1e6  # above the best loss, where there is none
SOLVABLE = 100.0  # times rounding: the share of the noise that it may be
ROOM = 10.0  # times an outputscale that is given, at least, which may be as large as its user likes


Search = Callable[..., Any]


class _Evaluated(Protocol):
    """What a likelihood tells of hyperparameters."""

    @property
    def loss(self) -> float:
        """Per row and target."""

    @property
    def gradient(self) -> Mapping[str, Tensor]:
        """In every value, by name."""


@one_thread_of_openblas()
def train_exactly(
    start: Hyperparameters,
    likelihood: Callable[[Hyperparameters], _Evaluated],
    *,
    rows: int,
    stage: str,
    iterations: int,
    flat: float,
    observe: Callable[[Step, Hyperparameters], object],
    reach: float = REACH,
    optimise: Search | None = None,
) -> tuple[Hyperparameters, float]:
    """The best that SciPy's L-BFGS-B finds, from `start`, on the logarithms of positive parameters.

    Args:
        start: where to begin.
        likelihood: a loss with its gradient, or an InputError where it has none.
        rows: that hyperparameters are for, all of them.
        stage: "cholesky" for all rows, "subset" or "neighbours" for some.
        iterations: at most.
        flat: a change of the loss per row, in an iteration, that ends it.
        observe: called with every evaluation; whatever it raises ends the training.
        reach: how far, on the real line, a parameter may go from where it started.
        optimise: a user's, instead of L-BFGS: optimise(function, vector, bounds) to a vector and its loss, as
            scikit-learn calls it; that vector is where training ends, whatever else was looked at.

    Returns:
        Hyperparameters and their loss; NaN without an iteration.
    """
    if iterations == 0:
        return start, math.nan
    coordinates = Coordinates(start)
    origin = coordinates.vector(start)
    search = _Search(coordinates, likelihood, stage, observe, origin)
    if not len(origin):  # everything is fixed
        search.evaluate(origin.numpy())
        return start, search.lowest
    bounds = _bounds(start, origin, rows, reach)
    if optimise is not None:
        found = optimise(search.evaluate_for_user, origin.numpy().copy(), np.array(bounds))
        chosen = _chosen(found, len(origin))
        loss, _ = search.evaluate(chosen)
        return coordinates.hyperparameters(torch.from_numpy(chosen)), loss
    from scipy.optimize import minimize  # here: it takes a third of a second to import

    minimize(
        search.evaluate,
        origin.numpy(),
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": iterations, "ftol": flat},
    )
    return coordinates.hyperparameters(search.best), search.lowest


def _chosen(found: object, size: int) -> NDArray[np.float64]:
    """The vector (p,) that a user's optimiser came to."""
    try:
        vector, _value = cast(tuple[Any, Any], found)
        chosen = np.array(vector, dtype=np.float64)
    except (TypeError, ValueError):
        chosen = np.zeros(0)
    if chosen.shape != (size,) or not np.isfinite(chosen).all():
        raise InputError(
            f"`training__search` must return theta, {size} finite numbers, and its value; got {found!r:.200}."
        )
    return chosen


def _bounds(start: Hyperparameters, origin: Tensor, rows: int, reach: float) -> list[tuple[float, float]]:
    """How far each coordinate may go; a mean, which has no scale of its own, anywhere.

    An outputscale goes no further than double can solve all rows with, at the least noise: of functions
    without noise the likelihood knows no end to it.
    """
    least = 0.0 if start.noise is None else start.noise.lower
    solvable = least / (SOLVABLE * rows * DOUBLE.eps)
    bounds: list[tuple[float, float]] = []
    for name, parameter in start.named_parameters().items():
        if parameter.fixed:
            continue
        unbounded = math.isinf(parameter.lower) and math.isinf(parameter.upper)
        within = math.inf if unbounded else reach
        values = origin[len(bounds) : len(bounds) + parameter.value.numel()].tolist()
        most = math.inf
        if name.endswith("outputscale") and parameter.lower == 0.0 and math.isinf(parameter.upper) and least:
            most = math.log(max(solvable, ROOM * float(parameter.value.detach().max())))
        bounds += [(v - within, min(v + within, max(v, most))) for v in values]
    return bounds


@dataclass
class _Search:
    """The function that is minimised, and the best vector (p,) that it was evaluated at."""

    coordinates: Coordinates
    likelihood: Callable[[Hyperparameters], _Evaluated]
    stage: str
    observe: Callable[[Step, Hyperparameters], object]
    best: Tensor
    lowest: float = math.inf
    count: int = 0

    def evaluate_for_user(self, vector: NDArray[np.float64], eval_gradient: bool = True) -> Any:
        """The loss, and its gradient (p,) unless it is not wanted."""
        loss, gradient = self.evaluate(np.array(vector, dtype=np.float64))
        return (loss, gradient) if eval_gradient else loss

    def evaluate(self, vector: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """The loss and its gradient (p,)."""
        began = time.perf_counter()
        at = torch.from_numpy(vector.copy())
        hyperparameters = self.coordinates.hyperparameters(at)
        try:
            found = self.likelihood(hyperparameters)
        except InputError:
            if not self.count:
                raise
            # A step too far for Cholesky: a wall that the line search turns back from.
            return self.lowest + WALL, np.zeros_like(vector)
        gradient = self.coordinates.pull_back(at, found.gradient)
        if found.loss < self.lowest:
            self.best, self.lowest = at, found.loss
        steepest = max(gradient.abs().tolist(), default=0.0)
        step = Step(
            self.stage, self.count, found.loss, 0.0, values_of(hyperparameters), steepest,
            0, 0.0, "double", time.perf_counter() - began, peak_memory(),
        )  # fmt: skip
        self.count += 1
        self.observe(step, hyperparameters)
        return found.loss, gradient.numpy()
