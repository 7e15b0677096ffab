"""What a fitted model answers, in the units of the user."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


class NumericalError(NamedTuple):
    """Estimates of what rounding and unfinished solves may have done to a prediction.

    Attributes:
        mean: of the shape of the mean.
        std: of the shape of the standard deviation, or None where that was not asked for.
    """

    mean: FloatArray
    std: FloatArray | None


class Prediction(NamedTuple):
    """What is said about targets at m points; None stands for what was not asked for.

    Attributes:
        mean: (m,), or (m, q) for several targets.
        std: of the shape of the mean.
        cov: (m, m), or (q, m, m).
        error: estimates of the numerical error.
    """

    mean: FloatArray
    std: FloatArray | None = None
    cov: FloatArray | None = None
    error: NumericalError | None = None


class PredictionInterval(NamedTuple):
    """Where new targets at m points will be, with the probability that was asked for.

    Attributes:
        lower: (m,), or (m, q) for several targets; of k levels at once (k, m) or (k, m, q).
        upper: of the same shape.
    """

    lower: FloatArray
    upper: FloatArray


class LeaveOneOut(NamedTuple):
    """Predictions of every training target from all the others.

    Attributes:
        mean: (n,) or (n, q).
        std: (n,) or (n, q), noise included.
        log_density: (n,) or (n, q), of the target under that prediction.
    """

    mean: FloatArray
    std: FloatArray
    log_density: FloatArray


class LogLikelihood(NamedTuple):
    """The log marginal likelihood of the targets.

    Attributes:
        value: of all rows and targets.
        standard_error: of the estimate; with a factor in double what rounding may have done.
    """

    value: float
    standard_error: float
