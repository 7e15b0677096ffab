"""What a trained model says about new points: means, variances, covariances, samples and their errors."""

from halfgp.prediction.accuracy import Accuracy
from halfgp.prediction.base import LatentPrediction, Outcome, Posterior
from halfgp.prediction.conditioning import Conditioning, condition
from halfgp.prediction.equations import Equations
from halfgp.prediction.posterior import ExactPosterior
from halfgp.prediction.residuals import Residuals
from halfgp.prediction.variances import Variances

__all__ = [
    "Accuracy",
    "Conditioning",
    "Equations",
    "ExactPosterior",
    "LatentPrediction",
    "Outcome",
    "Posterior",
    "Residuals",
    "Variances",
    "condition",
]
