"""The log marginal likelihood and its gradient: by Cholesky for few rows, by solves for many."""

from halfgp.likelihood.dense import DenseLikelihood, dense_likelihood, lower_kernel
from halfgp.likelihood.stochastic import GradientEstimator

__all__ = ["DenseLikelihood", "GradientEstimator", "dense_likelihood", "lower_kernel"]
