"""Exact Gaussian processes in low precision."""

import os

import torch

from halfgp.estimator import GPRegressor, load
from halfgp.kernels import RBF, Constant, Linear, Matern, Periodic, RationalQuadratic, White
from halfgp.model import ExactGP
from halfgp.operators import KernelOperator
from halfgp.precision import Precision
from halfgp.preconditioners import Nystrom, PivotedCholesky, RandomlyPivotedCholesky
from halfgp.priors import Gamma, LogNormal, Overall
from halfgp.solvers import (
    SolveResult,
    alternating_projection,
    cg,
    lanczos,
    log_determinant,
    minres,
    refine,
)
from halfgp.version import __version__

# OpenMP's threads do not live on in a forked child, where torch would wait for them for ever.
os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))

__all__ = [
    "RBF",
    "Constant",
    "ExactGP",
    "GPRegressor",
    "Gamma",
    "KernelOperator",
    "Linear",
    "LogNormal",
    "Matern",
    "Nystrom",
    "Overall",
    "Periodic",
    "PivotedCholesky",
    "Precision",
    "RandomlyPivotedCholesky",
    "RationalQuadratic",
    "SolveResult",
    "White",
    "__version__",
    "alternating_projection",
    "cg",
    "lanczos",
    "load",
    "log_determinant",
    "minres",
    "refine",
]
