"""How hyperparameters are found: exactly on few rows, then by stochastic gradients on all of them."""

from halfgp.training.checkpoint import Checkpoint, solve_path
from halfgp.training.history import Step
from halfgp.training.preview import preview
from halfgp.training.run import Trained, train
from halfgp.training.settings import Training

__all__ = [
    "Checkpoint",
    "Step",
    "Trained",
    "Training",
    "preview",
    "solve_path",
    "train",
]
