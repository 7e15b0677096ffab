"""What a trained model says about new points: means, variances, covariances, samples and their errors."""

from halfgp.prediction.calibration import calibrated
from halfgp.prediction.posterior import Conditioning, Posterior, Prediction, condition

__all__ = ["Conditioning", "Posterior", "Prediction", "calibrated", "condition"]
