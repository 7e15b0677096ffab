"""An exact Gaussian process in the units of the user: what comes in, what is found, and what is answered."""

from halfgp.model.answers import (
    FloatArray,
    LeaveOneOut,
    LogLikelihood,
    NumericalError,
    Prediction,
    PredictionInterval,
)
from halfgp.model.callbacks import FitCallback, FitEvent, SolveIteration
from halfgp.model.exact_gp import ExactGP
from halfgp.model.fit_report import FitReport
from halfgp.model.fitted import Fitted
from halfgp.model.groups import FittedGroups, Group
from halfgp.model.stages import conditioning_of, training_of

__all__ = [
    "ExactGP",
    "FitCallback",
    "FitEvent",
    "FitReport",
    "Fitted",
    "FittedGroups",
    "FloatArray",
    "Group",
    "LeaveOneOut",
    "LogLikelihood",
    "NumericalError",
    "Prediction",
    "PredictionInterval",
    "SolveIteration",
    "conditioning_of",
    "training_of",
]
