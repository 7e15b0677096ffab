"""The log marginal likelihood and its gradient: by Cholesky, by neighbours or by solves."""

from halfgp.likelihood.corrected import CorrectedLikelihood
from halfgp.likelihood.dense import DenseLikelihood, dense_likelihood, lower_kernel
from halfgp.likelihood.marginal import MarginalLikelihood, marginal_likelihood
from halfgp.likelihood.neighbours import NeighbourLikelihood
from halfgp.likelihood.stochastic import GradientEquations, GradientEstimator

__all__ = [
    "CorrectedLikelihood",
    "DenseLikelihood",
    "GradientEquations",
    "GradientEstimator",
    "MarginalLikelihood",
    "NeighbourLikelihood",
    "dense_likelihood",
    "lower_kernel",
    "marginal_likelihood",
]
