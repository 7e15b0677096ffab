"""What a trained model says about new points: means, variances, covariances, samples and their errors."""

from halfgp.prediction.accuracy import Accuracy
from halfgp.prediction.conditioning import Conditioning, UnsolvedError, condition
from halfgp.prediction.equations import Equations
from halfgp.prediction.posterior import Posterior, Prediction, UnsolvedWarning
from halfgp.prediction.variances import Variances

__all__ = [
    "Accuracy",
    "Conditioning",
    "Equations",
    "Posterior",
    "Prediction",
    "UnsolvedError",
    "UnsolvedWarning",
    "Variances",
    "condition",
]
