"""Predictions of a model beside the values that came, with everything a report says about them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from halfgp.model import ExactGP, NumericalError
from halfgp.report.summary import r_squared, training_rows
from halfgp.scores import Scores, calibration, share_inside

Floats = NDArray[np.float64]
LEVELS = np.linspace(0.01, 0.99, 50)  # of intervals, from narrow to wide


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Predictions and values of m rows.

    Attributes:
        model: the name of the model's file.
        data: the name of the table's file.
        y: (m,) values.
        mean: (m,) predicted.
        std: (m,) predicted, noise included.
        error: estimates of the numerical error.
        scores: of the predictions.
        inside: (50,) shares of the values that intervals of `LEVELS` hold.
        inside_normal: (50,) the same of a normal distribution's.
        r_squared: the share of the variance explained; None for constant values.
        trained_on: how many of the rows the model was fitted on.
        dropped: rows without a value, left out.
        feature_names: (d,).
        target_name: of the column of the values.
    """

    model: str
    data: str
    y: Floats
    mean: Floats
    std: Floats
    error: NumericalError
    scores: Scores
    inside: Floats
    inside_normal: Floats
    r_squared: float | None
    trained_on: int
    dropped: int
    feature_names: tuple[str, ...]
    target_name: str

    @classmethod
    def of(
        cls,
        gp: ExactGP,
        X: Floats,
        y: Floats,
        *,
        feature_names: tuple[str, ...],
        target_name: str,
        model: str = "model",
        data: str = "data",
        dropped: int = 0,
    ) -> Evaluation:
        """Of a fitted model with one target, at points (m, d) with values (m,)."""
        predicted = gp.predict(X, return_std=True, return_error=True)
        assert predicted.std is not None
        assert predicted.error is not None
        found = gp.fitted.scores(y, predicted)
        inside = [share_inside(y, *gp.fitted.interval(predicted, level)) for level in LEVELS.tolist()]
        explained, seen = r_squared(y, found.rmse), training_rows(gp, X)
        return cls(
            model=model,
            data=data,
            y=y,
            mean=predicted.mean,
            std=predicted.std,
            error=predicted.error,
            scores=found,
            inside=np.array(inside),
            inside_normal=calibration(y, predicted.mean, predicted.std, LEVELS.tolist()),
            r_squared=explained,
            trained_on=seen,
            dropped=dropped,
            feature_names=feature_names,
            target_name=target_name,
        )
